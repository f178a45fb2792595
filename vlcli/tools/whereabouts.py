"""Lists the data sets and checkpoints that a recipe reads, where each comes from, and what of it is missing."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.checkpoints.load import every
from vlcli.data.reader import Reader
from vlcli.errors import VlcliError
from vlcli.recipe import keys, wiring
from vlcli.recipe.locate import Resolved
from vlcli.recipe.schema import Extract
from vlcli.tools.published import CHECKPOINTS, SOURCES, Published

THERE, MISSING, MADE = "there", "missing", "made by a stage"


@dataclass
class Wanted:
    """One data set or checkpoint of a recipe.

    Attributes:
        what: ``data`` or ``weights``.
        name: reader, or the word of the recipe.
        state: ``there``, ``missing`` or ``made by a stage``.
        source: published facts about it; None where it is the user's own.
    """

    stages: list[str]
    what: str
    name: str
    state: str
    files: list[str]
    missing: list[str]
    source: Published | None

    def as_dict(self) -> dict[str, Any]:
        """Return the document of ``--json``."""
        return {**vars(self), "source": None if self.source is None else self.source._asdict()}


def wanted_by(resolved: Resolved) -> list[Wanted]:
    """Return every data set and checkpoint of a recipe, each once."""
    wanted: dict[tuple[str, str, bool], Wanted] = {}
    order = list(resolved.stages)
    for name, stage in resolved.stages.items():
        is_made = bool(wiring.root_stage(resolved.recipe, stage, order[: order.index(name)]))
        root = wiring.root_folder(resolved.recipe, stage, {})
        for one in (*_data(resolved, name, root, is_made), *_weights(resolved, name, root)):
            known = wanted.setdefault((one.what, one.name, one.state == MADE), one)
            known.stages = list(dict.fromkeys([*known.stages, name]))
            known.files = list(dict.fromkeys([*known.files, *one.files]))
            known.missing = list(dict.fromkeys([*known.missing, *one.missing]))
            known.state = MISSING if known.missing and known.state != MADE else known.state
    return list(wanted.values())


def _data(resolved: Resolved, name: str, root: Path, is_made: bool) -> list[Wanted]:
    stage, wanted = resolved.stages[name], []
    for spec in [spec for more in (False, True) for spec in keys.data_specs(resolved.recipe, stage, optional=more)]:
        try:
            reader = registry.of(Reader).build(spec, root)
            paths = [*reader.files(), *([reader.image_folder] if isinstance(stage, Extract) else [])]
            files = list(dict.fromkeys(map(str, paths)))
            missing = [path for path in files if not Path(path).exists()]
        except VlcliError as error:
            files = missing = [error.where or str(root)]
        missing = [] if is_made else missing
        state, reader_name = MADE if is_made else MISSING if missing else THERE, str(spec["name"])
        wanted.append(Wanted([], "data", reader_name, state, files, missing, SOURCES.get(reader_name)))
    return wanted


def _weights(resolved: Resolved, name: str, root: Path) -> list[Wanted]:
    """Return weights and stores that are no stages: ``from``, an extractor's weights, a named vocabulary."""
    stage = resolved.stages[name]
    words = [word for word in stage.source if word not in resolved.stages]
    if isinstance(stage, Extract) and isinstance(stage.extractor.get("weights"), str):
        words.append(stage.extractor["weights"])
    words += [word for word in getattr(stage, "features", []) if word not in resolved.stages]
    vocabulary = resolved.recipe.text.vocabulary
    if isinstance(vocabulary, str) and stage.kind in ("pretrain", "finetune"):
        words.append(vocabulary)
    wanted = []
    for word in dict.fromkeys(words):
        paths = [root / word, Path(word).expanduser()]
        file = next((str(path) for path in paths if path.exists()), None)
        there = file is not None or (wiring.is_hub_name(word) and _in_cache(word))
        files = [file or str(paths[0])]
        state, missing = (THERE, []) if there else (MISSING, files)
        wanted.append(Wanted([], "weights", word, state, files, missing, _published(word)))
    return wanted


def _in_cache(name: str) -> bool:
    """Return whether the local cache of the Hugging Face hub has files of a repository."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return (Path(HF_HUB_CACHE) / f"models--{name.replace('/', '--')}").is_dir()


def _published(word: str) -> Published | None:
    """Return the facts of a registered checkpoint (``vlcli ls checkpoints``), of a known file, or of a hub name."""
    one = next((entry for entry in every() if entry.name in (word, Path(word).name)), None)
    if one is not None:
        size = f"about {sum(entry.count for entry in one.tensors.values()) * 4 / 1e6:,.0f} MB of weights, by its layout"
        hub = wiring.is_hub_name(one.name) and one.file.url.startswith("https://huggingface.co/")
        command = f"hf download {one.name}" if hub else f"curl -L -o {one.name} '{one.file.url}'"
        layout = f"{one.name}: {one.file.about}; vlcli checkpoint {one.name}"
        return Published(one.name, one.file.url, one.file.licence, size, layout, (command,))
    known = next((facts for part, facts in CHECKPOINTS.items() if part in word.lower()), None)
    if known is None and wiring.is_hub_name(word):
        card, commands = "see the model card", (f"hf download {word}",)
        return Published(word, f"https://huggingface.co/{word}", card, card, "", commands)
    return known
