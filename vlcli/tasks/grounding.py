"""Weakly supervised grounding: where a model that only learnt which sentence fits looks for what it speaks of."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vlcli.data.files import inside, read_json
from vlcli.errors import ComponentError, DataError
from vlcli.images.boxes import BoxList, boxes_for, read_boxes
from vlcli.metrics.nlvr2 import accuracy, by_kind
from vlcli.nn.batch import Batch
from vlcli.registry import Spec
from vlcli.tasks.base import Result, Runner, Task
from vlcli.tasks.heat import box_heat, contrast_maps, heat_map, hottest, matching_maps, overlaps
from vlcli.tasks.outputs import target


class Grounding(Task):
    """Find what an expression speaks of by Grad-CAM of the matching score on attention from words to the picture.

    The heat map (positive gradient times attention, a mean over heads and the sentence's tokens) is enlarged to the
    picture. With boxes, the one with the most heat for its area is chosen, and counts if it overlaps the true one
    (``accuracy``); the middle of the hottest patch or region counts if it lies in the true box (``pointing``).
    ``chance`` and ``pointing_chance`` are what boxes or points drawn at random would reach. Boxes are those of
    ``detections``, else the data's own.

    Args:
        objective: whose score for a match is differentiated.
        of: ``words``: attention from words to the picture, by the score for a match (ALBEF's ``itm``); ``image``: from
            the picture's class token to its patches, by the cosine of text and picture (``itc``), for which
            ``objective`` names a contrast.
        layer: which recorded attention, as a pattern (``cross.2.text_to_image``); None: the middle one of those from
            words to the picture, which of six is the third, or the ninth of an image encoder's twelve, as in ALBEF.
        head: one head; None: their mean.
        by: what ``accuracy`` is: the best box's, or the hottest point's.
        detections: a file under the data root: detected boxes by image, as ALBEF and MAttNet publish them
            (``{image: [[x, y, width, height, ...], ...]}``) or any that vlcli reads; None: the data's boxes.
        area: power of the area that a box's heat is divided by.
        overlap: intersection over union from which on a box is right.
        specials: whether the class token and separators count as words, as in ALBEF.
    """

    paper = "ALBEF, Li et al. 2021, section 5 and appendix; Grad-CAM, Selvaraju et al. 2017; RefCOCO+, Yu et al. 2016"
    metric = "accuracy"
    joint = True
    eval_split = "val"

    def __init__(
        self,
        *,
        objective: str = "matching",
        of: Literal["words", "image"] = "words",
        layer: str | None = None,
        head: int | None = None,
        by: Literal["boxes", "point"] = "boxes",
        detections: str | None = None,
        area: float = 0.5,
        overlap: float = 0.5,
        specials: bool = True,
    ) -> None:
        self.objective, self.of, self.layer, self.head, self.by = objective, of, layer, head, by
        self.detections, self.area, self.overlap, self.specials = detections, area, overlap, specials

    def objectives(self) -> list[Spec]:
        return [{"name": "matching" if self.of == "words" else "contrast"}]

    def dataset(self) -> Spec:
        return {"name": "refcoco"}

    def evaluate(self, runner: Runner) -> Result:
        boxes = self._candidates(runner.data.readers) if self.by == "boxes" else {}
        rows = runner.rows(lambda batch: self.rows(runner, batch, boxes))
        return Result(self.score(rows), rows)

    def rows(self, runner: Runner, batch: Batch, boxes: dict[str, BoxList]) -> list[dict[str, Any]]:
        """One prediction an expression: ``point``, ``prediction`` (the best box, pixels), ``score``, what is right."""
        values, layout = self.maps(runner, batch)
        sizes, view = picture_sizes(batch), batch.clean
        assert view.images is not None
        truths, kinds = target(batch, "box"), target(batch, "kind")
        rows = []
        for number, key in enumerate(batch.keys):
            heat = heat_map(values[number], layout, number, sizes[number])
            row: dict[str, Any] = {"key": key, "point": list(hottest(values[number], layout, number, sizes[number]))}
            given = boxes_for(boxes, view.images.keys[int(view.image_rows[number, 0])]) if boxes else None
            if given is not None and len(given):
                heats = box_heat(heat, given.boxes, self.area)
                row |= {"prediction": given.boxes[heats.argmax()].tolist(), "score": float(heats.max())}
            if truths[number] is not None:
                row |= self._judged(row, np.asarray(truths[number], np.float32), sizes[number], given)
            rows.append(row if kinds[number] in (None, "") else {**row, "kind": kinds[number]})
        return rows

    def maps(self, runner: Runner, batch: Batch) -> tuple[Tensor, Any]:
        """(B, R) one number an image token, and where the tokens lie."""
        options = (runner, batch, self.objective, self.layer, self.head, "task grounding")
        if self.of == "image":
            return contrast_maps(*options)
        found = matching_maps(*options)
        return found.whole(self.specials), found.image

    def _judged(
        self, row: dict[str, Any], share: NDArray[np.float32], size: tuple[int, int], given: BoxList | None
    ) -> dict[str, Any]:
        # What is right of a row, the true box being ``share`` of the picture's sides
        box = share * np.array([size[1], size[0]] * 2, np.float32)
        x, y = row["point"]
        inside_box = bool(box[0] <= x <= box[2] and box[1] <= y <= box[3])
        covered = float((box[2] - box[0]) * (box[3] - box[1]) / (size[0] * size[1]))
        judged = {"box": box.tolist(), "pointing": inside_box, "pointing_chance": covered}
        if self.by == "point":
            return judged | {"correct": inside_box, "chance": covered}
        if "prediction" not in row or given is None:
            return judged | {"correct": False, "chance": 0.0}
        overlap = float(overlaps(box, np.array([row["prediction"]], np.float32))[0])
        chance = float((overlaps(box, given.boxes) >= self.overlap).mean())
        return judged | {"overlap": overlap, "correct": overlap >= self.overlap, "chance": chance}

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        found = {"accuracy": accuracy([row["correct"] for row in rows])}
        for name in ("chance", "pointing", "pointing_chance"):
            found[name] = sum(float(row[name]) for row in rows) / len(rows)
        found |= {f"accuracy/{kind}": share for kind, share in by_kind(rows, "kind").items()}
        return found | {f"pointing/{kind}": share for kind, share in by_kind(rows, "kind", "pointing").items()}

    def _candidates(self, readers: list[Any]) -> dict[str, BoxList]:
        if self.detections is not None:
            return read_detections(inside(readers[0].root, self.detections))
        found: dict[str, BoxList] = {}
        for reader in readers:
            found |= reader.boxes()
        if not found:
            raise ComponentError(
                "There are no boxes to choose from.",
                where="task grounding",
                expected="`detections: FILE`, data with boxes, or `by: point`",
            )
        return found


def picture_sizes(batch: Batch) -> list[tuple[int, int]]:
    """Height and width in pixels of every example's (first) picture, as it lies on the disk."""
    view = batch.clean
    assert view.images is not None
    source = view.images.regions if view.images.pixels is None else view.images.pixels
    assert source is not None
    return [(int(high), int(wide)) for high, wide in source.sizes[view.image_rows[:, 0]].tolist()]


def read_detections(path: Path) -> dict[str, BoxList]:
    """Detected boxes by image: ``{image: [[x, y, width, height, ...], ...]}``, or any file of boxes that vlcli reads.

    Raises:
        DataError: it is neither.
    """
    content = read_json(path, (dict, list)) if path.suffix == ".json" else None
    if not isinstance(content, dict) or not content or not all(isinstance(rows, list) for rows in content.values()):
        return dict(read_boxes(path))
    if {"images", "annotations"} <= set(content):
        return dict(read_boxes(path))
    made = {}
    for name, rows in content.items():
        try:
            corners = np.array([row[:4] for row in rows], np.float32).reshape(-1, 4)
        except (TypeError, ValueError):
            raise DataError(
                "Detections are not understood.", where=f"{path}: {name}", expected="[[x, y, width, height, ...], ...]"
            ) from None
        corners[:, 2:] += corners[:, :2]
        made[str(name)] = BoxList(corners)
    return made
