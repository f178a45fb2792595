"""Referring expressions: chooses the region that a sentence describes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vlcli.metrics.baseline import CHANCE
from vlcli.nn.batch import Batch
from vlcli.objectives.regions import picture_sides, target_boxes
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
    usual_data = "refcoco"

    def __init__(self, *, overlap: float = 0.5, reached: bool = False, pixels: bool = False, loss: str = "bce") -> None:
        self.overlap, self.reached, self.pixels, self.loss = overlap, reached, pixels, loss

    def objectives(self) -> list[Spec]:
        return [{"name": "region-selection", "loss": self.loss, "overlap": self.overlap}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # per expression: ``prediction`` (the box in pixels), ``score``, ``overlap``, ``correct``, ``chance``
        scores, boxes = (logits_of(outputs, "region-selection", name) for name in ("scores", "boxes"))
        best, sizes = scores.argmax(1), picture_sides(batch)
        chosen = boxes[torch.arange(len(best), device=best.device), best] * sizes  # (B, 4)
        known = {"box", "pixel_box"} & set(batch.targets)
        targets = target_boxes(batch, chosen) * sizes if known else chosen
        rows: list[dict[str, Any]] = []
        for number, key in enumerate(batch.keys):
            row = {"key": key, "prediction": chosen[number].tolist(), "score": float(scores[number, best[number]])}
            if known:
                real = boxes[number][scores[number] > torch.finfo(scores.dtype).min] * sizes[number]
                overlap = self.overlaps(chosen[number][None], targets[number])[0]
                hits = [self.is_hit(one) for one in self.overlaps(real, targets[number])]
                row |= {"overlap": overlap, "correct": self.is_hit(overlap), "chance": sum(hits) / max(1, len(hits))}
            if "kind" in batch.targets:
                row["kind"] = batch.targets["kind"][number]
            rows.append(row)
        return rows

    def overlaps(self, boxes: Tensor, target: Tensor) -> list[float]:
        """Return the intersection over union of boxes (R, 4) with one box (4,)."""
        from torchvision.ops import box_iou  # its import takes as long as torch's

        border = torch.tensor([0.0, 0.0, 1.0, 1.0]).to(boxes) if self.pixels else 0.0
        shares: list[float] = box_iou(boxes + border, (target + border)[None])[:, 0].tolist()
        return shares

    def is_hit(self, overlap: float) -> bool:
        """Return whether a region with this overlap counts as right."""
        return overlap >= self.overlap if self.reached else overlap > self.overlap

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        metrics: dict[str, float] = {}
        for kind in [None, *sorted({row["kind"] for row in rows if "kind" in row})] if rows else []:
            part = [row for row in rows if kind is None or row.get("kind") == kind]
            name = "accuracy" if kind is None else f"accuracy/{kind}"
            metrics[name] = sum(row["correct"] for row in part) / len(part)
            if all("chance" in row for row in part):
                metrics[f"{CHANCE}/{name}"] = sum(row["chance"] for row in part) / len(part)
        return metrics
