"""Reads LXMERT's pre-training data: the authors' files, or the official files of the five data sets."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import (
    AnswerList,
    Example,
    Identity,
    Miniature,
    Reader,
    held_out,
    inside,
    json_value,
    read_answers,
    read_json,
    refuse_held_out,
)
from vlcli.errors import DataError, VlcliError
from vlcli.files import written
from vlcli_lxmert.aggregate import SPLITS, Datum, aggregate, composition, find_sources, refuse_tests

# Splits that are for validation
HELD = ("mscoco_minival",)
# The data sets as LXMERT's Table 1 calls them
TITLES = {"mscoco": "COCO-Cap", "vg": "VG-Cap", "vqa": "VQA", "gqa": "GQA", "visual7w": "VG-QA"}


# There are nine million sentences: what is alike is kept once.
_SHARED: dict[str, dict[str, Any]] = {}
_NONE: list[str] = []


class Grouped(Reader):
    """Base of both readers: images with all their sentences, one example a sentence.

    Args:
        split: ``mscoco_train``, ``mscoco_nominival`` and ``vgnococo`` to train on, ``mscoco_minival`` to validate.
        sets: only the sentences of these data sets.
        known: only the questions with an answer in this table, a file under the root, and their answers as it has them.
        held_out: files under the root that list images which must not occur; None: the usual ones that are there.
        image_data: Visual Genome's ``image_data.json`` under the root, by which its images are known as COCO's; None:
            the usual places, where it is there.
    """

    paper: ClassVar[str] = "LXMERT, Tan and Bansal 2019, section 3.2 and Table 1"
    splits: ClassVar[tuple[str, ...]] = SPLITS
    held_out_splits: ClassVar[tuple[str, ...]] = HELD
    composition_titles: ClassVar[Mapping[str, str]] = TITLES

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = ["mscoco_train", "mscoco_nominival", "vgnococo"],  # noqa: B006
        sets: list[str] | None = None,
        known: str | None = None,
        held_out: list[str] | None = None,
        image_data: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root, split=split, **options)
        self.sets, self.known, self.held, self.image_data = sets, known, held_out, image_data

    def data(self) -> dict[str, list[Datum]]:
        """Returns the images of each chosen split; called by :meth:`read` and :meth:`composition`."""
        raise NotImplementedError(f"{type(self).__name__} has no images")

    def composition(self) -> list[dict[str, Any]]:
        return composition(self.data())

    def read(self) -> list[Example]:
        data = self.data()
        table = None if self.known is None else read_answers(inside(self.root, self.known))
        refuse_leaks(data, self.files(), self.root, self.held, self.image_data)
        return [example for images in data.values() for datum in images for example in self._of_image(datum, table)]

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


def _known(label: Mapping[str, float], table: AnswerList) -> dict[str, float]:
    # The answers that a table has, as it writes them.
    known: dict[str, float] = {}
    for answer, score in label.items():
        if (row := table.find(answer)) is not None:
            known[table.strings[row]] = max(float(score), known.get(table.strings[row], 0.0))
    return known


def refuse_leaks(
    data: Mapping[str, Iterable[Datum]],
    files: Sequence[Path],
    root: Path,
    lists: list[str] | None = None,
    image_data: str | None = None,
) -> None:
    """Refuses images of minival or of a test split. Raises DataError: it names the images and ``files``.

    Args:
        lists: files under the root that list held-out images; None: the usual ones.
    """
    if trained := [datum.image for split, images in data.items() if split not in HELD for datum in images]:
        held = held_out(root, lists) | {datum.image: Path(split) for split in HELD for datum in data.get(split, ())}
        refuse_held_out(trained, files, held, Identity.under(root, image_data))


class LxmertPretrain(Grouped):
    """LXMERT's aggregated pre-training data as its authors publish them, one example a sentence.

    Targets: ``set``, the data set (``mscoco``, ``vg``, ``vqa``, ``gqa``, ``visual7w``), and ``answers`` (answer ->
    score) of questions. An image of minival or of a test split in the training splits is refused.

    Args:
        file: the file under the root.
    """

    def __init__(self, root: Path, *, file: str = "lxmert/{split}.json", **options: Any) -> None:
        super().__init__(root, **options)
        self.file = file

    def files(self) -> list[Path]:
        tables = [] if self.known is None else [inside(self.root, self.known)]
        return [*dict.fromkeys(self.first_file(self.file, ())), *tables]

    def write_miniature(self, miniature: Miniature) -> None:
        kinds = {"vgnococo": ("vg", "{}"), "mscoco_train": ("train2014", "COCO_train2014_{:012d}")}
        for split, file in zip(self.split_names, self.first_file(self.file, ()), strict=True):
            sets = ("vg", "gqa", "visual7w") if split == "vgnococo" else ("mscoco", "vqa")
            of_val = (f"val2014{split.removeprefix('mscoco_')}", "COCO_val2014_{:012d}")
            part, form = kinds.get(split, of_val)
            data = []
            for n in miniature.numbers(part):
                asked = {name: [miniature.question(n, i) for i in range(2)] for name in sets[1:]}
                answers = {name: [{miniature.answer(n + i): 1.0} for i in range(2)] for name in sets[1:]}
                data.append(Datum(form.format(n), {sets[0]: [miniature.sentence(n)], **asked}, answers))
            miniature.ready(file)
            write_data(file, data)

    def data(self) -> dict[str, list[Datum]]:
        files = self.first_file(self.file, ())
        return {split: list(read_data(file)) for split, file in zip(self.split_names, files, strict=True)}


class LxmertSources(Grouped):
    """The same pre-training data out of the official files of COCO, Visual Genome, VQA and GQA.

    Images are grouped and divided as ``vlcli data aggregate`` does, which writes large data once and for all.

    Args:
        sources: by data set (``mscoco``, ``vg``, ``vqa``, ``gqa``, ``visual7w``), parameters that differ from its usual
            reader, or null to leave the set out.
        minival: file under the root that lists the images of minival; None: the usual places; without any list, all of
            COCO's validation images are minival.
    """

    def __init__(
        self,
        root: Path,
        *,
        sources: dict[str, dict[str, Any] | None] = {},  # noqa: B006
        minival: str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.sources, self.minival = sources, minival
        if unknown := sorted(set(self.split_names) - set(SPLITS)):
            raise DataError("There is no such split.", got=", ".join(unknown), expected=", ".join(SPLITS))

    def files(self) -> list[Path]:
        try:
            files = [file for source in find_sources(self.root, self.sources) for file in source.files]
        except DataError:  # the world may be made later; reading says what is wrong
            files = [self.root / "coco/annotations/captions_train.json"]
        return [*dict.fromkeys(files), *([] if self.known is None else [inside(self.root, self.known)])]

    def data(self) -> dict[str, list[Datum]]:
        sources = find_sources(self.root, self.sources)
        refuse_tests(sources)
        data = aggregate(sources, self.root, minival_file=self.minival, image_data=self.image_data)
        return {split: list(data[split].values()) for split in self.split_names}


def read_data(file: Path) -> Iterator[Datum]:
    """Reads the images of one of LXMERT's files. Raises DataError: it is of another form."""
    for number, row in enumerate(read_json(file, list)):
        where = f"{file}[{number}]"
        sentences = _lists(json_value(row, "sentf", dict, where), str, f"{where}.sentf")
        labels = {"labelf": row.get("labelf") or {}}
        answers = _lists(json_value(labels, "labelf", dict, where), dict, f"{where}.labelf")
        for name, scores in answers.items():
            if len(scores) != len(sentences.get(name, ())):
                got = f"{len(scores)} labels for {len(sentences.get(name, ()))} sentences"
                raise DataError("Labels and sentences differ in number.", where=f"{where}.labelf.{name}", got=got)
        yield Datum(str(json_value(row, "img_id", (str, int), where)), sentences, answers)


def _lists(by_set: dict[str, Any], kind: type, where: str) -> dict[str, list[Any]]:
    for name, rows in by_set.items():
        if not isinstance(rows, list) or not all(isinstance(row, kind) for row in rows):
            raise DataError("A list is malformed.", where=f"{where}.{name}", got=str(rows)[:80])
    return {str(name): rows for name, rows in by_set.items()}


def write_data(file: Path, data: Iterable[Datum]) -> None:
    """Writes LXMERT's form row by row beside the file, then renames. Raises VlcliError: it cannot be written."""
    with writing(file), written(file) as beside, beside.open("w", encoding="utf-8") as out:
        out.write("[")
        for number, datum in enumerate(data):
            row = {"img_id": datum.image, "labelf": datum.answers, "sentf": datum.sentences}
            out.write((",\n" if number else "\n") + json.dumps(row, ensure_ascii=False))
        out.write("\n]\n")


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Makes the file's folder. Raises VlcliError in place of an OSError while writing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise VlcliError("The file could not be written.", where=str(file), got=error.strerror or str(error)) from error
