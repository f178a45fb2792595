"""LXMERT's pre-training data: the authors' files, or the official files of the five data sets."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import AnswerList, Example, Identity, Reader, held_out, inside, read_answers, read_json, refuse_held_out
from vlcli.data import json_value as value
from vlcli.errors import DataError, VlcliError
from vlcli.files import written
from vlcli_lxmert.aggregate import SPLITS, Datum, aggregate, composition, find_sources, refuse_tests

HELD = ("mscoco_minival",)
"""Splits that are for validation."""
TITLES = {"mscoco": "COCO-Cap", "vg": "VG-Cap", "vqa": "VQA", "gqa": "GQA", "visual7w": "VG-QA"}
"""The data sets as LXMERT's Table 1 calls them."""


# There are nine million sentences: what is alike is kept once.
_SHARED: dict[str, dict[str, Any]] = {}
_NONE: list[str] = []


class Grouped(Reader):
    """What both readers share: images with all their sentences, one example a sentence."""

    splits: ClassVar[tuple[str, ...]] = SPLITS
    held_out_splits: ClassVar[tuple[str, ...]] = HELD
    composition_titles: ClassVar[Mapping[str, str]] = TITLES

    def _set_up(
        self, sets: list[str] | None, known: str | None, held: list[str] | None, image_data: str | None
    ) -> None:
        self.sets, self.known, self.held, self.image_data = sets, known, held, image_data

    def data(self) -> dict[str, list[Datum]]:
        """The images of each chosen split."""
        raise NotImplementedError(f"{type(self).__name__} has no images")

    def composition(self) -> list[dict[str, Any]]:
        return composition(self.data())

    def read(self) -> list[Example]:
        data = self.data()
        table = None if self.known is None else read_answers(inside(self.root, self.known))
        self._refuse(data)
        return [example for found in data.values() for datum in found for example in self._of_image(datum, table)]

    def _of_image(self, datum: Datum, table: AnswerList | None) -> Iterator[Example]:
        images = [datum.image]
        for name, sentences in datum.sentences.items():
            answers = datum.answers.get(name)
            if (self.sets is not None and name not in self.sets) or (table is not None and answers is None):
                continue
            plain = _SHARED.setdefault(name, {"set": name})
            for number, sentence in enumerate(sentences):
                label = answers[number] if answers is not None else {}
                label = label if table is None else _known(label, table)
                if label or table is None:
                    targets = {"set": name, "answers": label} if label else plain
                    key = f"{datum.image}_{name}_{number:03d}"
                    yield Example(key, sentence.strip(), images, targets=targets, choices=_NONE)

    def _refuse(self, data: Mapping[str, list[Datum]]) -> None:
        trained = [datum.image for split, found in data.items() if split not in HELD for datum in found]
        if not trained:
            return
        same = Identity.under(self.root, self.image_data)
        held = held_out(self.root, self.held)
        held |= {datum.image: Path(split) for split in HELD for datum in data.get(split, ())}
        refuse_held_out(trained, self.files(), held, same)


def _known(label: Mapping[str, float], table: AnswerList) -> dict[str, float]:
    found: dict[str, float] = {}
    for answer, score in label.items():
        if (place := table.find(answer)) is not None:
            found[table.strings[place]] = max(float(score), found.get(table.strings[place], 0.0))
    return found


class LxmertPretrain(Grouped):
    """LXMERT's aggregated pre-training data as its authors publish them, one example a sentence.

    Targets: ``set``, the data set (``mscoco``, ``vg``, ``vqa``, ``gqa``, ``visual7w``), and ``answers`` (answer ->
    score) of questions. An image of minival or of a test split in the training splits is refused.

    Args:
        root: data root.
        split: ``mscoco_train``, ``mscoco_nominival`` and ``vgnococo`` to train on, ``mscoco_minival`` to validate.
        file: the file under the root.
        images: folder of the pictures, searched by image id.
        sets: only the sentences of these data sets.
        known: only the questions with an answer in this table, a file under the root, and their answers as it has them.
        held_out: files under the root that list images which must not occur; None: the usual ones that are there.
        image_data: Visual Genome's ``image_data.json`` under the root, by which its images are known as COCO's; None:
            the usual places, where it is there.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "LXMERT, Tan and Bansal 2019, section 3.2 and Table 1"

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = ["mscoco_train", "mscoco_nominival", "vgnococo"],  # noqa: B006
        file: str = "lxmert/{split}.json",
        images: str = "images",
        sets: list[str] | None = None,
        known: str | None = None,
        held_out: list[str] | None = None,
        image_data: str | None = None,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file = file
        self._set_up(sets, known, held_out, image_data)

    def files(self) -> list[Path]:
        tables = [] if self.known is None else [inside(self.root, self.known)]
        return [*dict.fromkeys(self.first_file(self.file, ())), *tables]

    def data(self) -> dict[str, list[Datum]]:
        files = self.first_file(self.file, ())
        return {split: list(read_data(file)) for split, file in zip(self.split_names, files, strict=True)}


class LxmertSources(Grouped):
    """The same pre-training data out of the official files of COCO, Visual Genome, VQA and GQA.

    What is there is used; images are grouped and divided as ``vlcli data aggregate`` does, which writes them once and
    for all: large data should be read from its files.

    Args:
        root: data root.
        split: ``mscoco_train``, ``mscoco_nominival`` and ``vgnococo`` to train on, ``mscoco_minival`` to validate.
        sources: by data set (``mscoco``, ``vg``, ``vqa``, ``gqa``, ``visual7w``), what differs from the usual reader:
            its parameters, or null to leave the set out.
        minival: file under the root that lists the images of minival; None: the usual places; without any list, all of
            COCO's validation images are minival.
        images: folder of the pictures, searched by image id.
        sets: only the sentences of these data sets.
        known: only the questions with an answer in this table, a file under the root, and their answers as it has them.
        held_out: files under the root that list images which must not occur; None: the usual ones that are there.
        image_data: Visual Genome's ``image_data.json`` under the root, by which its images are known as COCO's; None:
            the usual places, where it is there.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "LXMERT, Tan and Bansal 2019, section 3.2 and Table 1"

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = ["mscoco_train", "mscoco_nominival", "vgnococo"],  # noqa: B006
        sources: dict[str, dict[str, Any] | None] = {},  # noqa: B006
        minival: str | None = None,
        images: str = "images",
        sets: list[str] | None = None,
        known: str | None = None,
        held_out: list[str] | None = None,
        image_data: str | None = None,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.sources, self.minival = sources, minival
        self._set_up(sets, known, held_out, image_data)
        if unknown := sorted(set(self.split_names) - set(SPLITS)):
            raise DataError("There is no such split.", got=", ".join(unknown), expected=", ".join(SPLITS))

    def files(self) -> list[Path]:
        try:
            found = [file for source in find_sources(self.root, self.sources) for file in source.files]
        except DataError:  # the world may be made later; reading says what is wrong
            found = [self.root / "coco/annotations/captions_train.json"]
        return [*dict.fromkeys(found), *([] if self.known is None else [inside(self.root, self.known)])]

    def data(self) -> dict[str, list[Datum]]:
        sources = find_sources(self.root, self.sources)
        refuse_tests(sources)
        made = aggregate(sources, self.root, minival_file=self.minival, image_data=self.image_data)
        return {split: list(made[split].values()) for split in self.split_names}


def read_data(file: Path) -> Iterator[Datum]:
    """The images of one of LXMERT's files.

    Raises:
        DataError: it is of another form.
    """
    for place, row in enumerate(read_json(file, list)):
        where = f"{file}[{place}]"
        sentences = _lists(value(row, "sentf", dict, where), str, f"{where}.sentf")
        answers = _lists(row.get("labelf") or {}, dict, f"{where}.labelf")
        for name, labels in answers.items():
            if len(labels) != len(sentences.get(name, ())):
                got = f"{len(labels)} labels for {len(sentences.get(name, ()))} sentences"
                raise DataError("Labels and sentences differ in number.", where=f"{where}.labelf.{name}", got=got)
        yield Datum(str(value(row, "img_id", (str, int), where)), sentences, answers)


def _lists(given: dict[str, Any], kind: type, where: str) -> dict[str, list[Any]]:
    for name, rows in given.items():
        if not isinstance(rows, list) or not all(isinstance(row, kind) for row in rows):
            raise DataError("A list is malformed.", where=f"{where}.{name}", got=str(rows)[:80])
    return {str(name): rows for name, rows in given.items()}


def write_data(file: Path, data: Iterable[Datum]) -> int:
    """Write images as LXMERT's files have them, row by row beside the file, then rename; returns how many.

    Raises:
        VlcliError: it cannot be written.
    """
    count = 0
    try:
        with written(file) as beside, beside.open("w", encoding="utf-8") as out:
            out.write("[")
            for count, datum in enumerate(data, 1):
                out.write((",\n" if count > 1 else "\n") + json.dumps(datum.as_row(), ensure_ascii=False))
            out.write("\n]\n")
    except OSError as error:
        raise VlcliError("The file could not be written.", where=str(file), got=error.strerror or str(error)) from error
    return count
