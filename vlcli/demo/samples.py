"""Pictures and sentences to begin with: those that the model's run held out, or those of a folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from vlcli.api import Loaded
from vlcli.builders.readers import open_readers
from vlcli.data.files import IMAGE_SUFFIXES, walk
from vlcli.data.reader import Reader
from vlcli.errors import DataError
from vlcli.images.shards import is_there
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord

COUNT = 8


@dataclass(frozen=True)
class Sample:
    """An example to begin with.

    Attributes:
        pictures: files.
        text: question or sentence; empty: none.
        answer: the label of the data, where it is a word.
    """

    pictures: tuple[Path, ...]
    text: str = ""
    answer: str = ""


def of_folder(folder: Path, count: int = COUNT) -> list[Sample]:
    """The first pictures of a folder.

    Raises:
        DataError: there is no such folder, or no picture in it.
    """
    if not folder.is_dir():
        raise DataError(
            "There is no such folder of samples.", where=str(folder), hint="vlcli demo MODEL --samples FOLDER"
        )
    found = [Sample((path,)) for path in islice(_pictures(folder), count)]
    if not found:
        raise DataError("There is no picture in the folder of samples.", where=str(folder))
    return found


def of_run(model: Loaded, count: int = COUNT) -> list[Sample]:
    """Examples of the data on which the model is tested; none where its run, its data or their pictures are gone."""
    record = _record(model)
    if record is None or not record.root:
        return []
    root, verdict = Path(record.root), bool(model.uses) and model.use.kind == "verdict"
    for reader in _readers(model, record, root):
        found = list(islice(_examples(reader, verdict, count), count))
        if found:
            return found
    return [Sample((path,)) for path in islice(_pictures(root), count)] if root.is_dir() else []


def _record(model: Loaded) -> StageRecord | None:
    """The record of the stage that trained the model."""
    folder = Path(model.folder) if model.folder else None
    places = [] if folder is None else [folder, folder.parent]
    return next((record for place in places if (record := stage_record.read(place)) is not None), None)


def _readers(model: Loaded, record: StageRecord, root: Path) -> Iterator[Reader]:
    """Data sets to look into: those on which the task is tested, then validation, then training."""
    config, specs = record.config, []
    if model.task is not None:
        splits = dict.fromkeys([getattr(model.task, "eval_split", ""), "dev", "val", "test"])
        given = config.get("data") or [model.task.dataset()]
        specs += [{**spec, "split": split} for split in splits if split for spec in given if isinstance(spec, dict)]
    specs += [*(config.get("validation") or []), *(config.get("data") or [])]
    for spec in specs:
        try:
            yield from open_readers([spec], root)
        except Exception:  # noqa: S112 - samples are a courtesy: no fault of theirs may keep the page away
            continue


def _examples(reader: Reader, verdict: bool, count: int) -> Iterator[Sample]:
    """Examples from all over the data whose pictures are there; no picture and no text twice."""
    seen: set[str] = set()
    try:
        examples = reader.examples()
        every = max(1, len(examples) // (3 * count))
        for example in [*examples[::every], *examples]:
            names = {*example.images, example.text or ""} - {""}
            if not example.images or seen & names:
                continue
            seen |= names
            files = tuple(reader.locate(name) for name in example.images)
            if all(is_there(file) for file in files):
                yield Sample(files, example.text or "", _answer(example.targets, verdict))
    except Exception:  # as above
        return


def _answer(targets: dict[str, Any], verdict: bool) -> str:
    """What the data say, where it is a word: the best of several answers, a label's name, or true and false."""
    answers, label = targets.get("answers"), targets.get("label")
    if isinstance(answers, dict) and answers:
        return str(max(answers, key=lambda answer: float(answers[answer])))
    if verdict and label in (0, 1):
        return str(bool(label))
    return label if isinstance(label, str) else ""


def _pictures(folder: Path) -> Iterator[Path]:
    for place, names in walk(folder):
        for name in sorted(names):
            if Path(name).suffix.lower() in IMAGE_SUFFIXES and not name.startswith("."):
                yield place / name
