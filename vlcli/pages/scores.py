"""Metrics of evaluate stages as tables: stages that judged the same examples stand side by side, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vlcli.metrics.rows import Measured, measured
from vlcli.pages.charts import Axis, axis_of
from vlcli.tools.run_folder import RunFacts, StageFacts
from vlcli.tools.run_rows import layout_of, main_metric

MOST_METRICS = 60


@dataclass
class Column:
    """One evaluate stage of one run.

    Attributes:
        label: what it is called beside the others of its group.
        short: the same in as few words as can be.
        run: label of the run.
        stage: what the run recorded of it.
        number: its place in the group: decides its colour.
        measured: its metrics by name.
        rows: predictions by key.
    """

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

    Attributes:
        title: the stages' names.
        columns: one for each stage and run.
        metrics: names, in order; all columns' together.
        headline: the metric that stands for the group in the summary: the first of the recipe's table.
    """

    title: str
    columns: list[Column] = field(default_factory=list)
    metrics: list[str] = field(default_factory=list)
    headline: str | None = None

    def axis(self, metric: str) -> Axis:
        """The line on which the values of one metric lie."""
        found = [column.measured[metric] for column in self.columns if metric in column.measured]
        return axis_of([n for row in found for n in (row.value, row.high, row.baseline) if n is not None])

    def best(self, metric: str) -> float | None:
        """The highest value of a metric, where several columns have it."""
        values = [column.measured[metric].value for column in self.columns if metric in column.measured]
        return max(values) if len(values) > 1 else None


def groups_of(runs: Sequence[RunFacts]) -> list[Group]:
    """Evaluate stages of all runs in groups; those that the recipe's table names come first."""
    stages = [(run, stage, label) for run in runs for stage, label in _evaluated(run)]
    parts: dict[Any, list[tuple[RunFacts, StageFacts, str]]] = {}
    for run, stage, label in stages:
        keys = frozenset(str(row.get("key")) for row in stage.predictions)
        parts.setdefault(keys or frozenset(stage.metrics), []).append((run, stage, label))
    return [_group(members, len(runs) > 1) for members in parts.values()]


def _evaluated(run: RunFacts) -> list[tuple[StageFacts, str]]:
    """Stages with predictions or scores, and what the recipe's table calls them."""
    table = run.recipe.get("table")
    rows = table.get("rows") if isinstance(table, dict) else None
    labels = {str(stage): str(label) for label, stage in rows.items()} if isinstance(rows, dict) else {}
    found = [stage for stage in run.stages.values() if stage.kind == "evaluate" and stage.metrics]
    found.sort(key=lambda stage: stage.name not in labels)
    return [(stage, labels.get(stage.name, stage.name)) for stage in found]


def _group(members: list[tuple[RunFacts, StageFacts, str]], several: bool) -> Group:
    made = Group(", ".join(dict.fromkeys(stage.name for _, stage, _ in members)))
    for number, (run, stage, label) in enumerate(members):
        name = stage.name if label == stage.name else f"{label} ({stage.name})"
        alone = len({stage.name for _, stage, _ in members}) == 1
        shown = (run.label if alone else f"{run.label}: {name}") if several else name
        found = {row.name: row for row in measured(stage.metrics, stage.predictions, stage.clusters)}
        rows = {str(row.get("key")): row for row in stage.predictions}
        brief = label if not several else run.label if alone else f"{run.label}: {label}"
        made.columns.append(Column(shown, brief, run.label, stage, number, found, rows))
    made.metrics = list(dict.fromkeys(name for column in made.columns for name in column.measured))[:MOST_METRICS]
    run, stage, _ = members[0]
    made.headline = main_metric(layout_of(run), stage.metrics)
    return made
