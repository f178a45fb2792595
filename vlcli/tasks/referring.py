"""Tasks on regions: chooses the region that an expression refers to; labels given boxes."""

from typing import Any

import torch
from torch import Tensor

from vlcli.data.numbering import class_names
from vlcli.errors import DataError
from vlcli.metrics.baseline import CHANCE, NAME, most_frequent
from vlcli.metrics.classification import by_kind
from vlcli.nn import Batch
from vlcli.objectives.regions import picture_sides, target_boxes
from vlcli.registry import Spec
from vlcli.tasks.base import Examples, Task
from vlcli.tasks.outputs import logits_of, mean, with_target


class RegionLabels(Task):
    """Class and attribute accuracy on given boxes.

    Args:
        attributes: weight of the attribute loss in training; 0 leaves attributes out.
    """

    requires = frozenset({"boxes"})
    metric = "class_accuracy"
    eval_split = "val"
    usual_data = "coco-instances"

    def __init__(self, *, attributes: float = 1.0) -> None:
        self.attributes = attributes

    def read(self, runner: Examples) -> None:
        # refuses data whose classes have other numbers than in training
        names, known = class_names(runner.data.readers), self.data_spec.class_names
        if names and known and names != known[: len(names)]:
            what = "The classes of the boxes have other numbers than in training."
            where, got = ", ".join(reader.label for reader in runner.data.readers), f"{', '.join(names[:4])} ..."
            expected, hint = f"{', '.join(known[:4])} ...", "give every file the same categories in the same order"
            raise DataError(what, where=where, got=got, expected=expected, hint=hint)

    def objectives(self) -> list[Spec]:
        return [{"name": "region-labels", "attributes": self.attributes}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # per picture: class of each box, and how many boxes are right of how many known; the same of attributes
        images = batch.clean.images
        assert images is not None
        assert images.pixels is not None
        rows: list[dict[str, Any]] = [{"key": key} for key in batch.keys]
        pixels = images.pixels.select(batch.clean.image_rows[:, 0]).to("cpu")
        for side, labels in (("class", pixels.classes), ("attribute", pixels.attributes)):
            absent = side == "attribute" and not any("attribute_logits" in tensors for tensors in outputs.values())
            if labels is None or absent:
                continue
            boxes = logits_of(outputs, "region-labels", f"{side}_logits").argmax(-1).cpu()  # (B, R)
            real = torch.ones_like(labels, dtype=torch.bool) if pixels.box_mask is None else pixels.box_mask
            for row, chosen, truth, inside in zip(rows, boxes, labels, real, strict=True):
                row[side], row[f"{side}_labels"] = chosen[inside].tolist(), truth[inside].tolist()
                known = inside & (truth >= 0)
                row[f"{side}_right"] = int((known & (chosen == truth)).sum())
                row[f"{side}_boxes"] = int(known.sum())
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # over all boxes with a known label, beside the accuracy of the most frequent one
        metrics = {}
        for side in ("class", "attribute"):
            if known := sum(row.get(f"{side}_boxes", 0) for row in predictions):
                name = f"{side}_accuracy"
                metrics[name] = sum(row.get(f"{side}_right", 0) for row in predictions) / known
                labels = [label for row in predictions for label in row.get(f"{side}_labels", ()) if label >= 0]
                metrics |= {f"{NAME}/{name}": share for share in most_frequent({"label": n} for n in labels).values()}
        return metrics


class Referring(Task):
    """Choose the region that an expression refers to; accuracy, overall and by kind where the data have one.

    Args:
        overlap: intersection over union from which on a region is a hit.
        reached: count an overlap of exactly that as a hit (MAttNet, UNITER) instead of only more (VL-BERT).
        pixels: count pixels with both borders (a box from 0 to 9 is ten wide), as VL-BERT does and MAttNet does not.
        loss: ``bce`` or ``softmax``, see the objective.
    """

    paper = "RefCOCO+, Yu et al. 2016; DiMBERT, Liu et al. 2021, Table 2"
    eval_split = "val"
    usual_data = "refcoco"

    def __init__(self, *, overlap: float = 0.5, reached: bool = False, pixels: bool = False, loss: str = "bce") -> None:
        self.overlap, self.reached, self.pixels, self.loss = overlap, reached, pixels, loss

    def objectives(self) -> list[Spec]:
        return [{"name": "region-selection", "loss": self.loss, "overlap": self.overlap}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # per expression: ``prediction`` (the box in pixels), ``score``, ``overlap``, ``correct``, ``chance``
        scores, boxes = (logits_of(outputs, "region-selection", name) for name in ("scores", "boxes"))
        best, sizes = scores.argmax(1), picture_sides(batch)
        chances = scores.sigmoid() if self.loss == "bce" else scores.softmax(1)
        chosen = boxes[torch.arange(len(best), device=best.device), best] * sizes  # (B, 4)
        known = {"box", "pixel_box"} & set(batch.targets)
        targets = target_boxes(batch, chosen) * sizes if known else chosen
        rows: list[dict[str, Any]] = []
        for number, key in enumerate(batch.keys):
            row = {"key": key, "prediction": chosen[number].tolist(), "score": float(chances[number, best[number]])}
            if known:
                real = boxes[number][scores[number] > torch.finfo(scores.dtype).min] * sizes[number]
                overlap = self.overlaps(chosen[number][None], targets[number])[0]
                hits = [self.is_hit(one) for one in self.overlaps(real, targets[number])]
                row |= {"overlap": overlap, "correct": self.is_hit(overlap), "chance": sum(hits) / max(1, len(hits))}
            rows.append(row)
        return with_target(rows, batch, "kind")

    def overlaps(self, boxes: Tensor, target: Tensor) -> list[float]:
        """Return the intersection over union of boxes (R, 4) with one box (4,)."""
        from torchvision.ops import box_iou  # its import takes as long as torch's

        border = torch.tensor([0.0, 0.0, 1.0, 1.0]).to(boxes) if self.pixels else 0.0
        return list(box_iou(boxes + border, (target + border)[None])[:, 0].tolist())

    def is_hit(self, overlap: float) -> bool:
        return overlap >= self.overlap if self.reached else overlap > self.overlap

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        metrics: dict[str, float] = {}
        for name, value in (("accuracy", "correct"), (f"{CHANCE}/accuracy", "chance")) if rows else ():
            metrics |= {name: mean(rows, value), **by_kind(rows, "kind", value, prefix=f"{name}/")}
        return metrics
