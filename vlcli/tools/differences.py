"""Compares recipes or runs: settings, versions, data, metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, NamedTuple

from vlcli.metrics.rows import Paired, paired
from vlcli.tools.run_folder import RunFacts, StageFacts

WORDS = frozenset({"about", "paper", "name", "extends"})
"""Keys of a recipe that change nothing of what is computed."""


class Difference(NamedTuple):
    """A dotted key of recipes, a package, or a file, with its value on each side; None where a side has none."""

    key: str
    values: tuple[Any, ...]


@dataclass
class Comparison:
    """What differs between several sides.

    Attributes:
        data: files and generated data.
        metrics: by stage, of each side after the first against the first.
        faults: sentences about files of the runs that cannot be read.
    """

    labels: list[str]
    settings: list[Difference] = field(default_factory=list)
    versions: list[Difference] = field(default_factory=list)
    data: list[Difference] = field(default_factory=list)
    metrics: dict[str, list[list[Paired]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


def flat(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested settings by dotted key; items of a list of components stand under their names.

    >>> flat({"model": {"hidden": 8}, "objectives": ["mlm", {"name": "matching", "weight": 2}]})
    {'model.hidden': 8, 'objectives.mlm': {}, 'objectives.matching.weight': 2}
    """
    settings: dict[str, Any] = {}
    for key, inner in _items(value):
        path = f"{prefix}.{key}" if prefix else key
        settings |= flat(inner, path) if _items(inner) else {path: inner}
    return settings


def _items(value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [(str(key), inner) for key, inner in value.items()]
    if not isinstance(value, list) or not any(isinstance(item, Mapping) for item in value):
        return []
    names: list[Any] = [item.get("name") if isinstance(item, Mapping) else item for item in value]
    if not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return [(str(number), item) for number, item in enumerate(value)]
    options = [{k: v for k, v in item.items() if k != "name"} if isinstance(item, Mapping) else {} for item in value]
    return list(zip(names, options, strict=True))


def differing(sides: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Return keys whose values are not the same on all sides, in order of first appearance."""
    absent = object()
    rows = []
    for key in dict.fromkeys(key for side in sides for key in side):
        values = [side.get(key, absent) for side in sides]
        if any(value != values[0] for value in values[1:]):
            rows.append(Difference(key, tuple(None if value is absent else value for value in values)))
    return rows


def compare_settings(recipes: Sequence[Mapping[str, Any]]) -> list[Difference]:
    """Return settings of recipes that differ; a stage that a recipe lacks is one row, with the stage's kind."""
    kept = [{key: value for key, value in recipe.items() if key not in WORDS} for recipe in recipes]
    sections = [section for recipe in kept if isinstance(section := recipe.get("stages"), Mapping)]
    if len(sections) < len(kept):
        return differing([flat(recipe) for recipe in kept])
    common = [name for name in sections[0] if all(name in section for section in sections)]
    rows = differing([flat({**recipe, "stages": {name: recipe["stages"][name] for name in common}}) for recipe in kept])
    others = [{name: stage for name, stage in section.items() if name not in common} for section in sections]
    return rows + differing([{f"stages.{n}": _kind(stage) for n, stage in stages.items()} for stages in others])


def _kind(stage: Any) -> str:
    kind = stage.get("kind") if isinstance(stage, Mapping) else ""
    return f"({kind} stage)" if kind else "(stage)"


def compare_runs(runs: Sequence[RunFacts]) -> Comparison:
    """Compare runs; metrics are those of stages of one name, or of the runs' only stages."""
    recipes = [run.recipe for run in runs]
    matched: dict[str, list[StageFacts | None]] = {}
    if all(len(run.stages) == 1 for run in runs):
        only = [next(iter(run.stages.values())) for run in runs]
        recipes = [{"stage": {k: v for k, v in one.config.items() if v not in (None, [], {}, "")}} for one in only]
        matched[" / ".join(dict.fromkeys(stage.name for stage in only))] = list(only)
    else:
        for name in dict.fromkeys(name for run in runs for name in run.stages):
            stages = [run.stages.get(name) for run in runs]
            if sum(bool(stage and stage.metrics) for stage in stages) > 1:
                matched[name] = stages
    pairs = {label: [_paired(stages[0], other) for other in stages[1:]] for label, stages in matched.items()}
    return Comparison(
        [run.label for run in runs],
        compare_settings(recipes) if all(recipes) else [],
        differing([run.versions for run in runs]),
        differing([_data_of(run) for run in runs]),
        {label: rows for label, rows in pairs.items() if any(rows)},
        list(dict.fromkeys(fault for run in runs for fault in run.every_fault())),
    )


def _data_of(run: RunFacts) -> dict[str, str]:
    """Return the first digits of the digest of each data file, and of the key of data that a stage makes."""
    digests: dict[str, str] = {}
    for stage in run.stages.values():
        if (record := stage.record) is None:
            continue
        if record.kind in ("make", "extract") and record.status == "done":
            digests[f"{stage.name} (made by this stage)"] = record.fingerprint[:12]
        for row in record.data:
            path = PurePath(str(row["path"]))
            inside = record.root and path.is_relative_to(record.root)
            digests[str(path.relative_to(record.root)) if inside else path.name] = str(row["digest"])[:12]
    return digests


def _paired(first: StageFacts | None, other: StageFacts | None) -> list[Paired]:
    one, two = ({} if stage is None else stage.metrics for stage in (first, other))
    rows, others = ([] if stage is None else stage.predictions for stage in (first, other))
    clusters = next((stage.clusters for stage in (other, first) if stage is not None and stage.clusters), None)
    return paired(one, two, rows, others, clusters)
