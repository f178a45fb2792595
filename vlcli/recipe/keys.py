"""Computes the key of a stage, a hash of all that decides its result, and lists the data files it reads."""

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.files import is_remote
from vlcli.recipe import stage_record, wiring
from vlcli.recipe.components import Use, local_files, of_recipe, of_stage, split_options
from vlcli.recipe.digests import read_files
from vlcli.recipe.resolve import Kept, resolve, resolve_model
from vlcli.recipe.schema import Draw, Evaluate, Extract, Finetune, Recipe, Stage, Training, TrainVocabulary
from vlcli.recipe.yaml import Path_
from vlcli.registry import Entry
from vlcli.registry.schema import Spec, as_spec
from vlcli.version import __version__

_UNDER_ROOT = ("answers", "detections")  # options of tasks and objectives that name files under the data root alone
_SILENT = {"about", "device", "engine", "threads", "workers", "log_every", "sharding", "trackers", "if_missing"}
_SILENT |= {"seed", "from", "features", "root"}  # these are in the key by what they mean


def is_seeded(stage: Stage) -> bool:
    """Returns True if a stage draws random numbers: training, and baselines that are fitted by steps."""
    task = getattr(stage, "task", None)
    return stage.seeded or (isinstance(task, dict) and task.get("name") == "baseline")


def seed_of(recipe: Recipe, stage: Stage) -> int:
    """Returns the seed of a stage: its own, else the run's."""
    return recipe.seed if stage.seed is None else stage.seed


def stage_key(
    recipe: Recipe, name: str, prints: Mapping[str, str], implied: tuple[str, ...], earlier: list[str]
) -> str:
    """Returns the key of a stage, from the fingerprints ``prints`` of its input stages.

    ``implied`` are the extract stages it reads without naming them, ``earlier`` all stages before it.
    """
    stage = recipe.stages[name]
    config = {k: v for k, v in plain(stage).items() if k not in _SILENT}
    content: dict[str, Any] = {"kind": stage.kind, "config": config}

    def reference(value: str) -> str:
        return prints.get(value, "") if value in earlier else str(Path(value).expanduser().absolute())

    content["from"] = [reference(value) for value in stage.source]
    content["features"] = [reference(value) for value in getattr(stage, "features", []) or implied]
    if stage.reads_root:
        if recipe.images.range is not None:
            content["images"] = recipe.images.model_dump(mode="json")
        content["root"] = reference(stage.root or recipe.root)
    if isinstance(stage, Training):
        # without what sources add, which are part of the key by their fingerprints
        content["model"] = resolve_model(recipe.model, stage.model, None, inside=False)
        content["text"] = (stage.text or recipe.text).model_dump(mode="json")
    if is_seeded(stage):
        content["seed"] = seed_of(recipe, stage)
    content["packages"] = packages(recipe, name)
    return stage_record.digest(content)


def plain(stage: Stage) -> dict[str, Any]:
    """Returns a stage as plain data, without the options that say how processes share a training."""
    return stage.model_dump(by_alias=True, mode="json", exclude={"sharding", "engine"})


def differs(record: stage_record.StageRecord, recipe: Recipe, name: str) -> str:
    """Returns what differs between this recipe and a finished stage of another key, as text."""
    stage = recipe.stages[name]
    before, now = record.config, plain(stage)
    others = [k for k in sorted({*before, *now} - _SILENT) if before.get(k) != now.get(k)]
    others += ["seed"] if is_seeded(stage) and record.seed != seed_of(recipe, stage) else []
    used = packages(recipe, name).items()
    others += [f"{package} {version}" for package, version in used if record.versions.get(package) != version]
    return ", ".join(others) or "what it builds on, or what the recipe sets for all stages"


def packages(recipe: Recipe, name: str) -> dict[str, str]:
    """Returns the versions of the packages whose components the stage uses; of a plugin file, its hash."""
    stage = recipe.stages[name]
    uses = [*of_stage(name, stage), *(of_recipe(recipe) if isinstance(stage, Training) else ())]
    versions = {"vlcli": __version__}
    for use in uses:
        with suppress(ComponentError):
            entry = registry.find(use.kind, use.spec["name"])
            if use.kind != "trackers":
                versions[entry.distribution] = entry.version or _file_version(entry)
    return dict(sorted(versions.items()))


def _file_version(entry: Entry) -> str:
    file = getattr(sys.modules.get(getattr(entry.loaded, "__module__", "")), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:12] if file else ""


def data_files(recipe: Recipe, name: str, root: Path, *, defaults: bool = True) -> list[Path]:
    """Returns every annotation file, box file, picture folder, vocabulary and weights that a stage reads, there or not.

    ``defaults`` adds those of the task's own data set (imports the task).
    """
    stage = recipe.stages[name]
    files: list[Path] = []
    for spec in data_specs(recipe, stage, defaults=defaults):
        reader = registry.build("datasets", spec, root)
        listed: list[Path] = getattr(reader, "listed_folders", list)()  # a stranger's may do without the base class
        files += [*read_files(reader), *(folder for folder in listed if folder.is_dir())]
    for spec in data_specs(recipe, stage, defaults=defaults, optional=True):
        optional = read_files(registry.build("datasets", spec, root))
        files += optional if all(file.exists() for file in optional) else []
    if isinstance(stage, Extract):
        boxes = stage.boxes if isinstance(stage.boxes, list) else [stage.boxes]
        words = stage.extractor.get("words")
        named = [*boxes, stage.images, stage.extractor.get("weights"), words if isinstance(words, str) else None]
        files += [root / Path(item).expanduser() for item in named if item and not is_remote(item)]
    if isinstance(stage, Training):
        vocabulary = (stage.text or recipe.text).vocabulary
        if isinstance(vocabulary, str):  # under the data root, or here; else the name of a hub's
            files += [path for path in [root / vocabulary, Path(vocabulary).expanduser()] if path.exists()][:1]
        tables = [spec.get(key) for spec in [*(stage.objectives or []), stage.task or {}] for key in _UNDER_ROOT]
        files += [root / Path(table).expanduser() for table in tables if isinstance(table, str)]
    uses = [*of_stage(name, stage), *(of_recipe(recipe) if isinstance(stage, Training) else ())]
    files += [file for _, file in component_files(uses, root)]
    return files + [file for use in uses if use.kind != "datasets" for file in _named_files(use.spec, root)]


def component_files(uses: Iterable[Use], root: Path) -> Iterator[tuple[Path_, Path]]:
    """Yields the files that models, tasks and objectives name in their ``local_files``, each with its place."""
    for use in uses:
        for option, word in local_files(use.kind, use.spec).items():
            yield (*use.path, option), wiring.find_below(word, root) or root / word


def _named_files(value: Any, root: Path) -> Iterator[Path]:
    if isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _named_files(inner, root)
    elif isinstance(value, str) and "." in value and "\0" not in value and len(value) < 1000 and not is_remote(value):
        named = Path(value).expanduser()
        yield from [path for path in (root / named, named) if path.is_file()][:1]


def where_to_get(recipe: Recipe, name: str, file: Path) -> str:
    """Returns where the weights of a stage's extractor come from if ``file`` is those; imports the extractor."""
    stage = recipe.stages[name]
    if not isinstance(stage, Extract) or file.name != Path(stage.extractor.get("weights") or "").name:
        return ""
    help_text = getattr(registry.load("extractors", stage.extractor["name"]), "weights_help", "")
    return f" ({help_text})" if help_text else ""


def data_specs(recipe: Recipe, stage: Stage, *, defaults: bool = True, optional: bool = False) -> list[Spec]:
    """Returns the readers a stage needs (or its optional ones), one split each, without the keys of the mixture."""
    return [spec for _, spec in data_places(recipe, stage, defaults=defaults, optional=optional)]


def data_places(
    recipe: Recipe, stage: Stage, *, defaults: bool = True, optional: bool = False
) -> list[tuple[tuple[str, ...], Spec]]:
    """Returns the same readers with their keys, which begin with ``stage`` or ``recipe``."""
    named: list[Spec] = list(getattr(stage, "data", []))
    read = named
    if defaults and (
        isinstance(stage, Finetune | Evaluate)
        or (isinstance(stage, Draw) and registry.load("drawings", stage.drawing["name"]).reads_data)
    ):
        read = resolve(recipe, stage, task_kept).data
    specs: list[tuple[tuple[str, ...], Spec]] = [(("stage", "data"), spec) for spec in (read if named else ())]
    specs += [(("stage", field), spec) for field in ("validation", "fit") for spec in getattr(stage, field, [])]
    if isinstance(stage, Training) and not stage.source:  # else the vocabulary is that of the source
        owner, text = ("recipe", recipe.text) if stage.text is None else ("stage", stage.text)
        if isinstance(text.vocabulary, TrainVocabulary):
            specs += [((owner, "text", "vocabulary", "train"), spec) for spec in text.vocabulary.train]
    specs += [(("stage", "data"), spec) for spec in (() if named else read)]
    places = []
    for key, whole in specs:
        spec, options = split_options("datasets", whole)
        if (options.get("if_missing") == "skip") is optional:
            split = spec.get("split")
            each = [{**spec, "split": one} for one in split] if isinstance(split, list) else [spec]
            places += [(key, one) for one in each]
    return places


def task_kept(name: str) -> Kept | None:
    """Reads the task of the trained model in a folder; None if there is none."""
    folder = Path(name).expanduser()
    for file in (folder / "config.json", folder / "model" / "config.json"):
        with suppress(OSError, ValueError):
            config = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(config, dict) and config.get("format") == "vlcli-bundle":
                return Kept(task=as_spec(config["task"]) if config.get("task") else None)
    return None
