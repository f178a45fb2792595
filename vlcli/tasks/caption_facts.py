"""What captions claim, checked against a data set of annotated boxes."""

from __future__ import annotations

from typing import Any

from vlcli import registry
from vlcli.data.reader import Reader
from vlcli.errors import DataError
from vlcli.images.boxes import BoxList
from vlcli.metrics.captions.facts import Claims, ClaimTruth, Thing, fact_metrics
from vlcli.registry import Spec
from vlcli.tasks.base import Examples, Given


def check_facts(spec: Spec | str, runner: Examples | Given, rows: list[dict[str, Any]]) -> dict[str, float]:
    """Shares of true captions; each row is told in ``facts`` what its caption claims and whether that holds.

    Args:
        spec: a data set with boxes, classes and, where it has any, attributes.
        runner: its data say under which root it lies.
        rows: predictions; ``key`` is the picture.

    Raises:
        DataError: the data set has no boxes, or none of these pictures.
    """
    reader = registry.of(Reader).build(spec, runner.data.readers[0].root)
    reader.ids = runner.data.readers[0].ids
    boxes, kinds = reader.boxes(), reader.class_names()
    known = [row for row in rows if row["key"] in boxes]
    if rows and not (known and kinds):
        what = "no boxes with classes" if not kinds else "none of the captioned pictures"
        hint = "name the splits that are captioned: facts: {name: coco-instances, split: [val, test]}"
        raise DataError(f"The data set that captions are checked against has {what}.", where=reader.label, hint=hint)
    attributes = reader.attribute_names()
    claims = Claims(kinds, sorted({word for name in attributes for word in name.split()}))
    found = [claims.check(row["prediction"], _things(boxes[row["key"]], kinds, attributes)) for row in known]
    for row, truth in zip(known, found, strict=True):
        row["facts"] = _told(truth)
    return fact_metrics(found)


def _things(boxes: BoxList, kinds: list[str], attributes: list[str]) -> list[Thing]:
    height, width = boxes.size or (1, 1)
    made = []
    for place, (x1, y1, x2, y2) in enumerate(boxes.boxes.tolist()):
        kind = "" if boxes.classes is None else kinds[int(boxes.classes[place])]
        looks = "" if boxes.attributes is None or not attributes else attributes[int(boxes.attributes[place])]
        made.append(Thing(kind, frozenset(looks.split()), (x1 + x2) / 2 / width, (y1 + y2) / 2 / height))
    return made


def _told(truth: ClaimTruth) -> dict[str, bool]:
    claimed = {"look": truth.look, "number": truth.number, "place": truth.place}
    return {name: value for name, value in claimed.items() if value is not None}
