"""COCO's files: captions and instances (Lin et al. 2014; Chen et al. 2015)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vlcli.data.files import first_object, read_json, value
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.data.truth import Truth
from vlcli.data.unique import by_id, twice
from vlcli.errors import DataError, shown
from vlcli.images.boxes import NO_AREA, BoxList, Index, attribute_product


class _Coco(Reader):
    """What captions and instances share: the ``images`` list."""

    @classmethod
    def _recognise(cls, folder: Folder, kind: str, name: str, columns: dict[str, Any], lists: str) -> list[Recognised]:
        """The files whose annotations have the fields of ``columns``, and which list images and ``lists``."""
        rows: list[Any] = []
        files = []
        for file, content in folder.documents():
            if isinstance(content, dict) and isinstance(content.get(lists), list):
                fields = first_object(content.get("annotations"))
                if {"image_id", columns.get("text", "bbox")} <= fields.keys() and first_object(content.get("images")):
                    files.append(file)
                    rows += content["images"]
        if not files:
            return []
        found = Recognised(kind, {"name": name}, files, columns).name_files()
        return [folder.with_images(found, [_file_name(row) for row in rows if isinstance(row, dict)])]

    def file_names(self, content: dict[str, Any], where: Path) -> dict[Any, str]:
        """File name by the number of the image."""
        rows = by_id(value(content, "images", list, str(where)), "id", f"{where}: images")
        return {key: _file_name(row) for key, row in rows.items()}

    def image_of(self, names: dict[Any, str], row: dict[str, Any], where: str) -> str:
        """The image id an annotation speaks of."""
        number = value(row, "image_id", (int, str), where)
        if number not in names:
            raise DataError(
                "An annotation speaks of an image that the file does not list.", where=where, got=f"image_id {number}"
            )
        return self.picture(names[number])


def _file_name(row: dict[str, Any]) -> str:
    return str(row.get("file_name") or f"{str(row['id']).zfill(12)}.jpg")


class CocoCaptions(_Coco):
    """Images with captions in COCO's format, one example a caption.

    Args:
        root: data root.
        split: which file(s); fills ``{split}``.
        file: annotation file under the root, e.g. ``annotations/captions_train2014.json``; None: the usual places.
        images: folder that the file names are relative to.
        captions: every caption, the first of each image, or none: the images alone (``image_info_test2014.json``).
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Chen et al. 2015, Microsoft COCO Captions"
    usual: ClassVar[tuple[str, ...]] = (
        "coco/annotations/captions_{split}.json",
        "annotations/captions_{split}.json",
        "coco/annotations/captions_{split}2017.json",
        "annotations/captions_{split}2017.json",
        "annotations/captions_{split}2014.json",
    )

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "images",
        captions: Literal["all", "first", "none"] = "all",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file, self.captions = file, captions

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Files with ``images`` and ``annotations`` that have a ``caption``."""
        columns = {"image": "file_name", "text": "caption"}
        return cls._recognise(folder, "captions", "coco-captions", columns, "images")

    def files(self) -> list[Path]:
        """The caption files."""
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def read(self) -> list[Example]:
        """One example per caption; key and text key are the annotation's id. Without captions, one per image."""
        return [example for file in self.files() for example in self._read_file(file)]

    def _read_file(self, file: Path) -> list[Example]:
        content = read_json(file)
        names = self.file_names(content, file)
        if self.captions == "none":
            return [Example(name, None, [name]) for name in map(self.picture, names.values())]
        examples, seen = [], set()
        for place, row in enumerate(value(content, "annotations", list, str(file))):
            where = f"{file}: annotations[{place}]"
            image = self.image_of(names, row, where)
            if self.captions == "all" or image not in seen:
                key = str(row.get("id", place))
                examples.append(Example(key, value(row, "caption", str, where).strip(), [image], text_key=key))
            seen.add(image)
        return examples


class CocoInstances(_Coco):
    """Images with labelled boxes in COCO's format, one example an image.

    ``boxes()`` gives them for extraction or training; classes are numbered from 0 in the order of ``categories``. Where
    annotations list ``attributes`` (ids in ``attribute_categories``), one attribute a box is made of them: the product
    over their supercategories, such as "red small". A box whose width or height is not above 0 is left out and counted;
    its picture keeps the others.

    Args:
        root: data root.
        split: which file(s); fills ``{split}``.
        file: annotation file under the root; None: the usual places.
        images: folder that the file names are relative to.
        crowds: keep crowd boxes.
        empty: keep images without boxes too: true of complete files, where no annotation means no object.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Lin et al. 2014, Microsoft COCO"
    usual: ClassVar[tuple[str, ...]] = tuple(text.replace("captions", "instances") for text in CocoCaptions.usual)

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "images",
        crowds: bool = False,
        empty: bool = False,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file, self.crowds, self.empty = file, crowds, empty
        self._boxes: dict[str, BoxList] = {}
        self._rows: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        self._classes: list[str] = []
        self._class_ids: list[int] = []
        self._attributes: list[str] = []

    recognise_order: ClassVar[int] = 1  # behind readers that use such files for more, as refcoco does

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Files with ``images``, ``categories`` and ``annotations`` that have a ``bbox``."""
        columns = {"image": "file_name", "boxes": "bbox", "label": "category_id"}
        return cls._recognise(folder, "boxes", "coco-instances", columns, "categories")

    def files(self) -> list[Path]:
        """The instance files."""
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def read(self) -> list[Example]:
        """One example per image that has a box; its boxes are in ``boxes()``."""
        return [Example(name, None, [name]) for file in self.files() for name in self._read_file(file)]

    def boxes(self) -> dict[str, BoxList]:
        """Boxes of the chosen images by image id."""
        return {name: self._boxes[name] for example in self.examples() for name in example.images}

    def class_names(self) -> list[str]:
        """The categories, in the file's order."""
        self.examples()
        return self._classes

    def class_ids(self) -> list[int]:
        """The categories' own ids, in the file's order."""
        self.examples()
        return self._class_ids

    def truth(self) -> Truth:
        """The file's own images, annotations (crowds too: what is found inside them does not count) and categories."""
        names = dict.fromkeys(name for example in self.examples() for name in example.images)
        kinds = [{"id": i, "name": name} for i, name in zip(self._class_ids, self._classes, strict=True)]
        images = [self._rows[name][0] for name in names]
        keys = ("image_id", "category_id", "bbox", "area", "iscrowd")
        notes = [{key: note[key] for key in keys if key in note} for name in names for note in self._rows[name][1]]
        numbers = {name: self._rows[name][0]["id"] for name in names}
        return Truth({"images": images, "annotations": notes, "categories": kinds}, numbers)

    def attribute_names(self) -> list[str]:
        """The attributes' products, empty where the file has none."""
        self.examples()
        return self._attributes

    def _read_file(self, file: Path) -> list[str]:
        content = read_json(file)
        names = self.file_names(content, file)
        kinds = by_id(value(content, "categories", list, str(file)), "id", f"{file}: categories")
        number = {key: place for place, key in enumerate(kinds)}
        self._classes = [str(row.get("name", key)) for key, row in kinds.items()]
        self._class_ids = list(number)
        attribute, self._attributes = attribute_product(content.get("attribute_categories", []))
        found: dict[str, list[dict[str, Any]]] = {}
        notes = by_id(value(content, "annotations", list, str(file)), "id", f"{file}: annotations", needed=False)
        for place, row in enumerate(notes.values()):
            where = f"{file}: annotations[{place}]"
            image = self.image_of(names, row, where)
            _check_box(row, number, where)
            found.setdefault(image, []).append(row)
        return [image for image in self._listed(content, found) if self._keep(image, found, number, attribute)]

    def _listed(self, content: dict[str, Any], found: dict[str, list[dict[str, Any]]]) -> list[str]:
        """Images in the order of their first annotation; then those without, where they are wanted."""
        rows: dict[str, dict[str, Any]] = {}
        for row in content["images"]:
            first = rows.setdefault(name := self.picture(_file_name(row)), row)
            if first["id"] != row["id"]:
                raise twice("file_name", name, self._where(), f"images {first['id']} and {row['id']}")
        names = [*found, *(name for name in rows if name not in found)] if self.empty else list(found)
        self._rows |= {name: (rows[name], found.get(name, [])) for name in names}
        return names

    def _keep(self, image: str, found: dict[str, list[dict[str, Any]]], number: Any, attribute: Index | None) -> bool:
        """Note an image's boxes; whether it has any, or need not."""
        row, notes = self._rows[image]
        wanted = [note for note in notes if self.crowds or not note.get("iscrowd")]
        kept = [note for note in wanted if min(note["bbox"][2:]) > 0]
        if len(kept) < len(wanted):
            self.left_out[NO_AREA] += len(wanted) - len(kept)
        if kept or self.empty:
            self._boxes[image] = _box_list(kept, number, attribute, (row.get("height"), row.get("width")))
        return bool(kept) or self.empty


def _check_box(row: dict[str, Any], number: dict[Any, int], where: str) -> None:
    box = value(row, "bbox", list, where)
    if len(box) != 4 or not all(isinstance(side, int | float) and abs(side) < np.inf for side in box):
        raise DataError("A box needs four numbers.", where=where, got=shown(box), expected="[x, y, width, height]")
    if value(row, "category_id", (int, str), where) not in number:
        raise DataError("The category is not listed.", where=where, got=f"category_id {row['category_id']}")


def _box_list(
    rows: list[dict[str, Any]], number: dict[Any, int], attribute: Index | None, size: tuple[Any, Any]
) -> BoxList:
    boxes = np.array([row["bbox"] for row in rows], np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    looks = None if attribute is None else [attribute(row.get("attributes", [])) for row in rows]
    return BoxList(
        boxes,
        classes=np.array([number[row["category_id"]] for row in rows], np.int64),
        attributes=None if looks is None else np.array(looks, np.int64),
        box_ids=np.array([str(row.get("id", place)) for place, row in enumerate(rows)], np.str_),
        size=(int(size[0]), int(size[1])) if size[0] and size[1] else None,
    )
