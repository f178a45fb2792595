"""Referring expressions: find the region that a sentence speaks of."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_iou

from vlcli.nn.batch import Batch
from vlcli.objectives.region_selection import target_boxes
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
        """A score a region."""
        return [{"name": "region-selection", "loss": self.loss, "overlap": self.overlap}]

    def dataset(self) -> Spec:
        """RefCOCO+."""
        return {"name": "refcoco"}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        """Per expression: ``prediction`` (the box in pixels), ``score``, ``overlap``, ``correct``."""
        scores = logits_of(outputs, "region-selection", "scores")
        boxes = logits_of(outputs, "region-selection", "boxes")
        best = scores.argmax(1)
        view = batch.clean
        assert view.images is not None
        assert view.images.regions is not None
        sizes = view.images.regions.sizes[view.image_rows[:, 0]].flip(1).repeat(1, 2)  # (B, 4) width, height, ...
        chosen = boxes[torch.arange(len(best), device=best.device), best] * sizes
        rows: list[dict[str, Any]] = []
        for number, key in enumerate(batch.keys):
            row = {"key": key, "prediction": chosen[number].tolist(), "score": float(scores[number, best[number]])}
            if "box" in batch.targets:
                overlap = self._overlap(chosen[number], target_boxes(batch, chosen)[number] * sizes[number])
                row |= {"overlap": overlap, "correct": self._hit(overlap)}
            if "kind" in batch.targets:
                row["kind"] = batch.targets["kind"][number]
            rows.append(row)
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Accuracy over all expressions, and by kind."""
        known = [row for row in predictions if "correct" in row]
        if not known:
            return {}
        found = {"accuracy": sum(row["correct"] for row in known) / len(known)}
        for kind in sorted({row["kind"] for row in known if "kind" in row}):
            part = [row["correct"] for row in known if row.get("kind") == kind]
            found[f"accuracy/{kind}"] = sum(part) / len(part)
        return found

    def _overlap(self, box: Tensor, target: Tensor) -> float:
        more = torch.tensor([0.0, 0.0, 1.0, 1.0]).to(box) if self.pixels else 0.0
        return float(box_iou((box + more)[None], (target + more)[None]))

    def _hit(self, overlap: float) -> bool:
        return overlap >= self.overlap if self.reached else overlap > self.overlap
