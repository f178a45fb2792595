"""Groups evaluate stages that judged the same examples: their metrics side by side, with intervals."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from vlcli.metrics.rows import Measured, measured
from vlcli.pages.charts import Span, span_of
from vlcli.tools.run_folder import RunFacts, StageFacts
from vlcli.tools.run_rows import layout_of, main_metric

MOST_METRICS = 60
# ``baseline/NAME`` is the score NAME of one prediction made of every picture
BASELINE = "baseline/"
# Names of counts and of settings that were chosen among metrics
NO_SCORES = re.compile(r"(pictures|words|texts|images|chosen/.*)$")


class Column(NamedTuple):
    """One evaluate stage of one run: metrics by name, predictions by key; ``number`` decides its colour."""

    label: str
    short: str
    run: str
    stage: StageFacts
    number: int
    measured: dict[str, Measured]
    rows: dict[str, dict[str, Any]]


@dataclass
class Group:
    """Evaluate stages whose predictions are of the same examples, or that have the same metrics.

    ``headline`` stands for the group in the summary: the first metric of the recipe's table.
    """

    title: str
    columns: list[Column] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    headline: str | None = None

    def span(self, metric: str) -> Span:
        """Return the line on which the values of one metric lie."""
        rows = [column.measured[metric] for column in self.columns if metric in column.measured]
        return span_of([n for row in rows for n in (row.value, row.high, row.baseline) if n is not None])


def groups_of(runs: Sequence[RunFacts]) -> list[Group]:
    """Return evaluate stages of all runs in groups; those that the recipe's table names come first."""
    groups: dict[Any, list[tuple[RunFacts, StageFacts, str]]] = {}
    for run in runs:
        layout = layout_of(run)
        labels = {} if layout is None else {stage: label for label, stage in layout.rows.items()}
        stages = [stage for stage in run.stages.values() if stage.kind == "evaluate" and stage.metrics]
        for stage in sorted(stages, key=lambda stage: stage.name not in labels):
            keys = frozenset(str(row.get("key")) for row in stage.predictions) or frozenset(stage.metrics)
            groups.setdefault(keys, []).append((run, stage, labels.get(stage.name, stage.name)))
    return [_group(members, len(runs) > 1) for members in groups.values()]


def _measured(stage: StageFacts) -> dict[str, Measured]:
    metrics = {row.name: row for row in measured(stage.metrics, stage.predictions, stage.clusters)}
    for name in [name for name in metrics if name.startswith(BASELINE)]:
        baseline, scored = metrics.pop(name), metrics.get(name.removeprefix(BASELINE))
        if scored is not None:
            metrics[scored.name] = replace(scored, baseline=baseline.value, by="one answer for all")
    return metrics


def _group(members: list[tuple[RunFacts, StageFacts, str]], several: bool) -> Group:
    names = list(dict.fromkeys(stage.name for _, stage, _ in members))
    labels = list(dict.fromkeys(label for _, _, label in members))
    group = Group(", ".join(labels) if len(labels) < 4 else f"{labels[0]} and {len(labels) - 1} rows beside")
    for number, (run, stage, label) in enumerate(members):
        name = stage.name if label == stage.name else f"{label} ({stage.name})"
        long, short = (f"{run.label}: {name}", f"{run.label}: {label}") if several else (name, label)
        if several and len(names) == 1:
            long = short = run.label
        rows = {str(row.get("key")): row for row in stage.predictions}
        group.columns.append(Column(long, short, run.label, stage, number, _measured(stage), rows))
    run, stage, _ = members[0]
    group.headline = main_metric(layout_of(run), stage.metrics)
    names = [name for column in group.columns for name in column.measured if not NO_SCORES.match(name)]
    group.metrics = list(dict.fromkeys(sorted(names, key=lambda name: name != group.headline)))[:MOST_METRICS]
    return group
