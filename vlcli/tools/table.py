"""The tables of a recipe and of several recipes over seeds.

A recipe asks for a table of its evaluate stages so::

    table:
      title: NLVR2 on held-out pictures
      rows: {with pre-training: test, without: scratch-test}
      metrics: [accuracy, "accuracy/*"]
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcli.errors import VlcliError
from vlcli.metrics.baseline import CHANCE, NAME, baselines, by_chance, without_baselines
from vlcli.metrics.interval import Interval, interval
from vlcli.recipe import stage_record, yaml
from vlcli.recipe.schema import TableOptions
from vlcli.runner.execute import StageOutcome


@dataclass
class Table:
    """Rows of numbers.

    Attributes:
        title: what it shows.
        columns: the label's column, then one per metric.
        rows: label and one value (or interval, or None) per metric.
        beside: by row label and metric, what the most frequent answer scores where the metric is an accuracy, or what
            chance does.
        chance: labels of the rows beside which chance stands.
    """

    title: str
    columns: list[str]
    rows: list[tuple[str, list[float | Interval | None]]] = field(default_factory=list)
    beside: dict[str, dict[str, float | Interval]] = field(default_factory=dict)
    chance: set[str] = field(default_factory=set)

    def text_rows(self) -> list[list[str]]:
        """As strings; in brackets, what the most frequent answer or chance scores."""
        return [[label, *self._cells(label, values)] for label, values in self.rows]

    def text_title(self) -> str:
        """The title, and what stands in brackets."""
        labels = {label for label, others in self.beside.items() if others}
        words = ["the most frequent answer"] if labels - self.chance else []
        words += ["chance"] if labels & self.chance else []
        return f"{self.title} (in brackets: {' or '.join(words)})".lstrip() if words else self.title

    def _cells(self, label: str, values: Sequence[float | Interval | None]) -> list[str]:
        others = self.beside.get(label, {})
        shown = [(_cell(value), others.get(name)) for name, value in zip(self.columns[1:], values, strict=True)]
        return [cell if other is None else f"{cell} ({_cell(other)})" for cell, other in shown]

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        rows: list[dict[str, Any]] = [
            {
                "label": label,
                "metrics": {name: _plain(value) for name, value in zip(self.columns[1:], values, strict=True)},
            }
            for label, values in self.rows
        ]
        for row in rows:
            if others := self.beside.get(row["label"]):
                key = CHANCE if row["label"] in self.chance else NAME
                row[key] = {name: _plain(value) for name, value in others.items()}
        return {"title": self.title, "rows": rows}


def recipe_table(layout: TableOptions, outcomes: Sequence[StageOutcome]) -> Table:
    """The table a recipe asks for; stages without numbers show as empty cells."""
    found = {outcome.name: outcome.metrics for outcome in outcomes}
    rows = {label: found.get(stage, {}) for label, stage in layout.rows.items()}
    names = choose(rows.values(), layout.metrics)
    values: list[tuple[str, list[float | Interval | None]]] = [
        (label, [metrics.get(name) for name in names]) for label, metrics in rows.items()
    ]
    beside: dict[str, dict[str, float | Interval]] = {
        label: dict(baselines(names, metrics)) for label, metrics in rows.items()
    }
    chance = {label for label, metrics in rows.items() if by_chance(metrics)}
    return Table(layout.title, ["", *names], values, beside, chance)


def main_number(folder: Path) -> tuple[str, str, float] | None:
    """The number that says most of a run: of the first row of its recipe's table, the first metric.

    Without a table, the first metric of its last evaluate stage. None where no such stage has ended.

    Args:
        folder: the run's folder.

    Returns:
        The row's label, the metric's name, its value.
    """
    records = {path.parent.name: stage_record.read(path.parent) for path in folder.glob(f"*/{stage_record.FILE}")}
    done = [record for record in records.values() if record is not None and record.status == "done"]
    metrics = {record.stage: record.metrics for record in done if record.metrics}
    try:
        layout = TableOptions.model_validate(yaml.read(folder / "recipe.yaml").value.get("table"))
    except (VlcliError, OSError, AttributeError, ValueError):
        evaluated = sorted((r for r in done if r.kind == "evaluate" and r.metrics), key=lambda r: r.finished)
        layout = TableOptions(rows={record.stage: record.stage for record in reversed(evaluated)})
    for label, stage in layout.rows.items():
        for name in choose([metrics.get(stage, {})], layout.metrics)[:1]:
            return label, name, metrics[stage][name]
    return None


def labelled(layout: TableOptions | None, outcomes: Sequence[StageOutcome]) -> dict[str, dict[str, float]]:
    """Metrics by row label: the recipe's table where it has one, else its evaluate stages, else all with numbers."""
    found = {o.name: o.metrics for o in outcomes if o.metrics}
    if layout:
        return {label: found[stage] for label, stage in layout.rows.items() if stage in found}
    evaluated = {o.name: o.metrics for o in outcomes if o.kind == "evaluate" and o.metrics}
    return evaluated or found


def seeds_table(runs: Mapping[str, Sequence[Mapping[str, float]]], patterns: Sequence[str] | None, title: str) -> Table:
    """Mean and 95 % interval of every metric over the seeds.

    Args:
        runs: the metrics of every seed, by row label.
        patterns: which metrics, in which order; None: all.
        title: of the table.
    """
    names = choose([metrics for seeds in runs.values() for metrics in seeds], patterns)
    table = Table(title, ["", *names])
    for label, seeds in runs.items():
        table.chance |= {label} if any(map(by_chance, seeds)) else set()
        table.beside[label] = _over_seeds([baselines(names, metrics) for metrics in seeds])
        values = [[metrics[name] for metrics in seeds if name in metrics] for name in names]
        table.rows.append((label, [interval(given) if given else None for given in values]))
    return table


def choose(rows: Any, patterns: Sequence[str] | None) -> list[str]:
    """The metrics to show: by pattern, each once, in order of first appearance.

    Without patterns all of them, but for the most frequent answer's, which stand beside the accuracies.
    """
    rows = list(rows)
    if not patterns:
        return list(dict.fromkeys(name for metrics in rows for name in without_baselines(metrics)))
    every = list(dict.fromkeys(name for metrics in rows for name in metrics))
    return list(dict.fromkeys(name for pattern in patterns for name in every if fnmatch.fnmatchcase(name, pattern)))


def _over_seeds(seeds: Sequence[Mapping[str, float]]) -> dict[str, float | Interval]:
    names = dict.fromkeys(name for found in seeds for name in found)
    return {name: interval([found[name] for found in seeds if name in found]) for name in names}


def _cell(value: float | Interval | None) -> str:
    if value is None:
        return "-"
    return value.text() if isinstance(value, Interval) else f"{value:.3f}"


def _plain(value: float | Interval | None) -> Any:
    if isinstance(value, Interval):
        return {"mean": value.mean, "half": value.half, "count": value.count}
    return value
