"""Several labels a picture: mean average precision."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vlcli.metrics.average_precision import average_precision
from vlcli.metrics.baseline import CHANCE
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.objectives.base import full_precision
from vlcli.registry import Spec
from vlcli.tasks.base import Predict
from vlcli.tasks.image_classification import ImageClassification
from vlcli.tasks.outputs import likeliest, logits_of, target


class MultiLabel(ImageClassification):
    """Say which classes a picture has; mean average precision over the classes that occur, and that of each class.

    Args:
        head: a head of ``vlcli.nn.heads``, for a model without a classifier of its own.
    """

    paper = "Everingham et al. 2010, The Pascal Visual Object Classes Challenge (classification)"
    metric = "map"
    eval_split = "test"
    usual_answers = 0

    def objectives(self) -> list[Spec]:
        return [{"name": "multi-label", **({"head": self.head} if self.head else {})}]

    def dataset(self) -> Spec:
        # CSV with the columns ``image`` and ``labels``
        return {"name": "csv", "label": ["labels"]}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``scores`` (probability by class) and ``prediction`` (the classes of at least a half)
        chances = full_precision(logits_of(outputs, "multi-label", classes=len(self.names) or None)).sigmoid()
        names = self.names or tuple(map(str, range(chances.shape[-1])))
        scores = [dict(zip(names, row, strict=True)) for row in chances.tolist()]
        return self.judge(
            [{"scores": row, "prediction": [n for n, c in row.items() if c >= 0.5]} for row in scores], batch
        )

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits = logits_of(predict(step), "multi-label", classes=len(self.names) or None)
        names = self.names or tuple(map(str, range(logits.shape[-1])))
        return likeliest(names, full_precision(logits).sigmoid())

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        # Names of classes, with ``scores`` by class where they are given; ``labels`` where they are known
        rows = []
        facts = zip(batch.keys, predictions, *(target(batch, name) for name in _TARGETS), strict=True)
        for key, given, labels, unknown, label in facts:
            said = given["prediction"] if isinstance(given["prediction"], list) else [str(given["prediction"])]
            row: dict[str, Any] = {
                "key": key,
                "prediction": said,
                "scores": given.get("scores") or dict.fromkeys(said, 1.0),
            }
            if labels is None and label is not None:
                labels = [self.words[label] if self.words and isinstance(label, int) else str(label)]  # noqa: PLW2901
            row |= {} if labels is None else {"labels": labels, **({"unknown_labels": unknown} if unknown else {})}
            rows.append(row)
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        # ``map`` over the classes that occur, ``ap`` of each, and what equal scores for all have: their share
        rows = [row for row in predictions if "labels" in row]
        names = self.names or tuple(dict.fromkeys(name for row in rows for name in [*row["scores"], *row["labels"]]))
        found, chance = {}, {}
        for name in names:
            known = [row for row in rows if name not in row.get("unknown_labels", ())]
            positive = [name in row["labels"] for row in known]
            if any(positive):
                found[f"ap/{name}"] = average_precision([row["scores"].get(name, 0.0) for row in known], positive)
                chance[f"{CHANCE}/ap/{name}"] = sum(positive) / len(positive)
        if not found:
            return {}
        means = {"map": sum(found.values()) / len(found), f"{CHANCE}/map": sum(chance.values()) / len(chance)}
        return {**means, **found, **chance}


_TARGETS = ("labels", "unknown_labels", "label")
