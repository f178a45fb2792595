"""NLVR and NLVR2: statements about a drawing, and about two pictures (JSON lines as published, or LXMERT's list)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Folder, Miniature, Recognised
from vlcli.data.files import value
from vlcli.data.readers.coco import BoxesBeside
from vlcli.data.readers.split_file import SplitFileReader, json_rows
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
            rows = []
            for n in miniature.numbers(f"nlvr2-{split}"):
                for side in (0, 1):
                    miniature.picture(self.image_folder / f"{split}-{n}-0-img{side}.png")
                for i in range(2):
                    said = {"sentence": miniature.sentence(n, i), "label": str(i == n % 2), "synset": "x"}
                    rows.append({"identifier": f"{split}-{n}-0-{i}", **said})
            miniature.write(file, iter(rows))

    def read_file(self, file: Path) -> Iterator[Example]:
        for where, row in json_rows(file):
            identifier = value(row, "identifier", str, where)
            if "-" not in identifier:
                expected = "such as dev-850-0-0"
                raise DataError("The identifier is not NLVR2's.", where=where, got=identifier, expected=expected)
            text = value(row, "sentence" if "sentence" in row else "sent", str, where).strip()
            yield Example(identifier, text, _images(row), targets=_targets(row, where))


class NLVR(SplitFileReader):
    """Statements that are true or false of a drawing of three boxes.

    Each drawing lies in the folder six times, with its boxes in every order. The key is the split with the published
    identifier (``dev-850-0``). Targets: ``label`` (1 true).

    Args:
        split: train, dev or test.
        order: the order of the boxes whose drawing is read, 0 to 5.
    """

    paper: ClassVar[str] = "Suhr et al. 2017, A Corpus of Natural Language for Visual Reasoning"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    usual: ClassVar[tuple[str, ...]] = tuple(
        f"{folder}{{split}}/{{split}}.json" for folder in ("nlvr/", "", "nlvr/nlvr/")
    )

    def __init__(self, root: Path, *, images: str = ".", order: int = 0, **options: Any) -> None:
        super().__init__(root, images=images, **options)
        self.order = order

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        fields = {"identifier", "sentence", "label", "structured_rep"}
        tables = [table for table in folder.tables("*.json") if fields <= set(table.columns)]
        if not tables:
            return []
        columns = {"image": "{split}-{identifier}-0", "text": "sentence", "label": "label"}
        record = Recognised("statements", {"name": "nlvr"}, [folder.name(table.path) for table in tables], columns)
        names = [_drawing(table.path.stem, row, 0) for table in tables for row in table.rows]
        return [folder.with_images(record.name_files(), names)]

    def write_miniature(self, miniature: Miniature) -> None:
        for split, file in zip(self.split_names, self.files(), strict=True):
            rows = []
            for n in miniature.numbers(f"nlvr-{split}"):
                rows.append(
                    {"identifier": f"{n}-0", "sentence": miniature.sentence(n), "label": str(n % 2 == 0).lower()}
                )
                miniature.picture(self.image_folder / f"{_drawing(split, rows[-1], self.order)}.png")
            miniature.write(file, iter(rows))

    def read(self) -> list[Example]:
        return [one for pair in zip(self.split_names, self.files(), strict=True) for one in self._read_split(*pair)]

    def _read_split(self, split: str, file: Path) -> Iterator[Example]:
        for where, row in json_rows(file):
            identifier, text = value(row, "identifier", str, where), value(row, "sentence", str, where).strip()
            image = _drawing(split, row, self.order)
            yield Example(f"{split}-{identifier}", text, [image], targets=_targets(row, where))


def _drawing(split: str, row: dict[str, Any], order: int) -> str:
    return f"{split}-{row.get('identifier')}-{order}"


def _targets(row: dict[str, Any], where: str) -> dict[str, Any]:
    targets: dict[str, Any] = {}
    if "label" in row:
        targets["label"] = LABELS.get(str(row["label"]).lower())
        if targets["label"] is None:
            got, expected = repr(row["label"]), '"True" or "False"'
            raise DataError("The label is neither true nor false.", where=where, got=got, expected=expected)
    if "kind" in row:
        targets["kind"] = str(row["kind"])
    return targets


def _images(row: dict[str, Any]) -> list[str]:
    stem = str(row.get("identifier")).rpartition("-")[0]
    return [str(row.get(f"img{side}", f"{stem}-img{side}")) for side in (0, 1)]
