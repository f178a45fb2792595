"""Which data sets and checkpoints a recipe wants, where each comes from, and what of it is missing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.checkpoints.load import every
from vlcli.data.reader import Reader
from vlcli.errors import VlcliError
from vlcli.recipe import keys, wiring
from vlcli.recipe.resolved import Resolved
from vlcli.recipe.schema import Extract
from vlcli.tools.published import CHECKPOINTS, SOURCES, Published

THERE, MISSING, MADE = "there", "missing", "made by a stage"


@dataclass
class Wanted:
    """One data set or checkpoint that a recipe wants.

    Attributes:
        stages: the stages that want it.
        what: ``data`` or ``weights``.
        name: reader, or the word of the recipe.
        state: ``there``, ``missing`` or ``made by a stage``.
        files: the files it reads.
        missing: those that are not there.
        source: what is published about it; None where it is the user's own.
    """

    stages: list[str]
    what: str
    name: str
    state: str
    files: list[str]
    missing: list[str]
    source: Published | None

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data, for ``--json``."""
        return {**vars(self), "source": None if self.source is None else vars(self.source)}


def wanted_by(resolved: Resolved) -> list[Wanted]:
    """Every data set and checkpoint of a recipe, each once.

    Args:
        resolved: the recipe.
    """
    found: dict[tuple[str, str, bool], Wanted] = {}
    order = list(resolved.stages)
    for name, stage in resolved.stages.items():
        made = wiring.root_stage(resolved.recipe, stage, order[: order.index(name)])
        root = wiring.root_folder(resolved.recipe, stage, {})
        for one in (*_data(resolved, name, root, bool(made)), *_weights(resolved, name, root)):
            known = found.setdefault((one.what, one.name, one.state == MADE), one)
            known.stages = list(dict.fromkeys([*known.stages, name]))
            known.files = list(dict.fromkeys([*known.files, *one.files]))
            known.missing = list(dict.fromkeys([*known.missing, *one.missing]))
            known.state = MISSING if known.missing and known.state != MADE else known.state
    return list(found.values())


def _data(resolved: Resolved, name: str, root: Path, made: bool) -> list[Wanted]:
    """The data sets of a stage."""
    stage = resolved.stages[name]
    found = []
    for optional in (False, True):
        for spec in keys.data_specs(resolved.recipe, stage, optional=optional):
            files, missing = _files(spec, root, pictures=isinstance(stage, Extract))
            missing = [] if made else missing
            state = MADE if made else MISSING if missing else THERE
            found.append(Wanted([], "data", str(spec["name"]), state, files, missing, SOURCES.get(str(spec["name"]))))
    return found


def _files(spec: dict[str, Any], root: Path, pictures: bool) -> tuple[list[str], list[str]]:
    """The annotation files of a data set, with ``pictures`` also its picture folder, and which are not there."""
    try:
        reader = registry.of(Reader).build(spec, root)
        files = [*reader.files(), *([reader.image_folder] if pictures else [])]
    except VlcliError as error:
        return [error.where or str(root)], [error.where or str(root)]
    paths = list(dict.fromkeys(map(str, files)))
    return paths, [path for path in paths if not Path(path).exists()]


def _weights(resolved: Resolved, name: str, root: Path) -> list[Wanted]:
    """Weights and stores that are no stages of the recipe: ``from``, an extractor's weights, a named vocabulary."""
    stage = resolved.stages[name]
    words = [word for word in stage.source if word not in resolved.stages]
    if isinstance(stage, Extract) and isinstance(stage.extractor.get("weights"), str):
        words.append(stage.extractor["weights"])
    words += [word for word in getattr(stage, "features", []) if word not in resolved.stages]
    vocabulary = resolved.recipe.text.vocabulary
    if isinstance(vocabulary, str) and stage.kind in ("pretrain", "finetune"):
        words.append(vocabulary)
    found = []
    for word in dict.fromkeys(words):
        places = [root / word, Path(word).expanduser()]
        there = next((str(place) for place in places if place.exists()), None)
        cached = there is None and wiring.is_hub_name(word) and _in_cache(word)
        state = THERE if there is not None or cached else MISSING
        at = there or str(places[0])
        missing = [] if state == THERE else [at]
        found.append(Wanted([], "weights", word, state, [at], missing, _published(word)))
    return found


def _in_cache(name: str) -> bool:
    """Whether the local cache of the Hugging Face hub has files of a repository."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return (Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}").is_dir()


def _published(word: str) -> Published | None:
    known = _registered(word)
    known = known or next((found for part, found in CHECKPOINTS.items() if part in word.lower()), None)
    if known is None and wiring.is_hub_name(word):
        commands = (f"hf download {word}",)
        return Published(
            word, f"https://huggingface.co/{word}", "see the model card", "see the model card", "", commands
        )
    return known


def _registered(word: str) -> Published | None:
    """What packages say of a published checkpoint (``vlcli ls checkpoints``); found by the name of its file."""
    one = next((found for found in every() if found.name in (word, Path(word).name)), None)
    if one is None:
        return None
    size = f"about {sum(entry.count for entry in one.tensors.values()) * 4 / 1e6:,.0f} MB of weights, by its layout"
    hub = wiring.is_hub_name(one.name) and one.file.url.startswith("https://huggingface.co/")
    command = f"hf download {one.name}" if hub else f"curl -L -o {one.name} '{one.file.url}'"
    layout = f"{one.name}: {one.file.about}; vlcli checkpoint {one.name}"
    return Published(one.name, one.file.url, one.file.licence, size, layout, (command,))
