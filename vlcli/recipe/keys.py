"""A stage's key: what decides its result, hashed; and the data files it reads."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.files import is_remote
from vlcli.recipe import stage_record
from vlcli.recipe.components import Use, of_recipe, of_stage, split_options
from vlcli.recipe.resolve import Kept, named_model, resolve
from vlcli.recipe.schema import Draw, Evaluate, Extract, Finetune, Recipe, Stage, TextOptions, Training, TrainVocabulary
from vlcli.registry import Entry
from vlcli.registry.schema import Spec, as_spec
from vlcli.version import __version__

_SILENT = {
    "about",
    "device",
    "engine",
    "threads",
    "workers",
    "log_every",
    "sharding",
    "trackers",
    "if_missing",
    "seed",
    "from",
    "features",
    "root",
}


def is_seeded(stage: Stage) -> bool:
    """Whether a stage draws random numbers: training, and baselines that are fitted by steps."""
    task = getattr(stage, "task", None)
    return stage.seeded or (isinstance(task, dict) and task.get("name") == "baseline")


def seed_of(recipe: Recipe, stage: Stage) -> int:
    """The seed a stage runs with: its own, else the run's."""
    return recipe.seed if stage.seed is None else stage.seed


def stage_key(
    recipe: Recipe, name: str, prints: Mapping[str, str], implied: tuple[str, ...], earlier: list[str]
) -> str:
    """The key of a stage.

    Args:
        recipe: checked.
        name: which stage.
        prints: fingerprints of its input stages.
        implied: the extract stages it reads without naming them, skipped ones left out.
        earlier: the stages before it.
    """
    stage = recipe.stages[name]
    model = named_model(recipe, stage) if isinstance(stage, Training) else None
    config = {k: v for k, v in plain(stage).items() if k not in _SILENT}
    content: dict[str, Any] = {"kind": stage.kind, "config": config}
    content["from"] = [_reference(value, prints, earlier) for value in stage.source]
    features = getattr(stage, "features", []) or list(implied)
    content["features"] = [_reference(value, prints, earlier) for value in features]
    if stage.reads_root:
        if recipe.images.range is not None:
            content["images"] = recipe.images.model_dump(mode="json")
        content["root"] = _reference(stage.root or recipe.root, prints, earlier)
    if isinstance(stage, Training):
        content["model"] = model
        content["text"] = (stage.text or recipe.text).model_dump(mode="json")
    if is_seeded(stage):
        content["seed"] = seed_of(recipe, stage)
    content["packages"] = packages(recipe, name)
    return stage_record.digest(content)


def plain(stage: Stage) -> dict[str, Any]:
    """Returns a stage as plain data, without the options that say how processes share a training."""
    return stage.model_dump(by_alias=True, mode="json", exclude={"sharding", "engine"})


def differs(record: stage_record.StageRecord, recipe: Recipe, name: str) -> str:
    """What this recipe has otherwise than a finished stage of another key, in words."""
    stage = recipe.stages[name]
    before, now = record.config, plain(stage)
    found = [k for k in sorted({*before, *now} - _SILENT) if before.get(k) != now.get(k)]
    found += ["seed"] if is_seeded(stage) and record.seed != seed_of(recipe, stage) else []
    used = packages(recipe, name).items()
    found += [f"{package} {version}" for package, version in used if record.versions.get(package) != version]
    return ", ".join(found) or "what it builds on, or what the recipe sets for all stages"


def _reference(value: str, prints: Mapping[str, str], earlier: list[str]) -> str:
    return prints.get(value, "") if value in earlier else str(Path(value).expanduser().absolute())


def packages(recipe: Recipe, name: str) -> dict[str, str]:
    """Versions of the packages whose components the stage uses; for a plugin file, its content's hash."""
    stage = recipe.stages[name]
    uses = [*of_stage(name, stage), *(of_recipe(recipe) if isinstance(stage, Training) else ())]
    found = {"vlcli": __version__}
    for use in uses:
        entry = _entry(use)
        if entry is not None and use.kind != "trackers":
            found[entry.distribution] = entry.version or _file_version(entry)
    return dict(sorted(found.items()))


def _entry(use: Use) -> Entry | None:
    try:
        return registry.find(use.kind, use.spec["name"])
    except ComponentError:
        return None


def _file_version(entry: Entry) -> str:
    module = sys.modules.get(getattr(entry.loaded, "__module__", ""))
    file = getattr(module, "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] if file else ""


def data_files(recipe: Recipe, name: str, root: Path, *, defaults: bool = True) -> list[Path]:
    """Every annotation file, box file, picture folder, vocabulary and extractor's weights a stage reads, there or not.

    Args:
        recipe: checked.
        name: which stage.
        root: its data root.
        defaults: also those of the task's own data set (imports the task).
    """
    stage = recipe.stages[name]
    files: list[Path] = []
    for spec in data_specs(recipe, stage, defaults=defaults):
        files += registry.build("datasets", spec, root).files()
    for spec in data_specs(recipe, stage, defaults=defaults, optional=True):
        own = registry.build("datasets", spec, root).files()
        files += own if all(file.exists() for file in own) else []
    if isinstance(stage, Extract):
        boxes = stage.boxes if isinstance(stage.boxes, list) else [stage.boxes]
        words = stage.extractor.get("words")
        named = [*boxes, stage.images, stage.extractor.get("weights"), words if isinstance(words, str) else None]
        files += [root / Path(item).expanduser() for item in named if item and not is_remote(item)]
    if isinstance(stage, Training):
        vocabulary = (stage.text or recipe.text).vocabulary
        if isinstance(vocabulary, str):  # under the data root, or here; else the name of a hub's
            places = [root / vocabulary, Path(vocabulary).expanduser()]
            files += [place for place in places if place.exists()][:1]
        tables = [spec.get("answers") for spec in [*(stage.objectives or []), stage.task or {}]]
        files += [root / Path(table).expanduser() for table in tables if isinstance(table, str)]
    uses = [*of_stage(name, stage), *(of_recipe(recipe) if isinstance(stage, Training) else ())]
    return files + [file for use in uses if use.kind != "datasets" for file in _named_files(use.spec, root)]


def _named_files(value: Any, root: Path) -> Iterator[Path]:
    """The files that parameters of a component name: under the data root, or here."""
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _named_files(inner, root)
    elif isinstance(value, str) and "." in value and "\0" not in value and len(value) < 1000 and not is_remote(value):
        named = Path(value).expanduser()
        yield from [place for place in (root / named, named) if place.is_file()][:1]


def where_to_get(recipe: Recipe, name: str, file: Path) -> str:
    """What a stage's extractor says of where its weights come from, if ``file`` is those; imports the extractor."""
    stage = recipe.stages[name]
    weights = stage.extractor.get("weights") if isinstance(stage, Extract) else None
    if not isinstance(stage, Extract) or not weights or file.name != Path(weights).name:
        return ""
    said = getattr(registry.load("extractors", stage.extractor["name"]), "weights_help", "")
    return f" ({said})" if said else ""


def data_specs(recipe: Recipe, stage: Stage, *, defaults: bool = True, optional: bool = False) -> list[Spec]:
    """The readers a stage must have (or those it may do without), one split each, without the mixture's own keys."""
    return [spec for _, spec in data_places(recipe, stage, defaults=defaults, optional=optional)]


def data_places(
    recipe: Recipe, stage: Stage, *, defaults: bool = True, optional: bool = False
) -> list[tuple[tuple[str, ...], Spec]]:
    """The same readers, each with the key that names it; the first part says whether the stage or the recipe has it."""
    read, named = _read_specs(recipe, stage, defaults), bool(getattr(stage, "data", []))
    found: list[tuple[tuple[str, ...], Spec]]
    found = [(("stage", "data"), spec) for spec in (read if named else ())]
    found += [(("stage", field), spec) for field in ("validation", "fit") for spec in getattr(stage, field, [])]
    if isinstance(stage, Training):
        root = "recipe" if stage.text is None else "stage"
        texts = _vocabulary_specs(stage.text or recipe.text, stage)
        found += [((root, "text", "vocabulary", "train"), spec) for spec in texts]
    found += [(("stage", "data"), spec) for spec in (() if named else read)]
    split = [(key, *split_options("datasets", spec)) for key, spec in found]
    wanted = [(key, spec) for key, spec, options in split if (options.get("if_missing") == "skip") is optional]
    return [(key, one) for key, spec in wanted for one in _each_split(spec)]


def _each_split(spec: Spec) -> list[Spec]:
    split = spec.get("split")
    return [{**spec, "split": one} for one in split] if isinstance(split, list) else [spec]


def _vocabulary_specs(text: TextOptions, stage: Stage) -> list[Spec]:
    # A stage that starts from another takes that one's vocabulary along.
    trains = isinstance(text.vocabulary, TrainVocabulary) and not stage.source
    return list(text.vocabulary.train) if trains and isinstance(text.vocabulary, TrainVocabulary) else []


def _read_specs(recipe: Recipe, stage: Stage, defaults: bool) -> list[Spec]:
    """The data sets a stage trains on or reads: those it names, with ``defaults`` else those of its task."""
    named: list[Spec] = list(getattr(stage, "data", []))
    if not defaults or not (isinstance(stage, Finetune | Evaluate) or _draws_data(stage)):
        return named
    return resolve(recipe, stage, task_kept).data


def _draws_data(stage: Stage) -> bool:
    return isinstance(stage, Draw) and bool(registry.load("drawings", stage.drawing["name"]).reads_data)


def task_kept(name: str) -> Kept | None:
    """The task of the trained model in a folder, which is all that decides what data are read; None where none is."""
    folder = Path(name).expanduser()
    for file in (folder / "config.json", folder / "model" / "config.json"):
        try:
            config = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(config, dict) and config.get("format") == "vlcli-bundle":
            return Kept(task=as_spec(config["task"]) if config.get("task") else None)
    return None
