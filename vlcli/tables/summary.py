"""A table as it is shown: each row's numbers, its differences to the reference row, and the baselines below.

Every output (text, JSON, CSV, LaTeX, Markdown, figures, the report page) is made from a :class:`Summary`.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vlcli.errors import UsageError
from vlcli.metrics.baseline import CHANCE, beside, without_baselines
from vlcli.plain import comma_list
from vlcli.tables.results import DONE, FAILED, REFUSED, Published, RowResults, RunResults, TableResults
from vlcli.tables.statistics import Contrast, Estimate, contrast, estimate, holm

MOST_FREQUENT = "most frequent answer"
MOST_NAMES = 20
"""Names of metrics that a message lists."""
SAME = 3
"""Digits in which baselines of rows agree that share a line."""


@dataclass
class Line:
    """One row as it is shown.

    Attributes:
        label: of the row.
        kind: ``row``, ``reference`` or ``baseline``.
        estimates: by metric; a metric that the row lacks is absent.
        published: by metric.
        contrasts: to the reference row, by metric.
        seeds: how many runs have metrics.
        error: why the row has no metrics, or which of its runs have none; empty where all have.
        cell: where the row stands in a grid.
    """

    label: str
    kind: str = "row"
    estimates: dict[str, Estimate] = field(default_factory=dict)
    published: dict[str, Published] = field(default_factory=dict)
    contrasts: dict[str, Contrast] = field(default_factory=dict)
    seeds: int = 0
    error: str = ""
    cell: tuple[str, ...] = ()


@dataclass
class Summary:
    """A table with its statistics.

    Attributes:
        title: of the table.
        metrics: that are shown, in order.
        lines: rows, then baselines.
        reference: of the table; None: no comparison.
        axes: of a grid.
        notes: what a reader must know: what the intervals are over, how many contrasts Holm's correction counts.
        about: what the table asks.
        conclusions: the result in words, one sentence each.
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
        """The lines without the baselines."""
        return [line for line in self.lines if line.kind != "baseline"]

    def has(self, part: str) -> bool:
        """Whether some line has ``published`` numbers or ``contrasts`` of a metric that is shown."""
        return any(name in getattr(line, part) for line in self.lines for name in self.metrics)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        keys = ("title", "about", "conclusions", "metrics", "reference", "notes")
        made: dict[str, Any] = {key: getattr(self, key) for key in keys}
        return {**made, "lines": [_document(line, self.metrics) for line in self.lines]}


def _document(line: Line, metrics: Sequence[str]) -> dict[str, Any]:
    cells: dict[str, dict[str, Any]] = {}
    for name in metrics:
        parts = {
            "measured": line.estimates.get(name),
            "published": line.published.get(name),
            "difference": line.contrasts.get(name),
        }
        cells[name] = {part: asdict(value) for part, value in parts.items() if value is not None}
    known = {"label": line.label, "kind": line.kind, "seeds": line.seeds, "error": line.error, "cell": line.cell}
    return {**{key: value for key, value in known.items() if value not in ("", ())}, "metrics": cells}


def summarise(table: TableResults, metrics: Sequence[str] = ()) -> Summary:
    """Compute what a table shows.

    Args:
        table: rows with their runs.
        metrics: patterns of metrics in place of the table's own.

    Raises:
        UsageError: no run has a metric of such a name; two rows have one label; the reference is no row.
    """
    _check(table)
    names = chosen_metrics(table, metrics or table.metrics)
    lines = [_line(row, names, table.reference_of(row)) for row in table.rows]
    _correct(lines)
    made = Summary(table.title, names, lines, table.reference, table.axes, [], table.about, table.conclusions)
    made.notes = _notes(made)
    made.lines = lines + _baselines(table.rows, names)
    return made


def _check(table: TableResults) -> None:
    labels = [row.label for row in table.rows]
    twice = next((label for label in labels if labels.count(label) > 1), None)
    if twice is not None:
        raise UsageError("Two rows of the table have the same label.", where=table.title, got=twice)
    known = [*labels, *(value for values in table.axes.values() for value in values)]
    if table.reference is not None and table.reference not in known:
        what, expected = "The reference row is no row of the table.", ", ".join(known)
        raise UsageError(what, where=table.title, got=table.reference, expected=expected)


def chosen_metrics(table: TableResults, patterns: Sequence[str]) -> list[str]:
    """The metrics of a table that patterns name, in their order; without patterns all that are no baselines.

    Raises:
        UsageError: a pattern without wildcards names no metric of any run, or nothing is left to show.
    """
    runs = [run for row in table.rows for run in row.done]
    every = list(dict.fromkeys(name for run in runs for name in _own(run)))
    published = dict.fromkeys(name for row in table.rows for name in row.published)
    if not runs:
        return [name for name in dict.fromkeys([*patterns, *published]) if "*" not in name] or ["-"]
    hidden = dict.fromkeys(name for run in runs for name in run.metrics)
    found = [name for pattern in patterns or every for name in _matching(pattern, every, list(hidden))]
    missing = [name for name in patterns if not set("*?[") & set(name) and name not in found]
    if missing or not found:
        raise UsageError(
            "The table has no such metric.",
            where=table.title,
            got=", ".join(missing or patterns) or "no metric",
            expected="one of " + comma_list(every, MOST_NAMES),
        )
    return list(dict.fromkeys(found))


def _matching(pattern: str, names: Sequence[str], hidden: Sequence[str]) -> list[str]:
    """The names that a pattern matches; a baseline only by its full name."""
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)] or [
        name for name in hidden if name == pattern
    ]


def _own(run: RunResults) -> list[str]:
    """The metrics of a run that are not baselines of others."""
    found = []
    for label in run.evaluations or [""]:
        start = f"{label}/" if label else ""
        found += [start + name for name in without_baselines(run.of(label))]
    return found


def _line(row: RowResults, names: Sequence[str], reference: RowResults | None) -> Line:
    estimates = {name: found for name in names if (found := estimate(row, name)) is not None}
    kind = "reference" if row is reference else "row"
    line = Line(row.label, kind, estimates, dict(row.published), seeds=len(row.done), cell=row.cell)
    line.error = _error(row, names)
    if reference is not None and row is not reference:
        pairs = ((name, contrast(row, reference, name)) for name in names)
        line.contrasts = {name: found for name, found in pairs if found is not None}
    return line


def _error(row: RowResults, names: Sequence[str]) -> str:
    """Why a row lacks numbers, in one line: its first error, and how many of its runs have it."""
    lost = [run for run in row.runs if run.state != DONE]
    if not lost:
        runs = [run for run in row.done if any(name in run.metrics for name in names)]
        bad = [name for name in names if any(name in run.metrics for run in runs) and not row.values(name)]
        return f"{', '.join(bad)}: not a number" if bad else "" if row.runs else "not run"
    first = lost[0]
    reason = " ".join(first.error.split()) or {FAILED: "failed"}.get(first.state, first.state)
    if first.state == REFUSED:
        return f"refused: {reason}" if first.error else "refused"
    some = f" ({len(lost)} of {len(row.runs)} seeds)" if len(row.runs) > 1 else ""
    return (reason if reason.startswith(first.state) else f"{first.state}: {reason}") + some


def _correct(lines: Iterable[Line]) -> None:
    """Fill in Holm's p values over all contrasts of the table."""
    places = [(line, name) for line in lines for name in line.contrasts]
    found = holm([line.contrasts[name] for line, name in places]) if places else []
    for (line, name), made in zip(places, found, strict=True):
        line.contrasts[name] = made


def _notes(made: Summary) -> list[str]:
    over = _over([one for line in made.lines for one in line.estimates.values()])
    notes = [f"95 % intervals over {over}"] if over else []
    contrasts = [one for line in made.lines for one in line.contrasts.values()]
    tests = sum(one.p is not None for one in contrasts)
    if tests:
        corrected = f"* p < .05 after Holm's correction over {tests} contrast{'s' * (tests != 1)}"
        notes.append(f"differences to {made.reference}, paired by {_over(contrasts)}; {corrected}")
    seeds = {line.label: line.seeds for line in made.lines if line.seeds}
    if len(set(seeds.values())) > 1:
        most = max(seeds.values())
        fewer = ", ".join(f"{label} {count}" for label, count in seeds.items() if count < most)
        notes.append(f"some rows have fewer than {most} seeds: {fewer}")
    return notes


def _over(found: Sequence[Estimate | Contrast]) -> str:
    """What varies in some intervals: ``5 seeds``, ``200 to 1,400 images``."""
    counts: dict[str, list[int]] = {}
    for one in found:
        if one.low is not None:
            counts.setdefault(one.over, []).append(one.count)
    words = []
    for over, numbers in counts.items():
        low, high = min(numbers), max(numbers)
        amount = f"{low:,}" if low == high else f"{low:,} to {high:,}"
        words.append(f"{amount} {over}" + (" (whose images are not known)" if over == "examples" else ""))
    return " or ".join(words)


def _baselines(rows: Sequence[RowResults], names: Sequence[str]) -> list[Line]:
    """What the most frequent answer and chance score: one line each, or one per row where rows differ."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        for name in names:
            for kind, value in _beside(row, name).items():
                found.setdefault(kind, {}).setdefault(row.label, {})[name] = value
    return [line for kind, by_row in found.items() for line in _baseline_lines(kind, by_row)]


def _baseline_lines(kind: str, by_row: Mapping[str, Mapping[str, float]]) -> list[Line]:
    groups: dict[tuple[tuple[str, float], ...], list[str]] = {}
    for label, values in by_row.items():
        groups.setdefault(tuple((name, round(value, SAME)) for name, value in values.items()), []).append(label)
    lines = []
    for labels in groups.values():
        where = f" ({', '.join(labels)})" if len(groups) > 1 else ""
        estimates = {name: Estimate(value) for name, value in by_row[labels[0]].items()}
        lines.append(Line(kind + where, "baseline", estimates))
    return lines


def _beside(row: RowResults, name: str) -> dict[str, float]:
    """What stands beside a metric of a row, by who scores it: the mean over its runs."""
    found: dict[str, list[float]] = {}
    for run in row.done:
        label, bare, _ = run.place(name)
        metrics = run.of(label)
        other = beside(bare, metrics)
        if other is not None and name in run.metrics:
            kind = CHANCE if other.startswith(f"{CHANCE}/") else MOST_FREQUENT
            found.setdefault(kind, []).append(metrics[other])
    return {kind: sum(values) / len(values) for kind, values in found.items()}
