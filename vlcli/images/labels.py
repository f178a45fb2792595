"""How the classes and attributes of boxes are numbered: from 0 without gaps, whatever the files call them.

A store's ``classes`` and ``attributes`` are these numbers. Its provenance has ``classes`` (the names), ``class_ids``
(what the annotation file or the detector called them: COCO's 1 to 90) and ``attributes`` (names).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vlcli.errors import DataError
from vlcli.images.boxes import BoxList


@dataclass(frozen=True)
class Labels:
    """Names and foreign ids, in the order of the numbers.

    Attributes:
        classes: names; empty where nobody gave any.
        class_ids: what the file calls each by number; its length is the number of classes.
        attributes: names; empty where nobody gave any.
    """

    classes: tuple[str, ...] = ()
    class_ids: tuple[int, ...] = ()
    attributes: tuple[str, ...] = ()

    def provenance(self) -> dict[str, Any]:
        """What a store remembers of them: the parts there are."""
        parts = {name: list(getattr(self, name)) for name in self.__dataclass_fields__}
        return {name: values for name, values in parts.items() if values}


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
COCO: dict[int, str] = {
    int(number): name for number, name in (row.split(" ", 1) for row in _COCO.strip().replace("\n", "|").split("|"))
}
"""COCO's 80 categories by their ids (Lin et al. 2014): what box files mean that give ids and no names."""


def class_table(ids: Iterable[int], named: Mapping[int, str], known: Labels | None = None) -> Labels:
    """Which numbers the class ids of some box files get.

    Args:
        ids: those the files use.
        named: categories the files themselves list.
        known: the numbering of the data sets the boxes belong to.

    Returns:
        The files' own categories in their order; else the data sets'; else COCO's 80; else the ids in order, nameless.
    """
    used = set(ids)
    if used <= set(named):
        return Labels(tuple(named.values()), tuple(named))
    if known is not None and used <= set(known.class_ids):
        return replace(known, attributes=())
    if used <= set(COCO):
        return Labels(tuple(COCO.values()), tuple(COCO))
    return Labels((), tuple(sorted(used)))


def numbered(boxes: Mapping[str, BoxList], labels: Labels) -> dict[str, BoxList]:
    """Boxes whose classes are a file's own ids, with ``labels``' numbers instead; -1 where an id is not among them."""
    place = {number: row for row, number in enumerate(labels.class_ids)}
    return {
        name: replace(found, classes=np.array([place.get(int(value), -1) for value in found.classes], np.int64))
        if found.classes is not None
        else found
        for name, found in boxes.items()
    }


def ids_used(boxes: Mapping[str, BoxList]) -> set[int]:
    """Every class id."""
    columns = (found.classes for found in boxes.values())
    return {int(value) for column in columns if column is not None for value in np.unique(column)}


def together(parts: Sequence[tuple[Mapping[str, BoxList], Labels]]) -> tuple[dict[str, BoxList], Labels]:
    """Boxes of several data sets under one numbering: classes and attributes of one name are one.

    Raises:
        DataError: one part names its classes and another does not.
    """
    known = [labels for boxes, labels in parts if boxes and labels != Labels()]
    if all(labels == known[0] for labels in known):
        joined = {name: found for boxes, _ in parts for name, found in boxes.items()}
        return joined, known[0] if known else Labels()
    if any(not labels.classes for labels in known):
        first = next(labels for labels in known if not labels.classes)
        got = f"ids {', '.join(map(str, first.class_ids[:5]))} ... without names"
        raise DataError("The classes of some boxes have names, others have none.", got=got)
    classes = list(dict.fromkeys(name for labels in known for name in labels.classes))
    attributes = list(dict.fromkeys(name for labels in known for name in labels.attributes))
    made: dict[str, BoxList] = {}
    for boxes, labels in parts:
        tables = {"classes": _places(labels.classes, classes), "attributes": _places(labels.attributes, attributes)}
        made |= {name: _moved(found, tables) for name, found in boxes.items()}
    ids = {name: i for labels in reversed(known) for name, i in zip(labels.classes, labels.class_ids, strict=True)}
    return made, Labels(tuple(classes), tuple(ids[name] for name in classes), tuple(attributes))


def _places(names: Sequence[str], everything: list[str]) -> np.ndarray:
    return np.array([*(everything.index(name) for name in names), -1], np.int64)  # -1 stays -1


def _moved(boxes: BoxList, tables: Mapping[str, np.ndarray]) -> BoxList:
    columns = {field: getattr(boxes, field) for field in tables}
    return replace(boxes, **{f: tables[f][column] for f, column in columns.items() if column is not None})
