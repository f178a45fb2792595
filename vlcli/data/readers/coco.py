"""COCO's files: captions and instances (Lin et al. 2014; Chen et al. 2015)."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal

import numpy as np

from vlcli.data import Example, Folder, Recognised, Truth
from vlcli.data.checks import by_id, twice
from vlcli.data.files import first_object, grouped, read_json, value
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.data.recognition.recognised import split_names
from vlcli.errors import DataError, shown
from vlcli.images.boxes import NO_AREA, BoxList, Index, attribute_product


class _Coco(SplitFileReader):
    """Base of readers of files with the list ``images``."""

    _kinds: Mapping[Any, str] = MappingProxyType({})  # names of the categories by their numbers

    @classmethod
    def _recognise(cls, folder: Folder, kind: str, name: str, columns: dict[str, Any], lists: str) -> list[Recognised]:
        said, images = columns.get("text") or columns.get("boxes") or columns["label"], {}
        for file, content in folder.documents():
            if isinstance(content, dict) and isinstance(content.get(lists), list):
                fields = first_object(content.get("annotations"))
                boxless = "boxes" in columns or "bbox" not in fields
                if {"image_id", said} <= fields.keys() and boxless and first_object(content.get("images")):
                    images[file] = [_file_name(row) for row in content["images"] if isinstance(row, dict)]
        if not images:
            return []
        kinds = list(grouped((split_names([file])[0] if kind == "boxes" else "", file) for file in images).values())
        kinds.sort(key=lambda files: "instances" not in files[0])
        listed = {one for file in kinds[0] for one in images[file]}  # COCO has keypoints of the same pictures
        again = [file for files in kinds[1:] for file in files if 2 * len(listed & {*images[file]}) > len(images[file])]
        data = Recognised(kind, {"name": name}, [file for file in images if file not in again], columns).name_files()
        data.unused += [f"{file}: other annotations of the pictures of {data.where}" for file in again]
        images = {file: images[file] for file in data.files}
        data.files += again
        return [folder.with_images(data, [name for names in images.values() for name in names])]

    def file_names(self, content: dict[str, Any], where: Path) -> dict[Any, str]:
        rows = by_id(value(content, "images", list, str(where)), "id", f"{where}: images")
        return {key: _file_name(row) for key, row in rows.items()}

    def miniature_images(self, file: Path, miniature: Miniature) -> dict[int, str]:
        year = file.stem.rpartition("_")[2]
        part = {"val2014": "val2014-val"}.get(year, year if year[-1:].isdigit() else str(file))
        folder, start = (year, f"COCO_{year}_") if year.endswith("2014") else ("", "")
        return miniature.pictures(part, self.image_folder / folder, f"{start}{{:012d}}.jpg", 2 * PICTURES)

    def image_of(self, names: dict[Any, str], row: dict[str, Any], where: str) -> str:
        number = value(row, "image_id", (int, str), where)
        if number not in names:
            what = "An annotation speaks of an image that the file does not list."
            raise DataError(what, where=where, got=f"image_id {number}")
        return self.picture(names[number])


def _file_name(row: dict[str, Any]) -> str:
    return str(row.get("file_name") or f"{str(row.get('id', '')).zfill(12)}.jpg")


class CocoCaptions(_Coco):
    """Images with captions in COCO's format, one example a caption.

    Args:
        file: annotation file under the root, e.g. ``annotations/captions_train2014.json``; None: the usual places.
        images: folder that the file names are relative to.
        captions: every caption, the first of each image, or none: the images alone (``image_info_test2014.json``).
    """

    paper: ClassVar[str] = "Chen et al. 2015, Microsoft COCO Captions"
    usual: ClassVar[tuple[str, ...]] = tuple(
        f"{folder}annotations/captions_{{split}}{year}.json"
        for year in ("", "2017", "2014")
        for folder in ("coco/", "")
    )

    def __init__(self, root: Path, *, captions: Literal["all", "first", "none"] = "all", **options: Any) -> None:
        super().__init__(root, **options)
        self.captions = captions
        self._file_of: dict[str, Path] = {}

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        return cls._recognise(folder, "captions", "coco-captions", {"image": "file_name", "text": "caption"}, "images")

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        names = self.miniature_images(file, miniature)
        numbers = [(n, i) for n in names for i in range(2)]
        notes = [{"id": 10 * n + i, "image_id": n, "caption": miniature.sentence(n, i)} for n, i in numbers]
        rows = {} if self.captions == "none" else {"annotations": notes}
        return {"images": miniature.instances(names)["images"], **rows}

    def read_file(self, file: Path) -> Iterator[Example]:
        content = read_json(file)
        names = self.file_names(content, file)
        if self.captions == "none":
            yield from (Example(name, None, [name]) for name in map(self.picture, names.values()))
            return
        seen = set()
        for number, row in enumerate(value(content, "annotations", list, str(file))):
            where = f"{file}: annotations[{number}]"
            image = self.image_of(names, row, where)
            if self.captions == "first" and image in seen:
                continue
            seen.add(image)
            key = str(row.get("id", number))
            if len(self.split_names) > 1 and self._file_of.setdefault(key, file) != file:
                key = f"{file.stem}:{key}"  # the numbers begin anew in another file
            yield Example(key, value(row, "caption", str, where).strip(), [image], text_key=key)


class CocoClasses(_Coco):
    """Images with categories and no boxes, in COCO's format (iNaturalist, iWildCam), one example an annotation.

    Target: ``label``, from 0 in the order of ``categories``.

    Args:
        file: annotation file under the root; None: ``{split}2019.json`` and the like.
        images: folder that the file names are relative to.
    """

    paper: ClassVar[str] = "Van Horn et al. 2018, The iNaturalist Species Classification and Detection Dataset"
    usual: ClassVar[tuple[str, ...]] = tuple(f"{{split}}{year}.json" for year in ("2019", "2018", "2017", ""))

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        columns = {"image": "file_name", "label": "category_id"}
        return cls._recognise(folder, "labels", "coco-classes", columns, "categories")

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        content = miniature.instances(self.miniature_images(file, miniature))
        keys = ("id", "image_id", "category_id")
        notes = {row["image_id"]: {key: row[key] for key in keys} for row in content["annotations"]}
        return content | {"annotations": list(notes.values())}

    def read_file(self, file: Path) -> Iterator[Example]:
        content = read_json(file)
        names, kinds = self.file_names(content, file), _kinds(content, file)
        if self._kinds not in ({}, kinds):
            what, got = "The files list different categories.", f"{len(kinds)} and {len(self._kinds)}"
            raise DataError(what, where=str(file), got=got, expected="the same categories in each part, in one order")
        self._kinds, labels = kinds, {key: n for n, key in enumerate(kinds)}
        for number, row in enumerate(value(content, "annotations", list, str(file))):
            where = f"{file}: annotations[{number}]"
            if (kind := row.get("category_id")) not in labels:
                raise DataError("The file lists no such category.", where=where, got=f"category_id {kind}")
            image = self.image_of(names, row, where)
            yield Example(f"{image}#{row.get('id', number)}", None, [image], targets={"label": labels[kind]})

    def label_names(self) -> list[str]:
        self.examples()
        return list(self._kinds.values())


def _kinds(content: dict[str, Any], file: Path) -> dict[Any, str]:
    rows = by_id(value(content, "categories", list, str(file)), "id", f"{file}: categories")
    return {key: str(row.get("name", key)) for key, row in rows.items()}


class CocoInstances(_Coco):
    """Images with labelled boxes in COCO's format, one example an image.

    Classes are numbered from 0 in the order of ``categories``. Of listed ``attributes`` (ids in
    ``attribute_categories``), a box has one: the product over their supercategories, such as "red small". Boxes whose
    width or height is not above 0 are left out and counted.

    Args:
        images: folder that the file names are relative to.
        crowds: keep crowd boxes.
        empty: keep images without boxes: true of complete files, where no annotation means no object.
    """

    paper: ClassVar[str] = "Lin et al. 2014, Microsoft COCO"
    usual: ClassVar[tuple[str, ...]] = tuple(text.replace("captions", "instances") for text in CocoCaptions.usual)
    recognise_order: ClassVar[int] = 1  # behind readers that use such files for more, as refcoco does

    def __init__(self, root: Path, *, crowds: bool = False, empty: bool = False, **options: Any) -> None:
        super().__init__(root, **options)
        self.crowds, self.empty = crowds, empty
        self._boxes: dict[str, BoxList] = {}
        self._rows: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {}
        self._attributes: list[str] = []

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        columns = {"image": "file_name", "boxes": "bbox", "label": "category_id"}
        return cls._recognise(folder, "boxes", "coco-instances", columns, "categories")

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        return miniature.instances(self.miniature_images(file, miniature))

    def boxes(self) -> dict[str, BoxList]:
        return {name: self._boxes[name] for example in self.examples() for name in example.images}

    def class_names(self) -> list[str]:
        self.examples()
        return list(self._kinds.values())

    def class_ids(self) -> list[int]:
        self.examples()
        return list(self._kinds)

    def truth(self) -> Truth:  # crowds too: what is found inside them does not count
        names = dict.fromkeys(name for example in self.examples() for name in example.images)
        kinds = [{"id": key, "name": name} for key, name in self._kinds.items()]
        images = [self._rows[name][0] for name in names]
        keys = ("image_id", "category_id", "bbox", "area", "iscrowd")
        notes = [{key: note[key] for key in keys if key in note} for name in names for note in self._rows[name][1]]
        numbers = {name: self._rows[name][0]["id"] for name in names}
        return Truth({"images": images, "annotations": notes, "categories": kinds}, numbers)

    def attribute_names(self) -> list[str]:
        self.examples()
        return self._attributes

    def read_file(self, file: Path) -> Iterator[Example]:
        content = read_json(file)
        names, self._kinds = self.file_names(content, file), _kinds(content, file)
        numbers = {key: number for number, key in enumerate(self._kinds)}
        attribute, self._attributes = attribute_product(content.get("attribute_categories", []))
        notes: dict[str, list[dict[str, Any]]] = {}
        rows = by_id(value(content, "annotations", list, str(file)), "id", f"{file}: annotations", needed=False)
        for number, row in enumerate(rows.values()):
            where = f"{file}: annotations[{number}]"
            notes.setdefault(self.image_of(names, row, where), []).append(row)
            box = value(row, "bbox", list, where)
            if len(box) != 4 or not all(isinstance(side, int | float) and abs(side) < np.inf for side in box):
                expected = "[x, y, width, height]"
                raise DataError("A box needs four numbers.", where=where, got=shown(box), expected=expected)
            if value(row, "category_id", (int, str), where) not in numbers:
                raise DataError("The category is not listed.", where=where, got=f"category_id {row['category_id']}")
        images: dict[str, dict[str, Any]] = {}
        for row in content["images"]:
            first = images.setdefault(name := self.picture(_file_name(row)), row)
            if first["id"] != row["id"]:
                raise twice("file_name", name, self._where(), f"images {first['id']} and {row['id']}")
        for image in dict.fromkeys([*notes, *(images if self.empty else ())]):  # first those with annotations
            self._rows[image] = (images[image], notes.get(image, []))
            if self._keep(image, numbers, attribute):
                yield Example(image, None, [image])

    def _keep(self, image: str, numbers: dict[Any, int], attribute: Index | None) -> bool:
        row, notes = self._rows[image]
        wanted = [note for note in notes if self.crowds or not note.get("iscrowd")]
        kept = [note for note in wanted if min(note["bbox"][2:]) > 0]
        if without := len(wanted) - len(kept):
            self.left_out[NO_AREA] += without
        if not kept and not self.empty:
            return False
        boxes = np.array([note["bbox"] for note in kept], np.float32).reshape(-1, 4)
        boxes[:, 2:] += boxes[:, :2]
        height, width = row.get("height"), row.get("width")
        self._boxes[image] = BoxList(
            boxes,
            classes=np.array([numbers[note["category_id"]] for note in kept], np.int64),
            attributes=attribute and np.array([attribute(note.get("attributes", [])) for note in kept], np.int64),
            box_ids=np.array([str(note.get("id", number)) for number, note in enumerate(kept)], np.str_),
            size=(int(height), int(width)) if height and width else None,
        )
        return True


class BoxesBeside(SplitFileReader):
    """Base of readers whose pictures may have a COCO instances file, one a split.

    Args:
        boxes: COCO instances file, for regions at given boxes; None: the usual one, if it exists.

    Attributes:
        usual_boxes: path of the usual one under the root; ``{split}`` is filled in.
    """

    usual_boxes: ClassVar[str] = ""

    def __init__(self, root: Path, *, boxes: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.box_file = boxes

    def boxes(self) -> dict[str, BoxList]:
        boxes = {name: one for reader in self._instances() for name, one in reader.boxes().items()}
        used = dict.fromkeys(name for example in self.examples() for name in example.images)
        return {name: boxes[name] for name in used if name in boxes}

    def class_names(self) -> list[str]:
        return next((reader.class_names() for reader in self._instances()), [])

    def class_ids(self) -> list[int]:
        return next((reader.class_ids() for reader in self._instances()), [])

    def attribute_names(self) -> list[str]:
        return next((reader.attribute_names() for reader in self._instances()), [])

    def _instances(self) -> Iterator[CocoInstances]:
        for file in self.first_file(self.box_file, (self.usual_boxes,)):
            if self.box_file is not None or file.is_file():
                reader = CocoInstances(self.root, file=str(file.absolute()), images=str(self.image_folder))
                reader.ids = self.ids
                yield reader
