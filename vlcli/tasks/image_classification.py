"""Classification of pictures alone: ImageNet and its like."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.nlvr2 import accuracy, by_kind
from vlcli.nn.batch import Batch
from vlcli.objectives.base import full_precision
from vlcli.registry import Spec
from vlcli.tasks.classification import Classification
from vlcli.tasks.outputs import logits_of, target

FEW = 20  # So many classes are also scored one by one


class ImageClassification(Classification):
    """Classify pictures: top-1 and top-5 accuracy.

    Args:
        head: a head of ``vlcli.nn.heads``, for a model without a classifier of its own.
    """

    paper = "Russakovsky et al. 2015, ImageNet Large Scale Visual Recognition Challenge"
    requires = frozenset({"image"})
    metric = "top1"
    eval_split = "val"
    usual_answers = 1000

    def __init__(self, *, head: str | None = None) -> None:
        super().__init__(head=head)

    def objectives(self) -> list[Spec]:
        return [{"name": "image-classification", **({"head": self.head} if self.head else {})}]

    def dataset(self) -> Spec:
        return {"name": "imagenet"}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction``, ``score``, the five best as ``top``, and whether they hold the label
        logits = logits_of(outputs, "image-classification", classes=len(self.names) or None)
        scores, places = full_precision(logits).softmax(-1).topk(min(5, logits.shape[-1]))
        facts = zip(batch.keys, places.tolist(), scores[:, 0].tolist(), target(batch, "label"), strict=True)
        return [self._ranked(*row) for row in facts]

    def _ranked(self, key: str, places: list[int], chance: float, label: Any) -> dict[str, Any]:
        row = self._row(key, places[0], chance, None if isinstance(label, list) else label)
        row["top"] = [self.names[place] if self.names else str(place) for place in places]
        return {**row, "in_top": row["label"] in row["top"]} if "label" in row else row

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # Labels, with the five best as ``top``; without them, the one label stands for all
        rows = super().judge(predictions, batch)
        for row in rows:
            row.setdefault("top", [row["prediction"]])
        return [{**row, "in_top": row["label"] in row["top"]} if "label" in row else row for row in rows]

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # ``top1`` beside that of the most frequent label, ``top5``, and top-1 by label where there are few
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        found = {
            "top1": accuracy([row["correct"] for row in rows]),
            **most_frequent(rows),
            "top5": accuracy([row["in_top"] for row in rows]),
        }
        parts = {f"top1/{name}": value for name, value in by_kind(rows, "label").items()}
        return {**found, **(parts if len(parts) <= FEW else {})}
