"""Chooses pictures and sentences to begin with: held out by the model's run, or those of a folder."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from vlcli.api import Loaded
from vlcli.builders.readers import open_readers
from vlcli.data.reader import Reader
from vlcli.errors import DataError
from vlcli.images.shards import is_there
from vlcli.prediction.sources import SMALL
from vlcli.progress import Silent
from vlcli.recipe import stage_record
from vlcli.recipe.load import load
from vlcli.stages.make import world_config
from vlcli.tools.search import walk_pictures

COUNT, DRAWN = 8, 20


class Sample(NamedTuple):
    """An example to begin with: files of pictures, question or sentence, and the label where it is a word."""

    pictures: tuple[Path, ...]
    text: str = ""
    answer: str = ""


def of_folder(folder: Path, count: int = COUNT) -> list[Sample]:
    """Return the first pictures of a folder; DataError: there is no such folder, or no picture in it."""
    if not folder.is_dir():
        hint = "vlcli demo MODEL --samples FOLDER"
        raise DataError("There is no such folder of samples.", where=str(folder), hint=hint)
    if samples := [Sample((path,)) for path in islice(walk_pictures(folder), count)]:
        return samples
    raise DataError("There is no picture in the folder of samples.", where=str(folder))


def small_world(folder: Path, images: int, seed: int) -> None:
    """Draw pictures with questions, as the recipe of the small model does."""
    world = dict(load("quickstart").recipe.stages["world"].model_dump()["world"])
    world |= {"images": images, "seed": seed, "parts": ["coco", "vqa"]}
    world_config(world, SMALL).make(folder, Silent(), 1)


def of_world(folder: Path, count: int = COUNT) -> list[Sample]:
    """Return drawn pictures that the small model has never seen, with questions and their answers."""
    small_world(folder, DRAWN, DRAWN)
    (reader,) = open_readers([{"name": "vqa", "split": "train"}], folder)
    return list(islice(_examples(reader, False, count), count))


def of_run(model: Loaded, count: int = COUNT) -> list[Sample]:
    """Return examples of the data on which the model is tested; none where its run or its data are gone."""
    record = stage_record.read(model.folder) or stage_record.read(model.folder.parent)
    if record is None or not record.root:
        return []
    root, verdict = Path(record.root), bool(model.uses) and model.use.kind == "verdict"
    for reader in _readers(model, record, root):
        if samples := list(islice(_examples(reader, verdict, count), count)):
            return samples
    return [Sample((path,)) for path in islice(walk_pictures(root), count)] if root.is_dir() else []


def _readers(model: Loaded, record: stage_record.StageRecord, root: Path) -> Iterator[Reader]:
    """Yield data sets: those on which the task is tested, then validation, then training."""
    config, specs = record.config, []
    if model.task is not None:
        splits = dict.fromkeys([model.task.eval_split, "dev", "val", "test"])
        data = config.get("data") or [model.task.dataset()]
        specs += [{**spec, "split": split} for split in splits for spec in data if isinstance(spec, dict)]
    specs += [*(config.get("validation") or []), *(config.get("data") or [])]
    for spec in specs:
        try:
            yield from open_readers([spec], root)
        except Exception:  # noqa: S112 - samples are a courtesy: no fault of theirs may keep the page away
            continue


def _examples(reader: Reader, verdict: bool, count: int) -> Iterator[Sample]:
    seen: set[str] = set()
    try:
        examples = reader.examples()
        every = max(1, len(examples) // (3 * count))
        for example in [*examples[::every], *examples]:
            names = {*example.images, example.text or ""} - {""}
            if example.images and not seen & names:
                seen |= names
                files = tuple(map(reader.locate, example.images))
                if all(map(is_there, files)):
                    yield Sample(files, example.text or "", _answer(example.targets, verdict))
    except Exception:  # as above
        return


def _answer(targets: dict[str, Any], verdict: bool) -> str:
    """Return the best of several answers, a label's name, or true and false; empty for other labels."""
    answers, label = targets.get("answers"), targets.get("label")
    if isinstance(answers, dict) and answers:
        return str(max(answers, key=lambda answer: float(answers[answer])))
    if verdict and label in (0, 1):
        return str(bool(label))
    return label if isinstance(label, str) else ""
