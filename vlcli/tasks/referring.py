"""Referring expressions: find the region that a sentence speaks of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vlcli.metrics.baseline import CHANCE
from vlcli.nn.batch import Batch
from vlcli.objectives.region_selection import picture_sides, target_boxes
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.outputs import logits_of


class Referring(Task):
    """The best region's overlap with the target decides: accuracy over expressions, and by kind where the data say it.

    Args:
        overlap: intersection over union from which on a region is a hit.
        reached: count an overlap of exactly that as a hit (MAttNet, UNITER) instead of only more (VL-BERT).
        pixels: count pixels as MAttNet does, both borders included (a box from 0 to 9 is ten wide).
        loss: ``bce`` or ``softmax``, see the objective.
    """

    paper = "RefCOCO+, Yu et al. 2016; DiMBERT, Liu et al. 2021, Table 2"
    metric = "accuracy"
    eval_split = "val"

    def __init__(self, *, overlap: float = 0.5, reached: bool = False, pixels: bool = False, loss: str = "bce") -> None:
        self.overlap, self.reached, self.pixels, self.loss = overlap, reached, pixels, loss

    def objectives(self) -> list[Spec]:
        return [{"name": "region-selection", "loss": self.loss, "overlap": self.overlap}]

    def dataset(self) -> Spec:
        return {"name": "refcoco"}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # Per expression: ``prediction`` (the box in pixels), ``score``, ``overlap``, ``correct``, ``chance``
        scores = logits_of(outputs, "region-selection", "scores")
        boxes = logits_of(outputs, "region-selection", "boxes")
        best = scores.argmax(1)
        sizes = picture_sides(batch)
        chosen = boxes[torch.arange(len(best), device=best.device), best] * sizes
        known = {"box", "pixel_box"} & set(batch.targets)
        targets = target_boxes(batch, chosen) * sizes if known else chosen
        rows: list[dict[str, Any]] = []
        for number, key in enumerate(batch.keys):
            row = {"key": key, "prediction": chosen[number].tolist(), "score": float(scores[number, best[number]])}
            if known:
                real = boxes[number][scores[number] > torch.finfo(scores.dtype).min] * sizes[number]
                overlap = self._overlap(chosen[number], targets[number])
                hits = [self._hit(one) for one in self._overlaps(real, targets[number])]
                row |= {"overlap": overlap, "correct": self._hit(overlap), "chance": sum(hits) / max(1, len(hits))}
            if "kind" in batch.targets:
                row["kind"] = batch.targets["kind"][number]
            rows.append(row)
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        known = [row for row in predictions if "correct" in row]
        if not known:
            return {}
        found = self._shares(known, "")
        for kind in sorted({row["kind"] for row in known if "kind" in row}):
            found |= self._shares([row for row in known if row.get("kind") == kind], f"/{kind}")
        return found

    @staticmethod
    def _shares(rows: list[dict[str, Any]], kind: str) -> dict[str, float]:
        found = {f"accuracy{kind}": sum(row["correct"] for row in rows) / len(rows)}
        if all("chance" in row for row in rows):
            found[f"{CHANCE}/accuracy{kind}"] = sum(row["chance"] for row in rows) / len(rows)
        return found

    def _overlap(self, box: Tensor, target: Tensor) -> float:
        return self._overlaps(box[None], target)[0]

    def _overlaps(self, boxes: Tensor, target: Tensor) -> list[float]:
        # Of boxes (R, 4) with one box (4,)
        from torchvision.ops import box_iou  # its import takes as long as torch's

        more = torch.tensor([0.0, 0.0, 1.0, 1.0]).to(boxes) if self.pixels else 0.0
        found: list[float] = box_iou(boxes + more, (target + more)[None])[:, 0].tolist()
        return found

    def _hit(self, overlap: float) -> bool:
        return overlap >= self.overlap if self.reached else overlap > self.overlap
