"""NLVR2: statements about two pictures, as published (JSON lines) or in LXMERT's list."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import value
from vlcli.data.miniature import Miniature
from vlcli.data.readers.coco import BoxesBeside
from vlcli.data.readers.split_file import json_rows
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
        split: train, dev, test1 or test2.
        images: folder of the pictures; they are found in it and in its subfolders.
        boxes: COCO instances file of the pictures, for regions at given boxes; None: ``nlvr2/instances_{split}.json``
            where it is there.
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

    def __init__(self, root: Path, *, images: str = "nlvr2/images", **options: Any) -> None:
        super().__init__(root, images=images, **options)

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        tables = [
            table
            for table in folder.tables("*.json", "*.jsonl")
            if {"identifier", "label"} <= set(table.columns) and {"synset", "left_url", "img0"} & set(table.columns)
        ]
        if not tables:
            return []
        text = "sentence" if "sentence" in tables[0].columns else "sent"
        columns = {"image": ["{identifier}-img0", "{identifier}-img1"], "text": text, "label": "label"}
        data = Recognised("pairs", {"name": "nlvr2"}, [folder.name(table.path) for table in tables], columns)
        data.name_files().entry["images"] = "images"
        return [folder.with_images(data, [name for table in tables for row in table.rows for name in _images(row)])]

    def write_miniature(self, miniature: Miniature) -> None:
        for split, file in zip(self.split_names, self.files(), strict=True):
            names = [f"{split}-{n}-0" for n in miniature.numbers(f"nlvr2-{split}")]
            for name in names:
                for side in (0, 1):
                    miniature.picture(self.image_folder / f"{name}-img{side}.png")
            rows = (
                {
                    "identifier": f"{name}-{i}",
                    "sentence": miniature.sentence(n, i),
                    "label": str(i == n % 2),
                    "synset": "x",
                }
                for n, name in enumerate(names)
                for i in range(2)
            )
            miniature.write(file, rows)

    def read_file(self, file: Path) -> Iterator[Example]:
        for where, row in json_rows(file):
            identifier = value(row, "identifier", str, where)
            if "-" not in identifier:
                expected = "such as dev-850-0-0"
                raise DataError("The identifier is not NLVR2's.", where=where, got=identifier, expected=expected)
            text = value(row, "sentence" if "sentence" in row else "sent", str, where).strip()
            targets: dict[str, Any] = {}
            if "label" in row:
                targets["label"] = LABELS.get(str(row["label"]).lower())
                if targets["label"] is None:
                    got, expected = repr(row["label"]), '"True" or "False"'
                    raise DataError("The label is neither true nor false.", where=where, got=got, expected=expected)
            if "kind" in row:
                targets["kind"] = str(row["kind"])
            yield Example(identifier, text, _images(row), targets=targets)


def _images(row: dict[str, Any]) -> list[str]:
    stem = str(row.get("identifier")).rpartition("-")[0]
    return [str(row.get(f"img{side}", f"{stem}-img{side}")) for side in (0, 1)]
