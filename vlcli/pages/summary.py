"""Describes each run on a page: result, stages with times, setup, the command that repeats it, differences."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from vlcli.errors import VlcliError
from vlcli.metrics.baseline import without_baselines
from vlcli.metrics.rows import Measured, Paired
from vlcli.pages.charts import Bar, short
from vlcli.pages.scores import Column, Group
from vlcli.recipe.load import load
from vlcli.recipe.yaml import to_yaml
from vlcli.tables.cells import shorter
from vlcli.tools.conclusions import conclusions
from vlcli.tools.differences import WORDS, Comparison, Difference, flat
from vlcli.tools.run_folder import RECIPE, RunFacts, StageFacts

_MOST_OVERRIDES = 8  # more overrides than these are not typed: the run's own recipe is named instead
MOST_SETTINGS = 400
MOST_LETTERS = 300


def summary_of(run: RunFacts, groups: Sequence[Group]) -> dict[str, Any]:
    """Return the words and tables of one run as the template shows them."""
    columns = [(group, column) for group in groups for column in group.columns if column.run == run.label]
    headlines = [(column, column.measured.get(group.headline or "")) for group, column in columns]
    bars, timeline = _bars(run)
    return {
        "facts": run,
        "words": conclusions([run]),
        "headlines": [_headline(column, row) for column, row in headlines if row is not None],
        "stages": [_stage_row(stage, bars.get(stage.name)) for stage in run.stages.values()],
        "timeline": timeline,
        "replay": replay(run),
        "setup": _setup(run),
        "recipe": to_yaml(run.recipe) if run.recipe else "",
    }


def _headline(column: Column, row: Measured) -> dict[str, str]:
    images = f" of {row.images:,} images" if 0 < row.images < row.count else ""
    return {
        "group": column.stage.name if column.label == column.run else column.label.removeprefix(f"{column.run}: "),
        "metric": row.name,
        "value": fraction(row.value),
        "between": between(row),
        "count": f"{row.count:,} example{'s' * (row.count != 1)}{images}",
        "baseline": "" if row.baseline is None else f"{row.by}: {fraction(row.baseline)}",
    }


def fraction(value: float) -> str:
    """Return a score in three digits after the point, a count whole."""
    return f"{value:.0f}" if abs(value) > 1 and float(value).is_integer() else f"{value:.3f}"


def between(row: Measured) -> str:
    """Return both ends of an interval; empty where there is none."""
    return "" if row.low is None or row.high is None else f"{fraction(row.low)} to {fraction(row.high)}"


def _stage_row(stage: StageFacts, bar: Bar | None) -> dict[str, Any]:
    record, metrics = stage.record, stage.metrics
    row: dict[str, Any] = {"facts": stage, "bar": bar, "more": []}
    if record is None:
        return {**row, "time": "", "result": "", "error": "; ".join(stage.faults)}
    names = without_baselines(metrics)
    depth = min((name.count("/") for name in names), default=0)
    shown = [name for name in names if name.count("/") == depth][:3]
    more = {"started": moment(record.started), "finished": moment(record.finished), "folder": str(stage.folder)}
    more |= {"from": ", ".join(record.inputs), "seed": "" if record.seed is None else str(record.seed)}
    for key, name in (("total", "parameters"), ("examples", "examples read"), ("steps", "optimizer steps")):
        count = record.facts.get(key)
        more[name] = f"{count:,}" if isinstance(count, int) and not isinstance(count, bool) else ""
    more |= {"files": ", ".join(record.files.values()), "notes": "; ".join(map(str, record.notes))}
    return {
        **row,
        "time": duration(record.seconds),
        "result": ", ".join(f"{name} {_number(metrics[name])}" for name in shown),
        "error": record.error if stage.state in ("failed", "stopped") else "",
        "more": [(name, shorter(value, MOST_LETTERS)) for name, value in more.items() if value],
    }


def _number(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() and abs(value) > 1 else short(value)


def _bars(run: RunFacts) -> tuple[dict[str, Bar], str]:
    records = {stage.name: stage.record for stage in run.stages.values() if stage.record and stage.record.seconds}
    lengths = {name: float(record.seconds) for name, record in records.items()}
    starts: dict[str, float] = {}
    for name, record in records.items():
        with suppress(ValueError):
            starts[name] = datetime.fromisoformat(record.started).timestamp()
    if len(starts) == len(records) > 1 and not any(run.stages[name].reused for name in records):
        first = min(starts.values())
        whole = max(starts[name] + lengths[name] for name in starts) - first
        if 0 < whole < 2 * sum(lengths.values()):
            bars = {name: _bar(starts[name] - first, lengths[name], whole) for name in starts}
            return bars, f"from start to end: {duration(whole)}"
    longest = max(lengths.values(), default=1.0)
    return {name: _bar(0, seconds, longest) for name, seconds in lengths.items()}, "time taken"


def _bar(start: float, length: float, whole: float) -> Bar:
    return Bar(round(100 * start / whole, 2), round(max(100 * length / whole, 0.4), 2))


def moment(text: str) -> str:
    """Return an ISO time to the second, in UTC."""
    return text[:19].replace("T", " ") + " UTC" if text else ""


def duration(seconds: float) -> str:
    """Return ``3.2 s``, ``4 min 05 s`` or ``2 h 03 min``."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02} min"


def replay(run: RunFacts) -> str:
    """Return the command that runs the same again, by the recipe's name or the run's copy; empty without recipe."""
    file = run.folder / RECIPE
    copy = f"vlcli run {shlex.quote(str(file))}" if file.is_file() else ""
    reference = next((s.record.recipe for s in run.stages.values() if s.record is not None and s.record.recipe), "")
    if not reference or not run.recipe:
        return copy
    wanted = _computed(run.recipe)
    with suppress(VlcliError):
        words = _overrides(_computed(load(reference, plugins=False).document.value), wanted)
        if words is not None and _computed(load(reference, words, plugins=False).document.value) == wanted:
            return shlex.join(["vlcli", "run", reference, *words])
    return copy


def _computed(recipe: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in recipe.items() if key not in WORDS | {"report", "jobs"}}


def _overrides(recipe: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str] | None:
    """Return overrides that turn one recipe into the other; None where they are too many or no plain values."""
    before, after = flat(recipe), flat(wanted)
    changed = {key: value for key, value in after.items() if key not in before or before[key] != value}
    plain = all(isinstance(value, str | int | float | bool) for value in changed.values())
    if not plain or not before.keys() <= after.keys() or len(changed) > _MOST_OVERRIDES:
        return None
    return [f"{key}={_word(value)}" for key, value in changed.items()]


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _setup(run: RunFacts) -> list[tuple[str, str]]:
    records = [stage.record for stage in run.stages.values() if stage.record is not None]
    facts = [
        ("folder", str(run.folder.resolve())),
        ("recipe", ", ".join(dict.fromkeys(record.recipe for record in records if record.recipe))),
        ("paper", str(run.recipe.get("paper", ""))),
        ("data", ", ".join(dict.fromkeys(record.root for record in records if record.root))),
        *run.versions.items(),
    ]
    return [(name, shorter(value, MOST_LETTERS)) for name, value in facts if value]


def comparison_of(comparison: Comparison) -> dict[str, Any]:
    """Return differences between runs as the template shows them."""
    metrics = []
    for stage, sides in comparison.metrics.items():
        by_name = [{row.name: row for row in side} for side in sides]
        for name in dict.fromkeys(name for side in by_name for name in side):
            cells = [_change(side.get(name)) for side in by_name]
            if any(cell["change"] for cell in cells):
                metrics.append({"name": f"{stage}: {name}", "cells": cells})
    parts = {"Settings": comparison.settings, "Versions": comparison.versions, "Data": comparison.data}
    rows = [(name, [_shown(row) for row in rows[:MOST_SETTINGS]]) for name, rows in parts.items()]
    return {"labels": comparison.labels, "parts": rows, "metrics": metrics}


def _shown(row: Difference) -> Difference:
    words = ("–" if value is None else shorter(_word(value), MOST_LETTERS) for value in row.values)
    return Difference(row.key, tuple(words))


def _change(row: Paired | None) -> dict[str, Any]:
    cell = {"change": "", "between": "", "sure": False}
    if row is not None and row.difference:
        cell["change"] = f"{row.difference:+.3f}"
        if row.low is not None and row.high is not None:
            cell |= {"between": f"{row.low:+.3f} to {row.high:+.3f}", "sure": row.low > 0 or row.high < 0}
    return cell
