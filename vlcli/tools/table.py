"""Makes the tables of a recipe, and of its runs over seeds."""

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
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
        columns: the label's column, then one per metric.
        rows: label and one value (or interval, or None) per metric.
        beside: by row label and metric, the score of the most frequent answer or of chance.
        chance: labels of the rows beside which chance stands.
    """

    title: str
    columns: list[str]
    rows: list[tuple[str, list[float | Interval | None]]] = field(default_factory=list)
    beside: dict[str, dict[str, float | Interval]] = field(default_factory=dict)
    chance: set[str] = field(default_factory=set)

    def text_rows(self) -> list[list[str]]:
        rows = []
        for label, values in self.rows:
            others = [self.beside.get(label, {}).get(name) for name in self.columns[1:]]
            beside = ["" if other is None else f" ({_cell(other)})" for other in others]
            rows.append([label, *(_cell(value) + other for value, other in zip(values, beside, strict=True))])
        return rows

    def text_title(self) -> str:
        labels = {label for label, others in self.beside.items() if others}
        words = ["the most frequent answer"] if labels - self.chance else []
        words += ["chance"] if labels & self.chance else []
        return f"{self.title} (in brackets: {' or '.join(words)})".lstrip() if words else self.title

    def as_dict(self) -> dict[str, Any]:
        rows: list[dict[str, Any]] = []
        for label, values in self.rows:
            metrics = {name: _document(value) for name, value in zip(self.columns[1:], values, strict=True)}
            rows.append({"label": label, "metrics": metrics})
            if others := self.beside.get(label):
                key = CHANCE if label in self.chance else NAME
                rows[-1][key] = {name: _document(value) for name, value in others.items()}
        return {"title": self.title, "rows": rows}


def recipe_table(layout: TableOptions, outcomes: Sequence[StageOutcome]) -> Table:
    """Return the table that a recipe asks for (its key ``table``); stages without numbers show as empty cells."""
    metrics = {outcome.name: outcome.metrics for outcome in outcomes}
    rows = {label: metrics.get(stage, {}) for label, stage in layout.rows.items()}
    names = choose(rows.values(), layout.metrics)
    table = Table(layout.title, ["", *names], [(label, [row.get(n) for n in names]) for label, row in rows.items()])
    table.beside = {label: dict(baselines(names, row)) for label, row in rows.items()}
    table.chance = {label for label, row in rows.items() if by_chance(row)}
    return table


def main_number(folder: Path) -> tuple[str, str, float] | None:
    """Return label, metric and value of a run's main number: the first row and metric of its recipe's table.

    Without a table, the first metric of its last evaluate stage. None where no such stage has ended.
    """
    records = [stage_record.read(path.parent) for path in folder.glob(f"*/{stage_record.FILE}")]
    done = [record for record in records if record is not None and record.status == "done" and record.metrics]
    metrics = {record.stage: record.metrics for record in done}
    try:
        layout = TableOptions.model_validate(yaml.read(folder / "recipe.yaml").value.get("table"))
    except (VlcliError, OSError, AttributeError, ValueError):
        evaluated = sorted((record for record in done if record.kind == "evaluate"), key=lambda r: r.finished)
        layout = TableOptions(rows={record.stage: record.stage for record in reversed(evaluated)})
    for label, stage in layout.rows.items():
        for name in choose([metrics.get(stage, {})], layout.metrics)[:1]:
            return label, name, metrics[stage][name]
    return None


def labelled(layout: TableOptions | None, outcomes: Sequence[StageOutcome]) -> dict[str, dict[str, float]]:
    """Return metrics by row label of the recipe's table; without one, of its evaluate stages, else of all stages."""
    metrics = {outcome.name: outcome.metrics for outcome in outcomes if outcome.metrics}
    if layout:
        return {label: metrics[stage] for label, stage in layout.rows.items() if stage in metrics}
    return {o.name: o.metrics for o in outcomes if o.kind == "evaluate" and o.metrics} or metrics


def seeds_table(runs: Mapping[str, Sequence[Mapping[str, float]]], patterns: Sequence[str] | None, title: str) -> Table:
    """Return mean and 95 % interval of each metric over the seeds; ``patterns`` choose metrics (None: all)."""
    names = choose([metrics for seeds in runs.values() for metrics in seeds], patterns)
    table = Table(title, ["", *names])
    for label, seeds in runs.items():
        means = _over_seeds(seeds)
        table.rows.append((label, [means.get(name) for name in names]))
        table.beside[label] = dict(_over_seeds([baselines(names, metrics) for metrics in seeds]))
    table.chance = {label for label, seeds in runs.items() if any(map(by_chance, seeds))}
    return table


def choose(rows: Iterable[Mapping[str, float]], patterns: Sequence[str] | None) -> list[str]:
    """Return the metrics to show: by pattern, each once, in order of first appearance.

    Without patterns all of them, but for the most frequent answer's, which stand beside the accuracies.
    """
    rows = list(rows)
    if not patterns:
        return list(dict.fromkeys(name for metrics in rows for name in without_baselines(metrics)))
    every = list(dict.fromkeys(name for metrics in rows for name in metrics))
    return list(dict.fromkeys(name for pattern in patterns for name in every if fnmatch.fnmatchcase(name, pattern)))


def _over_seeds(seeds: Sequence[Mapping[str, float]]) -> dict[str, Interval]:
    names = dict.fromkeys(name for metrics in seeds for name in metrics)
    return {name: interval([metrics[name] for metrics in seeds if name in metrics]) for name in names}


def _cell(value: float | Interval | None) -> str:
    return "-" if value is None else value.text() if isinstance(value, Interval) else f"{value:.3f}"


def _document(value: float | Interval | None) -> Any:
    return {name: getattr(value, name) for name in ("mean", "half", "count")} if isinstance(value, Interval) else value
