"""Region labels: scores class and attribute of given boxes, which train a region backbone."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vlcli.data.numbering import class_names
from vlcli.errors import DataError
from vlcli.metrics.baseline import NAME, most_frequent
from vlcli.nn import Batch, DataSpec
from vlcli.registry import Spec
from vlcli.tasks.base import Examples, Task
from vlcli.tasks.outputs import logits_of


class RegionLabels(Task):
    """Class and attribute accuracy on given boxes.

    Args:
        attributes: how much the attribute loss counts in training; 0 leaves attributes out.
    """

    requires = frozenset({"boxes"})
    metric = "class_accuracy"
    eval_split = "val"
    usual_data = "coco-instances"

    def __init__(self, *, attributes: float = 1.0) -> None:
        self.attributes = attributes
        self.names: tuple[str, ...] = ()

    def attach(self, data_spec: DataSpec) -> None:
        self.names = tuple(data_spec.class_names)

    def read(self, runner: Examples) -> None:
        """Refuse data whose classes have other numbers than those that the model was trained with."""
        names = class_names(runner.data.readers)
        if names and self.names and names != self.names[: len(names)]:
            raise DataError(
                "The classes of the boxes have other numbers than in training.",
                where=", ".join(reader.label for reader in runner.data.readers),
                got=f"{', '.join(names[:4])} ...",
                expected=f"{', '.join(self.names[:4])} ...",
                hint="give every file the same categories in the same order",
            )

    def objectives(self) -> list[Spec]:
        return [{"name": "region-labels", "attributes": self.attributes}]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # per picture: class of each box, and how many boxes are right of how many known; the same of attributes
        images = batch.clean.images
        assert images is not None
        assert images.pixels is not None
        rows: list[dict[str, Any]] = [{"key": key} for key in batch.keys]
        pixels = images.pixels.select(batch.clean.image_rows[:, 0].cpu())
        for side, labels in (("class", pixels.classes), ("attribute", pixels.attributes)):
            absent = side == "attribute" and not any("attribute_logits" in tensors for tensors in outputs.values())
            if labels is None or absent:
                continue
            chosen = logits_of(outputs, "region-labels", f"{side}_logits").argmax(-1)  # (B, R)
            truth = labels.to(chosen.device)
            real = (
                torch.ones_like(truth, dtype=torch.bool)
                if pixels.box_mask is None
                else pixels.box_mask.to(truth.device)
            )
            known = real & (truth >= 0)
            right, counts = (known & (chosen == truth)).sum(1).tolist(), known.sum(1).tolist()
            for number, row in enumerate(rows):
                row[side] = chosen[number][real[number]].tolist()
                row[f"{side}_labels"] = truth[number][real[number]].tolist()
                row.update({f"{side}_right": right[number], f"{side}_boxes": counts[number]})
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Return accuracy over all boxes with a known label, beside that of the most frequent one."""
        metrics = {}
        for side in ("class", "attribute"):
            known = sum(row.get(f"{side}_boxes", 0) for row in predictions)
            if known:
                name = f"{side}_accuracy"
                metrics[name] = sum(row.get(f"{side}_right", 0) for row in predictions) / known
                labels = [label for row in predictions for label in row.get(f"{side}_labels", ()) if label >= 0]
                metrics |= {f"{NAME}/{name}": share for share in most_frequent({"label": n} for n in labels).values()}
        return metrics
