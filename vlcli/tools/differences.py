"""What differs between recipes or between runs: settings, versions, data, metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

from vlcli.metrics.rows import Paired, paired
from vlcli.tools.run_folder import RunFacts, StageFacts

ABSENT = None
"""What stands where one side has no such key."""
WORDS = frozenset({"about", "paper", "name", "extends"})
"""Keys of a recipe that change nothing of what is computed."""


@dataclass(frozen=True)
class Difference:
    """One key that is not the same everywhere.

    Attributes:
        key: dotted path in the recipe, package, or stage and file.
        values: one for each side; None where a side has no such key.
    """

    key: str
    values: tuple[Any, ...]


@dataclass
class Comparison:
    """What differs between several sides.

    Attributes:
        labels: of the sides.
        settings: keys of the recipe.
        versions: packages.
        data: files and generated data.
        metrics: by stage, of each side after the first against the first.
        faults: what of the runs cannot be read, one sentence each.
    """

    labels: list[str]
    settings: list[Difference] = field(default_factory=list)
    versions: list[Difference] = field(default_factory=list)
    data: list[Difference] = field(default_factory=list)
    metrics: dict[str, list[list[Paired]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted key; items of a list of components stand under their names.

    >>> flat({"model": {"hidden": 8}, "objectives": ["mlm", {"name": "matching", "weight": 2}]})
    {'model.hidden': 8, 'objectives.mlm': {}, 'objectives.matching.weight': 2}
    """
    found: dict[str, Any] = {}
    for key, inner in _items(value):
        place = f"{prefix}.{key}" if prefix else key
        if isinstance(inner, Mapping | list) and _items(inner):
            found |= flat(inner, place)
        else:
            found[place] = inner
    return found


def _items(value: Any) -> list[tuple[str, Any]]:
    """Parts of a mapping or of a list of components; none of anything else."""
    if isinstance(value, Mapping):
        return [(str(key), inner) for key, inner in value.items()]
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
        names = [item.get("name") if isinstance(item, Mapping) else item for item in value]
        unique = all(isinstance(name, str) for name in names) and len(set(map(str, names))) == len(names)
        if unique:
            return [(str(name), _options(item)) for name, item in zip(names, value, strict=True)]
        return [(str(place), item) for place, item in enumerate(value)]
    return []


def _options(item: Any) -> Any:
    return {key: inner for key, inner in item.items() if key != "name"} if isinstance(item, Mapping) else {}


def differing(sides: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Keys whose values are not the same on all sides, in order of first appearance."""
    keys = dict.fromkeys(key for side in sides for key in side)
    rows = [Difference(key, tuple(side.get(key, ABSENT) for side in sides)) for key in keys]
    present = {key: [key in side for side in sides] for key in keys}
    return [
        row for row in rows if any(value != row.values[0] for value in row.values[1:]) or len(set(present[row.key])) > 1
    ]


def compare_settings(recipes: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Settings of recipes that differ.

    Words about a recipe are no settings; a stage that a recipe lacks is one row, with the stage's kind.
    """
    kept = [{key: value for key, value in recipe.items() if key not in WORDS} for recipe in recipes]
    stages = [found for recipe in kept if isinstance(found := recipe.get("stages"), Mapping)]
    if len(stages) < len(kept):
        return differing([flat(recipe) for recipe in kept])
    common = [name for name in stages[0] if all(name in found for found in stages)]
    rows = differing([flat({**recipe, "stages": {name: recipe["stages"][name] for name in common}}) for recipe in kept])
    return rows + differing([_kinds(found, common) for found in stages])


def _kinds(stages: Mapping[str, Any], common: Sequence[str]) -> dict[str, str]:
    """The kind of every stage that not all recipes have."""
    others = {name: stage for name, stage in stages.items() if name not in common}
    kinds = {name: stage.get("kind", "") if isinstance(stage, Mapping) else "" for name, stage in others.items()}
    return {f"stages.{name}": f"({kind} stage)".replace("( ", "(") for name, kind in kinds.items()}


def compare_runs(runs: Sequence[RunFacts]) -> Comparison:
    """Everything that differs between runs; metrics are those of stages of one name, or of the runs' only stages."""
    made = Comparison([run.label for run in runs])
    recipes = [run.recipe for run in runs]
    if all(len(run.stages) == 1 for run in runs):
        recipes = [{"stage": next(iter(run.stages.values())).record} for run in runs]
        recipes = [{"stage": _without_none(r["stage"].config) if r["stage"] is not None else {}} for r in recipes]
    if all(recipes):
        made.settings = compare_settings(recipes)
    made.versions = differing([run.versions for run in runs])
    made.data = differing([data_of(run) for run in runs])
    for label, stages in _matched(runs).items():
        pairs = [_paired(stages[0], other) for other in stages[1:]]
        if any(pairs):
            made.metrics[label] = pairs
    made.faults = list(dict.fromkeys(fault for run in runs for fault in run.every_fault()))
    return made


def _without_none(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if value not in (None, [], {}, "")}


def data_of(run: RunFacts) -> dict[str, str]:
    """The first digits of the digest of each data file, and of the key of data that the run makes or extracts."""
    found: dict[str, str] = {}
    for stage in run.stages.values():
        record = stage.record
        if record is None:
            continue
        if record.kind in ("make", "extract") and record.status == "done":
            found[f"{stage.name} (made by this stage)"] = record.fingerprint[:12]
        for row in record.data:
            found[_place(str(row["path"]), record.root)] = str(row["digest"])[:12]
    return found


def _place(path: str, root: str) -> str:
    inside = root and PurePath(path).is_relative_to(root)
    return str(PurePath(path).relative_to(root)) if inside else str(Path(path).name)


def _matched(runs: Sequence[RunFacts]) -> dict[str, list[StageFacts | None]]:
    """Stages with metrics that the first run and another have, by name; the only stages of runs that have one each."""
    if all(len(run.stages) == 1 for run in runs):
        only = [next(iter(run.stages.values())) for run in runs]
        return {" / ".join(dict.fromkeys(stage.name for stage in only)): list(only)}
    names = dict.fromkeys(name for run in runs for name in run.stages)
    found: dict[str, list[StageFacts | None]] = {name: [run.stages.get(name) for run in runs] for name in names}
    return {name: stages for name, stages in found.items() if sum(bool(s and s.metrics) for s in stages) > 1}


def _paired(first: StageFacts | None, other: StageFacts | None) -> list[Paired]:
    one, two = (stage.metrics if stage is not None else {} for stage in (first, other))
    rows = [stage.predictions if stage is not None else [] for stage in (first, other)]
    clusters = next((stage.clusters for stage in (other, first) if stage is not None and stage.clusters), None)
    return paired(one, two, rows[0], rows[1], clusters)
