"""NLVR2: statements about two pictures, as published (JSON lines) or in LXMERT's list."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import read_json, read_lines, read_text, value
from vlcli.data.readers.beside import BoxesBeside
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError

LABELS = {"true": 1, "1": 1, "false": 0, "0": 0}


class NLVR2(BoxesBeside):
    """Statements that are true or false of two pictures.

    The key is the published identifier (``dev-850-0-0``); the pictures are its stem with ``-img0`` and ``-img1``.
    Targets: ``label`` (1 true), and ``kind`` where the file names one.

    Args:
        root: data root.
        split: train, dev, test1 or test2.
        file: annotation file under the root; None: the usual places.
        images: folder of the pictures; they are found in it and in its subfolders.
        boxes: COCO instances file of the pictures, for regions at given boxes; None: ``nlvr2/instances_{split}.json``
            where it is there.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Suhr et al. 2019, A Corpus for Reasoning about Natural Language Grounded in Photographs"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test1", "test2")
    usual_boxes: ClassVar[str] = "nlvr2/instances_{split}.json"
    usual: ClassVar[tuple[str, ...]] = (
        "nlvr2/{split}.json",
        "nlvr2/data/{split}.json",
        "data/{split}.json",
        "{split}.json",
    )

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "nlvr2/images",
        boxes: str | None = None,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file, self.box_file = file, boxes

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Tables with ``identifier``, ``label`` and fields that only NLVR2 and LXMERT's lists of it have."""
        tables = [
            table
            for table in folder.tables("*.json", "*.jsonl")
            if {"identifier", "label"} <= set(table.columns) and {"synset", "left_url", "img0"} & set(table.columns)
        ]
        if not tables:
            return []
        names = [_images(row) for table in tables for row in table.rows]
        text = "sentence" if "sentence" in tables[0].columns else "sent"
        columns = {"image": ["{identifier}-img0", "{identifier}-img1"], "text": text, "label": "label"}
        found = Recognised("pairs", {"name": "nlvr2"}, [folder.name(table.path) for table in tables], columns)
        found.name_files().entry["images"] = "images"
        return [folder.with_images(found, [name for pair in names for name in pair])]

    def files(self) -> list[Path]:
        """The statement files."""
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def read(self) -> list[Example]:
        """One example a statement."""
        return [_example(row, where) for file in self.files() for where, row in _rows(file)]


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if read_text(file).lstrip()[:1] == "[":
        for place, row in enumerate(read_json(file, list)):
            yield f"{file}[{place}]", row
        return
    yield from read_lines(file)


def _example(row: dict[str, Any], where: str) -> Example:
    identifier = value(row, "identifier", str, where)
    if "-" not in identifier:
        raise DataError("The identifier is not NLVR2's.", where=where, got=identifier, expected="such as dev-850-0-0")
    images = _images(row)
    text = value(row, "sentence" if "sentence" in row else "sent", str, where).strip()
    targets: dict[str, Any] = {"label": _label(row["label"], where)} if "label" in row else {}
    if "kind" in row:
        targets["kind"] = str(row["kind"])
    return Example(identifier, text, images, targets=targets)


def _images(row: dict[str, Any]) -> list[str]:
    """The ids of the two pictures."""
    stem = str(row.get("identifier")).rpartition("-")[0]
    return [str(row.get(f"img{side}", f"{stem}-img{side}")) for side in (0, 1)]


def _label(given: Any, where: str) -> int:
    if str(given).lower() not in LABELS:
        raise DataError(
            "The label is neither true nor false.", where=where, got=repr(given), expected='"True" or "False"'
        )
    return LABELS[str(given).lower()]
