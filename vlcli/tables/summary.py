"""Summarises a table for every output: rows' numbers, differences to the reference row, and the baselines below."""

import fnmatch
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vlcli.errors import UsageError
from vlcli.metrics.baseline import CHANCE, beside, without_baselines
from vlcli.plain import comma_list
from vlcli.recipe.locate import Published
from vlcli.tables.equal import Compared, compared
from vlcli.tables.results import DONE, REFUSED, RowResults, RunResults, TableResults
from vlcli.tables.statistics import Contrast, Estimate, contrast, estimate, holm

MOST_FREQUENT = "most frequent answer"
_MOST_NAMES = 20  # names of metrics that a message lists
# Digits in which baselines of rows agree that share a line
SAME = 3


@dataclass
class Line:
    """One row as it is shown; a metric that the row lacks is absent.

    Attributes:
        kind: ``row``, ``reference``, ``other`` (a system that is not run) or ``baseline``.
        contrasts: to the reference row, by metric.
        error: why the row has no metrics, or which of its runs have none; empty where all have.
        compared: published numbers with what counts as equal, where somebody decided it beforehand.
    """

    label: str
    kind: str = "row"
    estimates: dict[str, Estimate] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)
    contrasts: dict[str, Contrast] = field(default_factory=dict)
    seeds: int = 0
    error: str = ""
    cell: tuple[str, ...] = ()
    compared: dict[str, Compared] = field(default_factory=dict)

    def as_dict(self, metrics: Sequence[str]) -> dict[str, Any]:
        known: dict[str, Any] = {key: getattr(self, key) for key in ("label", "kind", "seeds", "error", "cell")}
        known["verdicts"] = {name: one.word for name, one in self.compared.items()}
        parts: dict[str, Any] = {"measured": self.estimates, "published": self.published, "difference": self.contrasts}
        cells = {
            name: {part: asdict(values[name]) for part, values in parts.items() if name in values} for name in metrics
        }
        return {**{key: value for key, value in known.items() if value not in ("", (), {})}, "metrics": cells}


@dataclass
class Summary:
    """A table with its statistics.

    Attributes:
        lines: rows, then baselines.
        notes: what the intervals are over, how many contrasts Holm's correction counts.
    """

    title: str
    metrics: list[str]
    lines: list[Line]
    reference: str | None = None
    axes: dict[str, list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    about: str = ""
    conclusions: list[str] = field(default_factory=list)

    @property
    def rows(self) -> list[Line]:
        return [line for line in self.lines if line.kind != "baseline"]

    def as_dict(self) -> dict[str, Any]:
        keys = ("title", "about", "conclusions", "metrics", "reference", "notes")
        document: dict[str, Any] = {key: getattr(self, key) for key in keys}
        return {**document, "lines": [line.as_dict(self.metrics) for line in self.lines]}


def grid_of(summary: Summary) -> dict[tuple[str, str], Line]:
    """Return lines by their cell of a table with two axes; UsageError: the table has another number of axes."""
    if len(summary.axes) != 2:
        got, expected = f"{len(summary.axes)} axes", "rows that are crossed: rows: {AXIS: {...}, AXIS: {...}}"
        raise UsageError("The table is no grid of two axes.", where=summary.title, got=got, expected=expected)
    return {(line.cell[0], line.cell[1]): line for line in summary.rows if len(line.cell) == 2}


def summarise(table: TableResults, metrics: Sequence[str] = ()) -> Summary:
    """Compute a table's numbers; UsageError: no such metric, two rows of one label, or no such reference."""
    labels = [row.label for row in table.rows]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UsageError("Two rows of the table have the same label.", where=table.title, got=twice)
    known = [*labels, *(value for values in table.axes.values() for value in values)]
    if table.reference is not None and table.reference not in known:
        what, expected = "The reference row is no row of the table.", ", ".join(known)
        raise UsageError(what, where=table.title, got=table.reference, expected=expected)
    names = _chosen_metrics(table, metrics or table.metrics)
    lines = [_line(row, names, table.reference_of(row)) for row in table.rows]
    corrected = iter(holm([one for line in lines for one in line.contrasts.values()]))
    for line in lines:
        line.contrasts = {name: next(corrected) for name in line.contrasts}
    notes = [*_notes(lines, table.reference), *(line for row in table.rows for line in row.told_apart)]
    lines += _baselines(table.rows, names)
    return Summary(table.title, names, lines, table.reference, table.axes, notes, table.about, table.conclusions)


def _chosen_metrics(table: TableResults, patterns: Sequence[str]) -> list[str]:
    """Return the metrics that patterns match, baselines by full name only; without patterns all but baselines."""
    runs = [run for row in table.rows for run in row.done]
    if not runs:
        published = [name for row in table.rows for name in row.published]
        return [name for name in dict.fromkeys([*patterns, *published]) if "*" not in name] or ["-"]
    every = list(dict.fromkeys(name for run in runs for name in _without_baselines(run)))
    all_names = {name for run in runs for name in run.metrics}
    chosen: dict[str, None] = {}
    for pattern in patterns or every:
        matching = [name for name in every if fnmatch.fnmatchcase(name, pattern)]
        chosen |= dict.fromkeys(matching or {pattern} & all_names)
    missing = [name for name in patterns if not set("*?[") & set(name) and name not in chosen]
    if missing or not chosen:
        got, expected = ", ".join(missing or patterns) or "no metric", f"one of {comma_list(every, _MOST_NAMES)}"
        raise UsageError("The table has no such metric.", where=table.title, got=got, expected=expected)
    return list(chosen)


def _without_baselines(run: RunResults) -> list[str]:
    starts = {label: f"{label}/" if label else "" for label in run.evaluations or [""]}
    return [start + name for label, start in starts.items() for name in without_baselines(run.of(label))]


def _line(row: RowResults, names: Sequence[str], reference: RowResults | None) -> Line:
    estimates = {name: one for name in names if (one := estimate(row, name)) is not None}
    kind = "reference" if row is reference else "other" if row.other else "row"
    line = Line(row.label, kind, estimates, dict(row.published), seeds=len(row.done), cell=row.cell)
    line.error, line.compared = _error(row, names), compared(row)
    if reference is not None and row is not reference:
        pairs = ((name, contrast(row, reference, name)) for name in names)
        line.contrasts = {name: one for name, one in pairs if one is not None}
    return line


def _error(row: RowResults, names: Sequence[str]) -> str:
    lost = [run for run in row.runs if run.state != DONE]
    if row.other:
        return ""
    if not lost:
        known = {name for run in row.done for name in run.metrics}
        bad = [name for name in names if name in known and not row.values(name)]
        return f"{', '.join(bad)}: not a number" if bad else "" if row.runs else "not run"
    first, reason = lost[0], " ".join(lost[0].error.split())
    if first.state == REFUSED:
        return f"refused: {reason}" if first.error else "refused"
    reason = reason or first.state
    some = f" ({len(lost)} of {len(row.runs)} seeds)" if len(row.runs) > 1 else ""
    return (reason if reason.startswith(first.state) else f"{first.state}: {reason}") + some


def _notes(lines: Sequence[Line], reference: str | None) -> list[str]:
    over = _over([one for line in lines for one in line.estimates.values()])
    notes = [f"95 % intervals over {over}"] if over else []
    contrasts = [one for line in lines for one in line.contrasts.values()]
    tests = sum(one.p is not None for one in contrasts)
    if tests:
        corrected = f"* p < .05 after Holm's correction over {tests} contrast{'s' * (tests != 1)}"
        notes.append(f"differences to {reference}, paired by {_over(contrasts)}; {corrected}")
    seeds = {line.label: line.seeds for line in lines if line.seeds}
    if len(set(seeds.values())) > 1:
        most = max(seeds.values())
        fewer = ", ".join(f"{label} {count}" for label, count in seeds.items() if count < most)
        notes.append(f"some rows have fewer than {most} seeds: {fewer}")
    return notes


def _over(numbers: Sequence[Estimate | Contrast]) -> str:
    """Return what varies in some intervals: ``5 seeds``, ``200 to 1,400 images``."""
    counts: dict[str, list[int]] = {}
    for one in numbers:
        if one.low is not None:
            counts.setdefault(one.over, []).append(one.count)
    words = []
    for over, values in counts.items():
        amount = " to ".join(f"{value:,}" for value in sorted({min(values), max(values)}))
        words.append(f"{amount} {over}" + (" (whose images are not known)" if over == "examples" else ""))
    return " or ".join(words)


def _baselines(rows: Sequence[RowResults], names: Sequence[str]) -> list[Line]:
    """Return scores of the most frequent answer and of chance: one line each, or one per row where rows differ."""
    scores: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        for name in names:
            for kind, values in _beside(row, name).items():
                scores.setdefault(kind, {}).setdefault(row.label, {})[name] = sum(values) / len(values)
    lines = []
    for kind, by_row in scores.items():
        groups: dict[Any, list[str]] = {}
        for label, means in by_row.items():
            groups.setdefault(tuple((name, round(value, SAME)) for name, value in means.items()), []).append(label)
        for labels in groups.values():
            where = f" ({', '.join(labels)})" if len(groups) > 1 else ""
            estimates = {name: Estimate(value) for name, value in by_row[labels[0]].items()}
            lines.append(Line(kind + where, "baseline", estimates))
    return lines


def _beside(row: RowResults, name: str) -> dict[str, list[float]]:
    scores: dict[str, list[float]] = {}
    for run in row.done:
        label, bare, _ = run.place(name)
        metrics = run.of(label)
        other = beside(bare, metrics)
        if other is not None and name in run.metrics:
            kind = CHANCE if other.startswith(f"{CHANCE}/") else MOST_FREQUENT
            scores.setdefault(kind, []).append(metrics[other])
    return scores
