"""What a page says of each run in words and tables: result, stages with times, setup, the command that repeats it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from vlcli.errors import VlcliError
from vlcli.metrics.baseline import without_baselines
from vlcli.metrics.rows import Measured, Paired
from vlcli.pages.charts import Bar, short
from vlcli.pages.scores import Column, Group
from vlcli.recipe.dump import to_yaml
from vlcli.recipe.load import load
from vlcli.tools.conclusions import conclusions
from vlcli.tools.differences import WORDS, Comparison, Difference, flat
from vlcli.tools.run_folder import RECIPE, RunFacts, StageFacts

MOST_OVERRIDES = 8
"""More overrides than these are not typed: the run's own recipe is named instead."""
MOST_SETTINGS = 400
MOST_LETTERS = 300


@dataclass
class Headline:
    """The main score of one evaluate stage."""

    group: str
    metric: str
    value: str
    between: str = ""
    count: str = ""
    baseline: str = ""


@dataclass
class StageRow:
    """One row of the table of stages."""

    facts: StageFacts
    time: str
    bar: Bar | None
    result: str
    error: str
    more: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class RunSummary:
    """All that the page says of one run beside its scores and curves."""

    facts: RunFacts
    words: list[str]
    headlines: list[Headline]
    stages: list[StageRow]
    timeline: str
    replay: str
    setup: list[tuple[str, str]]
    recipe: str


def summary_of(run: RunFacts, groups: Sequence[Group]) -> RunSummary:
    """The words and tables of one run."""
    columns = [(group, column) for group in groups for column in group.columns if column.run == run.label]
    lines = [made for group, column in columns if (made := _headline(group, column)) is not None]
    bars, timeline = _bars(run)
    stages = [_row(stage, bars.get(stage.name)) for stage in run.stages.values()]
    return RunSummary(
        run,
        conclusions([run]),
        lines,
        stages,
        timeline,
        replay(run),
        _setup(run),
        to_yaml(run.recipe) if run.recipe else "",
    )


def _headline(group: Group, column: Column) -> Headline | None:
    row = None if group.headline is None else column.measured.get(group.headline)
    if row is None:
        return None
    label = column.stage.name if column.label == column.run else column.label.removeprefix(f"{column.run}: ")
    baseline = "" if row.baseline is None else f"{row.by}: {fraction(row.baseline)}"
    return Headline(label, row.name, fraction(row.value), between(row), _counted(row), baseline)


def _counted(row: Measured) -> str:
    return f"{row.count:,} examples" + (f" of {row.images:,} images" if 0 < row.images < row.count else "")


def fraction(value: float) -> str:
    """A score in three digits after the point, a count whole."""
    return (
        f"{value:.3f}"
        if abs(value) < 1 or not float(value).is_integer()
        else f"{value:.0f}"
        if abs(value) > 1
        else "1.000"
    )


def between(row: Measured) -> str:
    """Both ends of an interval; empty where there is none."""
    return "" if row.low is None or row.high is None else f"{fraction(row.low)} to {fraction(row.high)}"


def _row(stage: StageFacts, bar: Bar | None) -> StageRow:
    record = stage.record
    if record is None:
        return StageRow(stage, "", None, "", "; ".join(stage.faults))
    error = record.error if stage.state in ("failed", "stopped") else ""
    seconds = record.seconds if isinstance(record.seconds, int | float) else 0.0
    return StageRow(stage, duration(seconds), bar, _result(stage), error, _more(stage))


def _result(stage: StageFacts) -> str:
    """The first few numbers of a stage."""
    metrics = stage.metrics
    names = without_baselines(metrics)
    depth = min((name.count("/") for name in names), default=0)
    return ", ".join(f"{name} {_number(metrics[name])}" for name in [n for n in names if n.count("/") == depth][:3])


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) > 1 else short(value)


def _more(stage: StageFacts) -> list[tuple[str, str]]:
    record = stage.record
    assert record is not None
    found = [("started", moment(record.started)), ("finished", moment(record.finished)), ("folder", str(stage.folder))]
    found += [("from", ", ".join(record.inputs)), ("seed", "" if record.seed is None else str(record.seed))]
    found += [
        (name, f"{record.facts[name]:,}")
        for name in ("total", "examples", "steps")
        if _is_count(record.facts.get(name))
    ]
    found += [("files", ", ".join(record.files.values())), ("notes", "; ".join(map(str, record.notes)))]
    names = {"total": "parameters", "examples": "examples read", "steps": "optimizer steps"}
    return [(names.get(name, name), _cut(value)) for name, value in found if value]


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _bars(run: RunFacts) -> tuple[dict[str, Bar], str]:
    """A bar for each stage: from when to when where the run went through in one go, else how long."""
    records = {s.name: s.record for s in run.stages.values() if s.record is not None and s.record.seconds}
    lengths = {name: float(record.seconds) for name, record in records.items()}
    starts = {name: _seconds(record.started) for name, record in records.items() if not run.stages[name].reused}
    known = {name: start for name, start in starts.items() if start is not None}
    if len(known) == len(records) > 1:
        first = min(known.values())
        whole = max(known[name] + lengths[name] for name in known) - first
        if 0 < whole < 2 * sum(lengths.values()):
            return {
                n: _bar(known[n] - first, lengths[n], whole) for n in known
            }, f"from start to end: {duration(whole)}"
    longest = max(lengths.values(), default=1.0) or 1.0
    return {name: _bar(0, seconds, longest) for name, seconds in lengths.items()}, "time taken"


def _bar(start: float, length: float, whole: float) -> Bar:
    return Bar(round(100 * start / whole, 2), round(max(100 * length / whole, 0.4), 2))


def _seconds(moment: str) -> float | None:
    try:
        return datetime.fromisoformat(moment).timestamp()
    except ValueError:
        return None


def moment(text: str) -> str:
    """An ISO time to the second, in UTC."""
    return text[:19].replace("T", " ") + " UTC" if text else ""


def duration(seconds: float) -> str:
    """``3.2 s``, ``4 min 05 s`` or ``2 h 03 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def replay(run: RunFacts) -> str:
    """The command that runs the same again: the recipe by name with overrides, where these make the same recipe.

    Empty where the folder has no recipe.
    """
    own = f"vlcli run {shlex.quote(str(run.folder / RECIPE))}" if (run.folder / RECIPE).is_file() else ""
    reference = next((s.record.recipe for s in run.stages.values() if s.record is not None and s.record.recipe), "")
    if not reference or not run.recipe:
        return own
    try:
        words = _overrides(_computed(load(reference, plugins=False).document.value), _computed(run.recipe))
        if words is None:
            return own
        if _computed(load(reference, words, plugins=False).document.value) != _computed(run.recipe):
            return own
    except VlcliError:
        return own
    return shlex.join(["vlcli", "run", reference, *words])


def _computed(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """A recipe without the keys that change nothing of what is computed."""
    return {key: value for key, value in recipe.items() if key not in WORDS | {"report", "jobs"}}


def _overrides(recipe: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str] | None:
    """The words that turn one recipe into the other; None where they are too many or no plain values."""
    before, after = flat(recipe), flat(wanted)
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    gone = [key for key in before if key not in after]
    plain = all(isinstance(value, str | int | float | bool) for value in changed.values())
    return (
        [f"{k}={_word(v)}" for k, v in changed.items()]
        if plain and not gone and len(changed) <= MOST_OVERRIDES
        else None
    )


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _setup(run: RunFacts) -> list[tuple[str, str]]:
    records = [stage.record for stage in run.stages.values() if stage.record is not None]
    found = [("folder", str(run.folder.resolve()))]
    found += [("recipe", ", ".join(dict.fromkeys(record.recipe for record in records if record.recipe)))]
    found += [("paper", str(run.recipe.get("paper", "")))]
    found += [("data", ", ".join(dict.fromkeys(record.root for record in records if record.root)))]
    found += [(package, version) for package, version in run.versions.items()]
    return [(name, _cut(value)) for name, value in found if value]


def _cut(text: str) -> str:
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"


@dataclass(frozen=True)
class Change:
    """One metric of one run against the first run."""

    change: str
    between: str
    sure: bool


def comparison_of(found: Comparison) -> dict[str, Any]:
    """Differences between runs, as the template shows them."""
    parts = [("Settings", found.settings), ("Versions", found.versions), ("Data", found.data)]
    metrics = []
    for stage, sides in found.metrics.items():
        for name in dict.fromkeys(row.name for side in sides for row in side):
            cells = [_change(next((row for row in side if row.name == name), None)) for side in sides]
            if any(cell.change for cell in cells):
                metrics.append({"name": f"{stage}: {name}", "cells": cells})
    shown = [(name, [_difference(row) for row in rows[:MOST_SETTINGS]]) for name, rows in parts]
    return {"labels": found.labels, "parts": shown, "metrics": metrics}


def _difference(row: Difference) -> Difference:
    return Difference(row.key, tuple("–" if value is None else _cut(_word(value)) for value in row.values))


def _change(row: Paired | None) -> Change:
    if row is None or row.difference is None or row.difference == 0:
        return Change("", "", False)
    if row.low is None or row.high is None:
        return Change(f"{row.difference:+.3f}", "", False)
    return Change(f"{row.difference:+.3f}", f"{row.low:+.3f} to {row.high:+.3f}", row.low > 0 or row.high < 0)
