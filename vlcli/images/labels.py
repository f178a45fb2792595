"""Numbers the classes and attributes of boxes from 0 without gaps.

A store's ``classes`` and ``attributes`` are these numbers. Its provenance has ``classes`` (the names), ``class_ids``
(those of the annotation file or the detector: COCO's 1 to 90) and ``attributes`` (names).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vlcli.errors import DataError
from vlcli.images.boxes import BoxList


@dataclass(frozen=True)
class Labels:
    """Names (empty where unknown) and the annotation file's ids of classes, in the order of their numbers."""

    classes: tuple[str, ...] = ()
    class_ids: tuple[int, ...] = ()
    attributes: tuple[str, ...] = ()

    def provenance(self) -> dict[str, Any]:
        return {name: list(values) for name, values in vars(self).items() if values}


_COCO = """
1 person|2 bicycle|3 car|4 motorcycle|5 airplane|6 bus|7 train|8 truck|9 boat|10 traffic light|11 fire hydrant
13 stop sign|14 parking meter|15 bench|16 bird|17 cat|18 dog|19 horse|20 sheep|21 cow|22 elephant|23 bear|24 zebra
25 giraffe|27 backpack|28 umbrella|31 handbag|32 tie|33 suitcase|34 frisbee|35 skis|36 snowboard|37 sports ball
38 kite|39 baseball bat|40 baseball glove|41 skateboard|42 surfboard|43 tennis racket|44 bottle|46 wine glass|47 cup
48 fork|49 knife|50 spoon|51 bowl|52 banana|53 apple|54 sandwich|55 orange|56 broccoli|57 carrot|58 hot dog|59 pizza
60 donut|61 cake|62 chair|63 couch|64 potted plant|65 bed|67 dining table|70 toilet|72 tv|73 laptop|74 mouse|75 remote
76 keyboard|77 cell phone|78 microwave|79 oven|80 toaster|81 sink|82 refrigerator|84 book|85 clock|86 vase|87 scissors
88 teddy bear|89 hair drier|90 toothbrush
"""
# COCO's 80 categories by their ids (Lin et al. 2014), for box files with ids and no names.
COCO: dict[int, str] = {
    int(number): name for number, name in (row.split(" ", 1) for row in _COCO.strip().replace("\n", "|").split("|"))
}


def class_table(ids: Iterable[int], named: Mapping[int, str], known: Labels | None = None) -> Labels:
    """Number class ids by the files' categories in their order, else the data sets', else COCO's 80, else in order."""
    used = set(ids)
    if used <= set(named):
        return Labels(tuple(named.values()), tuple(named))
    if known is not None and used <= set(known.class_ids):
        return replace(known, attributes=())
    if used <= set(COCO):
        return Labels(tuple(COCO.values()), tuple(COCO))
    return Labels((), tuple(sorted(used)))


def numbered(boxes: Mapping[str, BoxList], labels: Labels) -> dict[str, BoxList]:
    """Replace the classes' ids of a file by the numbers of ``labels``; -1 where an id is not among them."""
    number_of = {class_id: number for number, class_id in enumerate(labels.class_ids)}

    def classes(ids: np.ndarray) -> np.ndarray:
        return np.array([number_of.get(value, -1) for value in ids.tolist()], np.int64)

    return {
        name: one if one.classes is None else replace(one, classes=classes(one.classes)) for name, one in boxes.items()
    }


def ids_used(boxes: Mapping[str, BoxList]) -> set[int]:
    """Return every class id."""
    return {value for one in boxes.values() if one.classes is not None for value in one.classes.tolist()}


def together(parts: Sequence[tuple[Mapping[str, BoxList], Labels]]) -> tuple[dict[str, BoxList], Labels]:
    """Join data sets' boxes; classes and attributes of one name are one. Raises DataError: some have no names."""
    known = [labels for boxes, labels in parts if boxes and labels != Labels()]
    if all(labels == known[0] for labels in known):
        return {name: one for boxes, _ in parts for name, one in boxes.items()}, known[0] if known else Labels()
    for labels in known:
        if not labels.classes:
            got = f"ids {', '.join(map(str, labels.class_ids[:5]))} ... without names"
            raise DataError("The classes of some boxes have names, others have none.", got=got)
    classes = list(dict.fromkeys(name for labels in known for name in labels.classes))
    attributes = list(dict.fromkeys(name for labels in known for name in labels.attributes))
    joined: dict[str, BoxList] = {}
    for boxes, labels in parts:
        tables = {"classes": _numbers(labels.classes, classes), "attributes": _numbers(labels.attributes, attributes)}
        for name, one in boxes.items():
            columns = {field: getattr(one, field) for field in tables}
            moved = {field: tables[field][column] for field, column in columns.items() if column is not None}
            joined[name] = replace(one, **moved)
    ids = {name: i for labels in reversed(known) for name, i in zip(labels.classes, labels.class_ids, strict=True)}
    return joined, Labels(tuple(classes), tuple(ids[name] for name in classes), tuple(attributes))


def _numbers(names: Sequence[str], everything: list[str]) -> np.ndarray:
    return np.array([*(everything.index(name) for name in names), -1], np.int64)  # -1 stays -1
