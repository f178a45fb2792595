"""Given boxes: read them from the files the field keeps them in, and find an image's among them.

An image is named by :func:`image_id`, its file name without folders and extension, everywhere in
vlcli. Files that name images by number only (COCO results) use that number; ``boxes_for`` then
matches ``COCO_val2014_000000000042`` with ``42``.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.errors import DataError

NO_AREA = "boxes of no area (width or height not above 0)"
FORMATS = ("coco-instances", "coco-results", "per-image", "mattnet", "npz")
Index = Callable[[Any], int]
_NUMBER = re.compile(r"(\d+)$")


def image_id(path: str | Path) -> str:
    """The name of an image: the last part of its path without the extension.

    >>> image_id("train2014/COCO_train2014_000000000009.jpg")
    'COCO_train2014_000000000009'
    """
    name = str(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


@dataclass
class BoxList:
    """Boxes of one image.

    Attributes:
        boxes: pixels x1 y1 x2 y2 (N, 4), float32.
        scores: confidence of each (N,).
        classes: class id of each (N,).
        attributes: attribute id of each (N,).
        box_ids: their names (N,), strings.
        size: height and width of the image the boxes were measured in.
        name: the image's file as the boxes' file writes it.

    Raises:
        DataError: a coordinate is not finite. Such boxes must go no further: RoIAlign reads outside its map for them.
    """

    boxes: np.ndarray
    scores: np.ndarray | None = None
    classes: np.ndarray | None = None
    attributes: np.ndarray | None = None
    box_ids: np.ndarray | None = None
    size: tuple[int, int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        good = np.isfinite(self.boxes)
        if not good.all():
            row = int(np.argmin(good.reshape(len(self.boxes), -1).all(axis=1)))
            name = "" if self.box_ids is None else f" ({self.box_ids[row]})"
            got = f"box {row}{name}: {np.asarray(self.boxes[row]).tolist()}"
            raise DataError("a box is not finite", got=got, expected="x1 y1 x2 y2 in pixels, all of them finite")

    def __len__(self) -> int:
        return int(self.boxes.shape[0])

    def rows(self, index: np.ndarray) -> BoxList:
        """The boxes at ``index``, in that order."""
        return replace(
            self,
            boxes=self.boxes[index],
            scores=None if self.scores is None else self.scores[index],
            classes=None if self.classes is None else self.classes[index],
            attributes=None if self.attributes is None else self.attributes[index],
            box_ids=None if self.box_ids is None else self.box_ids[index],
        )

    def top(self, limit: int | None) -> BoxList:
        """The ``limit`` most confident boxes, best first; in file order where there are no scores."""
        order = np.arange(len(self)) if self.scores is None else np.argsort(-self.scores, kind="stable")
        return self.rows(order[:limit] if limit else order)

    def with_area(self) -> BoxList:
        """The boxes whose corners are in order: no network can learn from a region of no width or height."""
        good = (self.boxes[:, 2:] > self.boxes[:, :2]).all(axis=1)
        return self if good.all() else self.rows(np.flatnonzero(good))

    def clipped(self, size: tuple[int, int]) -> BoxList:
        """The boxes cut to an image of ``size`` (height, width)."""
        height, width = size
        limit = np.array([width, height, width, height], dtype=np.float32)
        return replace(self, boxes=np.clip(self.boxes, 0, limit).astype(np.float32), size=size)


class BoxFile(dict[str, BoxList]):
    """Boxes by image id, with what their file says of its labels.

    Attributes:
        categories: name by class id, in the file's order; empty where it lists none.
        attributes: names that ``attributes`` of the boxes number; empty where it lists none.
        without_area: how many boxes were left out because their width or height is not above 0.
    """

    def __init__(self, boxes: Mapping[str, BoxList], categories: dict[int, str], attributes: tuple[str, ...]) -> None:
        super().__init__(boxes)
        self.categories, self.attributes, self.without_area = categories, attributes, 0

    def with_area(self) -> BoxFile:
        """Leave out the boxes of no area and the images that have no other; counts them."""
        for name, boxes in list(self.items()):
            self[name] = boxes.with_area()
            self.without_area += len(boxes) - len(self[name])
            if len(boxes) and not len(self[name]):
                del self[name]
        return self


def boxes_for(boxes: Mapping[str, BoxList], image: str) -> BoxList | None:
    """An image's boxes: under its id or the end of that path, else under the number that ends it; None without any.

    Boxes whose file names another folder than the id are another image's.
    """
    for name in path_ids(image) if "/" in image else [image]:
        if (found := boxes.get(name)) is not None and _same_folders(found.name, image):
            return found
    number = _NUMBER.search(image)
    found = boxes.get(str(int(number.group(1)))) if number else None
    return found if found is None or _same_folders(found.name, image) else None


def path_ids(picture: str | Path) -> list[str]:
    """The ids that a picture at a path may have: the ends of the path, the longest first, with and without ending."""
    *folders, last = str(picture).replace("\\", "/").split("/")
    starts = ["".join(f"{folder}/" for folder in folders[number:]) for number in range(len(folders) + 1)]
    return [start + name for start in starts for name in dict.fromkeys((last, image_id(last)))]


def _same_folders(file: str, image: str) -> bool:
    pairs = zip(file.replace("\\", "/").split("/")[-2::-1], image.split("/")[-2::-1], strict=False)
    return all(one == other for one, other in pairs)


def read_boxes(path: str | Path, format: str | None = None, *, crowds: bool = False) -> BoxFile:
    """Read a file of boxes; classes are the file's own ids (:mod:`vlcli.images.labels` numbers them from 0).

    Args:
        path: a JSON file or an ``.npz``. JSON: COCO instances, COCO results, MAttNet's detections (``image_id``,
            ``box`` as x y width height with the last pixel counted), or a list of one object per image with
            ``file_name``, ``width``, ``height``, ``boxes`` as x1 y1 x2 y2 and optionally ``scores``,
            ``category_ids``, ``attribute_ids``, ``box_ids``. An npz has one array (N, 4 to 6) per image:
            x1 y1 x2 y2 [score [class]].
        format: one of :data:`FORMATS`; by default it is recognised from the content.
        crowds: keep COCO's crowd boxes.

    Returns:
        Boxes by image id. Images that a file lists without any box are left out: a file does not say
        whether nothing was there or nobody looked.

    Raises:
        DataError: the file is missing, not of this format, or names two images alike.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise DataError("unknown format of boxes", where=str(path), got=format, expected=", ".join(FORMATS))
    try:
        if format == "npz" or (format is None and path.suffix == ".npz"):
            return BoxFile(_from_npz(path), {}, ()).with_area()
        content = json.loads(path.read_text(encoding="utf-8"))
        kind = format or _recognise(content)
        if kind == "coco-instances":
            return _from_instances(content, crowds).with_area()
        if kind == "mattnet":  # whose boxes of one pixel have a width of 0
            return BoxFile(_from_mattnet(content), {}, ())
        return BoxFile((_from_results if kind == "coco-results" else _from_images)(content), {}, ()).with_area()
    except DataError as error:  # of a box; this is the file that it is in
        raise DataError(error.what, where=str(path), got=error.got, expected=error.expected) from None
    except FileNotFoundError:
        raise DataError(
            "the file of boxes does not exist", where=str(path), hint="check the path given as boxes"
        ) from None
    except (ValueError, KeyError, TypeError, IndexError, OSError, RecursionError, zipfile.BadZipFile) as error:
        raise DataError(
            "the file of boxes cannot be read",
            where=str(path),
            got=f"{type(error).__name__}: {error}",
            expected=f"one of {', '.join(FORMATS)}",
        ) from None


def _recognise(content: Any) -> str:
    if isinstance(content, dict) and "annotations" in content and "images" in content:
        return "coco-instances"
    if isinstance(content, list) and content and isinstance(content[0], dict):
        if "bbox" in content[0]:
            return "coco-results"
        if "box" in content[0] and "image_id" in content[0]:
            return "mattnet"
        if "boxes" in content[0]:
            return "per-image"
    raise ValueError("neither COCO instances, COCO results, MAttNet's detections, nor a list of images with boxes")


def _corners(boxes: Iterable[Any]) -> np.ndarray:
    array = np.asarray(list(boxes), dtype=np.float64).reshape(-1, 4)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused, with its row, by BoxList
        return np.concatenate([array[:, :2], array[:, :2] + array[:, 2:]], axis=1).astype(np.float32)


def _from_instances(content: dict[str, Any], crowds: bool) -> BoxFile:
    rows: dict[Any, list[dict[str, Any]]] = {}
    for note in content["annotations"]:
        if "bbox" in note and (crowds or not note.get("iscrowd")):
            rows.setdefault(note["image_id"], []).append(note)
    result: list[BoxList] = []
    index, names = attribute_product(content.get("attribute_categories", []))
    for image in content["images"]:
        if notes := rows.get(image["id"]):
            size = (image["height"], image["width"]) if "height" in image else None
            name = image.get("file_name", str(image["id"]))
            result.append(replace(_with_looks(_annotated(notes, size), notes, index), name=name))
    categories = {row["id"]: str(row.get("name", row["id"])) for row in content.get("categories", [])}
    return BoxFile(_by_id(result), categories, tuple(names))


def _with_looks(boxes: BoxList, notes: list[dict[str, Any]], index: Index | None) -> BoxList:
    if index is None:
        return boxes
    return replace(boxes, attributes=np.array([index(note.get("attributes", [])) for note in notes], np.int64))


def attribute_product(categories: list[dict[str, Any]]) -> tuple[Index | None, list[str]]:
    """How a list of attribute ids becomes one number, and the names of these numbers; -1 where one is lacking.

    One of each supercategory is meant: "red small" is red of the colours and small of the sizes.
    """
    kinds: dict[str, list[dict[str, Any]]] = {}
    for row in categories:
        kinds.setdefault(str(row.get("supercategory", "")), []).append(row)
    if not kinds:
        return None, []
    names = [""]
    for rows in kinds.values():
        names = [f"{name} {row['name']}".strip() for name in names for row in rows]
    places = [{row["id"]: place for place, row in enumerate(rows)} for rows in kinds.values()]

    def index(ids: list[Any]) -> int:
        total = 0
        for known in places:
            found = [known[item] for item in ids if item in known]
            if len(found) != 1:
                return -1
            total = total * len(known) + found[0]
        return total

    return index, names


def _annotated(notes: list[dict[str, Any]], size: tuple[int, int] | None) -> BoxList:
    whole = {key: all(isinstance(note.get(key), int) for note in notes) for key in ("category_id", "attribute_id")}
    return BoxList(
        _corners(note["bbox"] for note in notes),
        scores=np.array([n["score"] for n in notes], np.float32) if all("score" in n for n in notes) else None,
        classes=np.array([n["category_id"] for n in notes], np.int64) if whole["category_id"] else None,
        attributes=np.array([n["attribute_id"] for n in notes], np.int64) if whole["attribute_id"] else None,
        box_ids=np.array([str(n["id"]) for n in notes]) if all("id" in n for n in notes) else None,
        size=size,
    )


def _from_results(content: list[dict[str, Any]]) -> dict[str, BoxList]:
    rows: dict[str, list[dict[str, Any]]] = {}
    for note in content:
        rows.setdefault(str(note["image_id"]), []).append(note)
    return {name: replace(_annotated(notes, None), box_ids=None) for name, notes in rows.items()}


def _from_mattnet(content: list[dict[str, Any]]) -> dict[str, BoxList]:
    """MAttNet's detector counts the last pixel in: a box of one pixel has width 1."""
    rows = [{"id": row["det_id"]} if "det_id" in row else {} for row in content]
    for row, note in zip(rows, content, strict=True):
        x, y, width, height = note["box"]
        row |= {key: note[key] for key in ("image_id", "category_id", "score") if key in note}
        row["bbox"] = [x, y, width - 1, height - 1]
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(str(row["image_id"]), []).append(row)
    return {name: _annotated(notes, None) for name, notes in found.items()}


def _from_images(content: list[dict[str, Any]]) -> dict[str, BoxList]:
    result: list[BoxList] = []
    for image in content:
        boxes = np.asarray(image["boxes"], dtype=np.float32).reshape(-1, 4)
        columns = {
            "scores": _column(image, "scores", np.float32, len(boxes)),
            "classes": _column(image, "category_ids", np.int64, len(boxes)),
            "attributes": _column(image, "attribute_ids", np.int64, len(boxes)),
            "box_ids": _column(image, "box_ids", np.str_, len(boxes)),
        }
        size = (image["height"], image["width"]) if "height" in image else None
        result.append(BoxList(boxes, size=size, name=image["file_name"], **columns))
    return _by_id(result)


def _column(image: dict[str, Any], key: str, dtype: Any, rows: int) -> np.ndarray | None:
    if key not in image:
        return None
    array = np.asarray(image[key], dtype=dtype)
    if array.shape != (rows,):
        raise ValueError(f"{image['file_name']}: {key} has shape {array.shape} for {rows} boxes")
    return array


def _from_npz(path: Path) -> dict[str, BoxList]:
    result: list[BoxList] = []
    with np.load(path, allow_pickle=False) as arrays:
        for name in arrays.files:
            with np.errstate(over="ignore"):  # an overflow to inf is refused, with its row, by BoxList
                table = np.asarray(arrays[name], dtype=np.float32)
            if table.ndim != 2 or table.shape[1] not in (4, 5, 6):
                raise ValueError(f"array {name!r} has shape {table.shape}, expected (N, 4), (N, 5) or (N, 6)")
            scores = table[:, 4].copy() if table.shape[1] > 4 else None
            classes = table[:, 5].astype(np.int64) if table.shape[1] > 5 else None
            result.append(BoxList(table[:, :4].copy(), scores, classes, name=name))
    return _by_id(result)


def _by_id(boxes: list[BoxList]) -> dict[str, BoxList]:
    found = {image_id(one.name): one for one in boxes}
    if len(found) < len(boxes):
        found = {str(Path(one.name.replace("\\", "/")).with_suffix("")): one for one in boxes}
    if len(found) < len(boxes):
        name = next(name for name, count in Counter(image_id(one.name) for one in boxes).items() if count > 1)
        raise ValueError(f"two images are called {name!r} (extensions do not count)")
    return found
