"""Weakly supervised grounding: locates expressions by the attention of a model that learnt matching alone."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from vlcli.data.files import inside, read_json
from vlcli.data.miniature import BOXES, Miniature
from vlcli.errors import ComponentError, DataError
from vlcli.images.boxes import BoxList, boxes_for, read_boxes
from vlcli.metrics.classification import by_kind
from vlcli.nn.batch import Batch
from vlcli.registry import Spec
from vlcli.tasks.base import Result, Runner, Task
from vlcli.tasks.heat import box_heat, contrast_maps, heat_map, hottest, matching_maps, overlaps
from vlcli.tasks.outputs import mean, target, with_target


@dataclass(kw_only=True, eq=False)
class Grounding(Task):
    """Find what an expression speaks of by Grad-CAM of the matching score on attention from words to the picture.

    The heat map (positive gradient times attention, a mean over heads and tokens) is enlarged to the picture. The box
    with the most heat for its area counts if it overlaps the true one (``accuracy``), the middle of the hottest patch
    or region if it lies in the true box (``pointing``). ``chance`` and ``pointing_chance`` are those of random boxes
    and points.

    Args:
        objective: whose score for a match is differentiated.
        of: ``words``: attention from words to the picture, by the score for a match (ALBEF's ``itm``); ``image``: from
            the picture's class token to its patches, by the cosine of text and picture (``itc``) of the contrast that
            ``objective`` names.
        layer: which recorded attention, as a pattern (``cross.2.text_to_image``); None: the middle one from words to
            the picture, the third of six, or the ninth of an image encoder's twelve, as in ALBEF.
        head: one head; None: their mean.
        by: what ``accuracy`` is of: the best box, or the hottest point.
        detections: a file of boxes by image under the data root, as ALBEF and MAttNet publish them
            (``{image: [[x, y, width, height, ...], ...]}``) or any that vlcli reads; None: the data's boxes.
        area: power of the area that a box's heat is divided by.
        overlap: intersection over union from which on a box is right.
        specials: whether the class token and separators count as words, as in ALBEF.
    """

    paper = "ALBEF, Li et al. 2021, section 5 and appendix; Grad-CAM, Selvaraju et al. 2017; RefCOCO+, Yu et al. 2016"
    joint = True
    eval_split = "val"
    usual_data = "refcoco"

    objective: str = "matching"
    of: Literal["words", "image"] = "words"
    layer: str | None = None
    head: int | None = None
    by: Literal["boxes", "point"] = "boxes"
    detections: str | None = None
    area: float = 0.5
    overlap: float = 0.5
    specials: bool = True

    def objectives(self) -> list[Spec]:
        return [{"name": "matching" if self.of == "words" else "contrast"}]

    def evaluate(self, runner: Runner) -> Result:
        boxes = self._candidates(runner.data.readers) if self.by == "boxes" else {}
        rows = runner.rows(lambda batch: self.rows(runner, batch, boxes))
        return Result(self.score(rows), rows)

    def rows(self, runner: Runner, batch: Batch, boxes: dict[str, BoxList]) -> list[dict[str, Any]]:
        """Return a row per expression: ``point``, ``prediction`` (the best box in pixels), ``score``, truth."""
        values, layout = self.maps(runner, batch)
        view = batch.clean
        assert view.images is not None
        source = view.images.regions if view.images.pixels is None else view.images.pixels
        assert source is not None
        sizes = source.sizes[view.image_rows[:, 0]].tolist()  # on the disk
        rows = []
        for number, (key, (high, wide), truth) in enumerate(zip(batch.keys, sizes, target(batch, "box"), strict=True)):
            size = (int(high), int(wide))
            row: dict[str, Any] = {"key": key, "point": list(hottest(values[number], layout, number, size))}
            candidates = boxes_for(boxes, view.images.keys[int(view.image_rows[number, 0])]) if boxes else None
            if candidates is not None and len(candidates):
                heats = box_heat(heat_map(values[number], layout, number, size), candidates.boxes, self.area)
                row |= {"prediction": candidates.boxes[heats.argmax()].tolist(), "score": float(heats.max())}
            if truth is not None:
                row |= self._judged(row, np.asarray(truth, np.float32), size, candidates)
            rows.append(row)
        return with_target(rows, batch, "kind")

    def maps(self, runner: Runner, batch: Batch) -> tuple[Tensor, Any]:
        """Return a number (B, R) of each image token, and the tokens' layout."""
        options = (runner, batch, self.objective, self.layer, self.head, "task grounding")
        if self.of == "image":
            return contrast_maps(*options)
        maps = matching_maps(*options)
        return maps.whole(self.specials), maps.image

    def _judged(
        self, row: dict[str, Any], share: NDArray[np.float32], size: tuple[int, int], candidates: BoxList | None
    ) -> dict[str, Any]:
        # the true box is ``share`` of the picture's sides
        box = share * np.array([size[1], size[0]] * 2, np.float32)
        x, y = row["point"]
        hit = bool(box[0] <= x <= box[2] and box[1] <= y <= box[3])
        covered = float((box[2] - box[0]) * (box[3] - box[1]) / (size[0] * size[1]))
        judged = {"box": box.tolist(), "pointing": hit, "pointing_chance": covered}
        if self.by == "point":
            return judged | {"correct": hit, "chance": covered}
        if "prediction" not in row or candidates is None:
            return judged | {"correct": False, "chance": 0.0}
        overlap = float(overlaps(box, np.array([row["prediction"]], np.float32))[0])
        chance = float((overlaps(box, candidates.boxes) >= self.overlap).mean())
        return judged | {"overlap": overlap, "correct": overlap >= self.overlap, "chance": chance}

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        others = {name: mean(rows, name) for name in ("chance", "pointing", "pointing_chance")}
        metrics = {"accuracy": mean(rows, "correct"), **others, **by_kind(rows, "kind", prefix="accuracy/")}
        return metrics | by_kind(rows, "kind", "pointing", prefix="pointing/")

    def write_miniature(self, miniature: Miniature, readers: list[Any]) -> None:
        if self.detections is not None:
            names = {name for reader in readers for example in reader.examples() for name in example.images}
            known = readers[0].root / self.detections
            former = read_json(known) if known.is_file() else {}
            miniature.write(known, {**former, **{name: list(BOXES) for name in sorted(names)}})

    def _candidates(self, readers: list[Any]) -> dict[str, BoxList]:
        if self.detections is not None:
            return read_detections(inside(readers[0].root, self.detections))
        boxes = {name: row for reader in readers for name, row in reader.boxes().items()}
        if not boxes:
            what, expected = "There are no boxes to choose from.", "`detections: FILE`, data with boxes, or `by: point`"
            raise ComponentError(what, where="task grounding", expected=expected)
        return boxes


def read_detections(path: Path) -> dict[str, BoxList]:
    """Read boxes by image, in any form of ``Grounding.detections``. Raises DataError: the file holds none."""
    content: Any = read_json(path, (dict, list)) if path.suffix == ".json" else None
    by_image = isinstance(content, dict) and content and all(isinstance(rows, list) for rows in content.values())
    if not by_image or {"images", "annotations"} <= set(content):
        return dict(read_boxes(path))
    boxes = {}
    for name, rows in content.items():
        try:
            corners = np.array([row[:4] for row in rows], np.float32).reshape(len(rows), 4)
        except (TypeError, ValueError):
            where, expected = f"{path}: {name}", "[[x, y, width, height, ...], ...]"
            raise DataError("Detections are not understood.", where=where, expected=expected) from None
        corners[:, 2:] += corners[:, :2]
        boxes[str(name)] = BoxList(corners)
    return boxes
