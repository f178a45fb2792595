"""Reads files of boxes, and finds an image's boxes by its id.

An image is named by :func:`image_id`, its file name without folders and extension. Files that name images by number
only (COCO results) use that number; ``boxes_for`` then matches ``COCO_val2014_000000000042`` with ``42``.
"""

from __future__ import annotations

import json
import re
import zipfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.errors import DataError

_ODD = (ValueError, LookupError, TypeError, AttributeError, OverflowError, OSError, RecursionError, zipfile.BadZipFile)
NO_AREA = "boxes of no area (width or height not above 0)"
FORMATS = ("coco-instances", "coco-results", "per-image", "mattnet", "npz")
Index = Callable[[Any], int]


def image_id(path: str | Path) -> str:
    """Return the name of an image: the last part of its path without the extension.

    >>> image_id("train2014/COCO_train2014_000000000009.jpg")
    'COCO_train2014_000000000009'
    """
    name = str(path).replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    stem, dot, _ = name.rpartition(".")
    return stem if dot and stem else name


def trailing_number(name: str) -> int | None:
    """Return the number that a name ends in; None where it does not end in one."""
    match = re.search(r"\d+$", name)
    return int(match.group()) if match else None


def by_number(names: Iterable[str]) -> dict[int | None, str]:
    """Return names by the number in which they end, without numbers in which several end."""
    numbered = [(trailing_number(name), name) for name in names]
    counts = Counter(number for number, _ in numbered)
    return {number: name for number, name in numbered if number is not None and counts[number] == 1}


@dataclass
class BoxList:
    """Boxes of one image. Raises DataError: a coordinate is not finite: RoIAlign would read outside its map.

    Attributes:
        boxes: pixels x1 y1 x2 y2 (N, 4), float32.
        scores: confidences (N,).
        classes: class ids (N,).
        attributes: attribute ids (N,).
        box_ids: names (N,), strings.
        size: height and width of the image that the boxes were measured in.
        name: the image's file as the boxes' file writes it.
    """

    boxes: np.ndarray
    scores: np.ndarray | None = None
    classes: np.ndarray | None = None
    attributes: np.ndarray | None = None
    box_ids: np.ndarray | None = None
    size: tuple[int, int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        for row in np.flatnonzero(~np.isfinite(np.reshape(self.boxes, (-1, 4))).all(axis=1)):
            name = "" if self.box_ids is None else f" ({self.box_ids[row]})"
            got = f"box {row}{name}: {np.asarray(self.boxes[row]).tolist()}"
            raise DataError("a box is not finite", got=got, expected="x1 y1 x2 y2 in pixels, all of them finite")

    def __len__(self) -> int:
        return int(self.boxes.shape[0])

    def rows(self, index: np.ndarray) -> BoxList:
        columns = {name: value[index] for name, value in vars(self).items() if isinstance(value, np.ndarray)}
        return replace(self, **columns)

    def top(self, limit: int | None) -> BoxList:
        """Return the ``limit`` most confident boxes, best first; in file order where there are no scores."""
        order = np.arange(len(self)) if self.scores is None else np.argsort(-self.scores, kind="stable")
        return self.rows(order[:limit] if limit else order)

    def with_area(self) -> BoxList:
        """Return the boxes with a positive width and height: no network can learn from others."""
        good = (self.boxes[:, 2:] > self.boxes[:, :2]).all(axis=1)
        return self if good.all() else self.rows(np.flatnonzero(good))

    def clipped(self, size: tuple[int, int]) -> BoxList:
        """Clip the boxes to an image of ``size`` (height, width)."""
        limit = np.array([size[1], size[0]] * 2, dtype=np.float32)
        return replace(self, boxes=np.clip(self.boxes, 0, limit).astype(np.float32), size=size)


class BoxFile(dict[str, BoxList]):
    """Boxes by image id, with the names of the file's labels.

    Attributes:
        categories: name by class id, in the file's order; empty where it lists none.
        attributes: names by attribute number; empty where it lists none.
        without_area: number of boxes left out because their width or height is not above 0.
    """

    def __init__(self, boxes: Mapping[str, BoxList], categories: dict[int, str], attributes: tuple[str, ...]) -> None:
        super().__init__(boxes)
        self.categories, self.attributes, self.without_area = categories, attributes, 0

    def with_area(self) -> BoxFile:
        """Remove the boxes of no area, and the images that have no other; count them."""
        for name, boxes in list(self.items()):
            self[name] = boxes.with_area()
            self.without_area += len(boxes) - len(self[name])
            if len(boxes) and not len(self[name]):
                del self[name]
        return self


def boxes_for(boxes: Mapping[str, BoxList], image: str) -> BoxList | None:
    """Return an image's boxes by its id or the end of that path, else by the number that ends it; None without any.

    Boxes whose file names another folder than the id are another image's.
    """
    names = path_ids(image) if "/" in image else [image]
    if (number := trailing_number(image)) is not None:
        names.append(str(number))
    return next((boxes[name] for name in names if name in boxes and _same_folders(boxes[name].name, image)), None)


def path_ids(picture: str | Path) -> list[str]:
    """Return the ids that a picture at a path may have: ends of the path, longest first, with and without suffix."""
    *folders, last = str(picture).replace("\\", "/").split("/")
    starts = ["".join(f"{folder}/" for folder in folders[number:]) for number in range(len(folders) + 1)]
    return [start + name for start in starts for name in dict.fromkeys((last, image_id(last)))]


def _same_folders(file: str, image: str) -> bool:
    pairs = zip(file.replace("\\", "/").split("/")[-2::-1], image.split("/")[-2::-1], strict=False)
    return all(one == other for one, other in pairs)


def read_boxes(path: str | Path, format: str | None = None, *, crowds: bool = False) -> BoxFile:
    """Read a file of boxes; classes keep the file's ids (:mod:`vlcli.images.labels` numbers them from 0).

    Args:
        path: a JSON file or an ``.npz``. JSON: COCO instances, COCO results, MAttNet's detections (``image_id``,
            ``box`` as x y width height with the last pixel counted), or a list of one object per image with
            ``file_name``, ``width``, ``height``, ``boxes`` as x1 y1 x2 y2 and optionally ``scores``, ``category_ids``,
            ``attribute_ids``, ``box_ids``. An npz has one array (N, 4 to 6) per image: x1 y1 x2 y2 [score [class]].
        format: one of :data:`FORMATS`; by default it is recognised from the content.
        crowds: keep COCO's crowd boxes.

    Returns:
        Boxes by image id. Images without any box are left out: a file does not say whether nobody looked.

    Raises:
        DataError: the file is missing, not of this format, or names two images alike.
    """
    path = Path(path)
    if format is not None and format not in FORMATS:
        raise DataError("unknown format of boxes", where=str(path), got=format, expected=", ".join(FORMATS))
    try:
        if format == "npz" or (format is None and path.suffix == ".npz"):
            return BoxFile(_from_npz(path), {}, ()).with_area()
        content = json.loads(path.read_text(encoding="utf-8-sig"))
        kind = format or _recognise(content)
        if kind == "coco-instances":
            return from_instances(content, crowds).with_area()
        if kind == "mattnet":  # whose boxes of one pixel have a width of 0
            return BoxFile(_from_mattnet(content), {}, ())
        return BoxFile((_from_results if kind == "coco-results" else _from_images)(content), {}, ()).with_area()
    except DataError as error:  # of a box; this is the file that it is in
        raise DataError(error.what, where=str(path), got=error.got, expected=error.expected) from None
    except FileNotFoundError:
        what, hint = "the file of boxes does not exist", "check the path given as boxes"
        raise DataError(what, where=str(path), hint=hint) from None
    except _ODD as error:
        what, got = "the file of boxes cannot be read", f"{type(error).__name__}: {error}"
        raise DataError(what, where=str(path), got=got, expected=f"one of {', '.join(FORMATS)}") from None


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


def from_instances(content: dict[str, Any], crowds: bool) -> BoxFile:
    """Return the boxes of a COCO instances document; see :func:`read_boxes`."""
    annotations = (note for note in content["annotations"] if "bbox" in note)
    rows = _by_image(note for note in annotations if crowds or not note.get("iscrowd"))
    result: list[BoxList] = []
    index, names = attribute_product(content.get("attribute_categories", []))
    for image in content["images"]:
        if notes := rows.get(image["id"]):
            size = (image["height"], image["width"]) if image.get("height") and image.get("width") else None
            boxes = replace(_annotated(notes, size), name=str(image.get("file_name") or image["id"]))
            if index is not None:
                boxes.attributes = np.array([index(note.get("attributes", [])) for note in notes], np.int64)
            result.append(boxes)
    categories = {row["id"]: str(row.get("name", row["id"])) for row in content.get("categories", [])}
    return BoxFile(_by_id(result), categories, tuple(names))


def _by_image(notes: Iterable[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    rows = defaultdict(list)
    for note in notes:
        rows[note["image_id"]].append(note)
    return rows


def attribute_product(categories: list[dict[str, Any]]) -> tuple[Index | None, list[str]]:
    """Return a function from attribute ids, one of each supercategory, to one number, and these numbers' names.

    "red small" is red of the colours and small of the sizes; the number is -1 where a supercategory is lacking.
    """
    kinds = defaultdict(list)
    for row in categories:
        kinds[str(row.get("supercategory", ""))].append(row)
    if not kinds:
        return None, []
    names = [""]
    for rows in kinds.values():
        names = [f"{name} {row['name']}".strip() for name in names for row in rows]
    tables = [{row["id"]: number for number, row in enumerate(rows)} for rows in kinds.values()]

    def index(ids: list[Any]) -> int:
        total = 0
        for table in tables:
            numbers = [table[item] for item in ids if item in table]
            if len(numbers) != 1:
                return -1
            total = total * len(table) + numbers[0]
        return total

    return index, names


def _annotated(notes: list[dict[str, Any]], size: tuple[int, int] | None) -> BoxList:
    def column(key: str, dtype: Any, kind: type = object) -> np.ndarray | None:
        values = [note[key] for note in notes if key in note and isinstance(note[key], kind)]
        return np.array(values, dtype) if len(values) == len(notes) else None

    boxes = np.asarray([note["bbox"] for note in notes], dtype=np.float64).reshape(len(notes), 4)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused, with its row, by BoxList
        corners = np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1).astype(np.float32)
    ids = column("category_id", np.int64, int), column("attribute_id", np.int64, int), column("id", np.str_)
    return BoxList(corners, column("score", np.float32), *ids, size=size)


def _from_results(content: list[dict[str, Any]]) -> dict[str, BoxList]:
    rows = _by_image({**note, "image_id": str(note["image_id"])} for note in content)
    return {name: replace(_annotated(notes, None), box_ids=None) for name, notes in rows.items()}


def _from_mattnet(content: list[dict[str, Any]]) -> dict[str, BoxList]:
    keys = {"det_id": "id", "category_id": "category_id", "score": "score"}
    rows = []
    for note in content:
        x, y, width, height = note["box"]
        row: dict[str, Any] = {"image_id": str(note["image_id"]), "bbox": [x, y, width - 1, height - 1]}
        rows.append(row | {name: note[key] for key, name in keys.items() if key in note})
    return {name: _annotated(notes, None) for name, notes in _by_image(rows).items()}


# Of an image in a list, in the order of the fields of `BoxList`.
_COLUMNS = {"scores": np.float32, "category_ids": np.int64, "attribute_ids": np.int64, "box_ids": np.str_}


def _from_images(content: list[dict[str, Any]]) -> dict[str, BoxList]:
    result: list[BoxList] = []
    for image in content:
        boxes = np.asarray(image["boxes"], dtype=np.float32).reshape(len(image["boxes"]), 4)
        columns = [np.asarray(image[key], dtype) if key in image else None for key, dtype in _COLUMNS.items()]
        for key, values in zip(_COLUMNS, columns, strict=True):
            if values is not None and values.shape != (len(boxes),):
                raise ValueError(f"{image['file_name']}: {key} has shape {values.shape} for {len(boxes)} boxes")
        size = (image["height"], image["width"]) if image.get("height") and image.get("width") else None
        scores, classes, attributes, ids = columns
        result.append(BoxList(boxes, scores, classes, attributes, ids, size, str(image["file_name"])))
    return _by_id(result)


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
    named = {image_id(one.name): one for one in boxes}
    if len(named) < len(boxes):
        named = {str(Path(one.name.replace("\\", "/")).with_suffix("")): one for one in boxes}
    if len(named) < len(boxes):
        name = next(name for name, count in Counter(image_id(one.name) for one in boxes).items() if count > 1)
        raise ValueError(f"two images are called {name!r} (extensions do not count)")
    return named
