"""NLVR2: whether a sentence is true of two pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from vlcli.errors import DataError, shown
from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.nlvr2 import accuracy, by_kind, consistency
from vlcli.nn import Batch, ForwardPasses
from vlcli.objectives.base import full_precision
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Predict, Task
from vlcli.tasks.outputs import likeliest, logits_of, target, with_target, write_csv


class NLVR2(Task):
    """Whether a sentence is true of a pair of pictures; accuracy and consistency.

    Args:
        only: ``text`` or ``images`` make the control that sees one modality, in training and in evaluation.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for pairs.
    """

    paper = "Suhr et al. 2019, A Corpus for Reasoning about Natural Language Grounded in Photographs"
    metric = "accuracy"
    eval_split = "dev"
    usual_data = "nlvr2"
    images = 2

    def __init__(self, *, only: Only = "both", head: str | None = None) -> None:
        self.only, self.head = only, head

    def objectives(self) -> list[Spec]:
        spec: Spec = {"name": "classification", "classes": 2, "images": 2}
        spec |= {"only": self.only} if self.only != "both" else {}
        return [spec | ({} if self.head is None else {"head": self.head})]

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (bool) and ``score``, the probability of True; ``correct`` where the label is known
        scores = full_precision(logits_of(outputs, "classification", classes=2)).softmax(-1)[:, 1].tolist()
        return self.judge([{"prediction": score > 0.5, "score": score} for score in scores], batch)

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        rows = []
        facts = zip(target(batch, "identifier"), batch.keys, predictions, target(batch, "label"), strict=True)
        for identifier, key, prediction, label in facts:
            said = str(prediction["prediction"]).strip().lower()
            if said not in ("true", "false"):
                got, where = shown(prediction["prediction"], 60), str(prediction.get("key", ""))
                raise DataError("A prediction is no verdict.", where=where, got=got, expected="true or false")
            row: dict[str, Any] = {"key": identifier or key, "prediction": said == "true"}
            row |= {} if prediction.get("score") is None else {"score": prediction["score"]}
            if label is not None and label != -1:
                row |= {"label": bool(label), "correct": row["prediction"] == bool(label)}
            rows.append(row)
        return with_target(rows, batch, "kind")

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        logits = full_precision(logits_of(predict(step), "classification", classes=2))
        return likeliest(("False", "True"), logits.softmax(-1))

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        right = [row["correct"] for row in rows]
        metrics = {"accuracy": accuracy(right), **most_frequent(rows)}
        metrics["consistency"] = consistency((row["key"] for row in rows), right)
        kinds = {f"accuracy/{kind}": value for kind, value in by_kind(rows, "kind").items()}
        return metrics | kinds | most_frequent(rows, "kind")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        return [write_csv(folder / "nlvr2.csv", [(row["key"], row["prediction"]) for row in predictions])]
