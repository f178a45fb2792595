"""Region labels: class and attribute of given boxes (what trains the backbone that extracts features)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vlcli.metrics.baseline import NAME, most_frequent
from vlcli.nn.batch import Batch
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.outputs import logits_of


class RegionLabels(Task):
    """Class and attribute accuracy on given boxes.

    Args:
        attributes: how much the attribute loss counts in training; 0 leaves attributes out.
    """

    requires = frozenset({"boxes"})
    metric = "class_accuracy"
    eval_split = "val"

    def __init__(self, *, attributes: float = 1.0) -> None:
        self.attributes = attributes

    def objectives(self) -> list[Spec]:
        return [{"name": "region-labels", "attributes": self.attributes}]

    def dataset(self) -> Spec:
        return {"name": "coco-instances"}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # Per picture: ``prediction`` (class of each box), and how many boxes are right of how many known
        images = batch.clean.images
        assert images is not None
        assert images.pixels is not None
        rows: list[dict[str, Any]] = [{"key": key} for key in batch.keys]
        pixels = images.pixels.select(batch.clean.image_rows[:, 0].cpu())
        sides = {"class": pixels.classes, "attribute": pixels.attributes}
        for side, truth in sides.items():
            if truth is None or (side == "attribute" and not self._has(outputs, "attribute_logits")):
                continue
            chosen = logits_of(outputs, "region-labels", f"{side}_logits").argmax(-1)  # (B, R)
            self._fill(rows, side, chosen, truth.to(chosen.device), pixels.box_mask)
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        found = {}
        for side in ("class", "attribute"):
            known = sum(row.get(f"{side}_boxes", 0) for row in predictions)
            if known:
                name = f"{side}_accuracy"
                found[name] = sum(row.get(f"{side}_right", 0) for row in predictions) / known
                labels = [label for row in predictions for label in row.get(f"{side}_labels", ()) if label >= 0]
                found |= {f"{NAME}/{name}": share for share in most_frequent({"label": n} for n in labels).values()}
        return found

    @staticmethod
    def _has(outputs: dict[str, dict[str, Tensor]], key: str) -> bool:
        return any(key in found for found in outputs.values())

    @staticmethod
    def _fill(rows: list[dict[str, Any]], side: str, chosen: Tensor, truth: Tensor, mask: Tensor | None) -> None:
        real = torch.ones_like(truth, dtype=torch.bool) if mask is None else mask.to(truth.device)
        known = real & (truth >= 0)
        right = (known & (chosen == truth)).sum(1).tolist()
        for row, choice, own, there, hits, count in zip(
            rows, chosen.tolist(), truth.tolist(), real.tolist(), right, known.sum(1).tolist(), strict=True
        ):
            row[side] = [label for label, exists in zip(choice, there, strict=True) if exists]
            row[f"{side}_labels"] = [label for label, exists in zip(own, there, strict=True) if exists]
            row |= {f"{side}_right": hits, f"{side}_boxes": count}
