"""NLVR2: is the sentence true of the two pictures?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import Tensor

from vlcli.errors import DataError, shown
from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.nlvr2 import accuracy, by_kind, consistency
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.objectives.base import full_precision
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Predict, Task
from vlcli.tasks.outputs import likeliest, logits_of, target, write_csv


class NLVR2(Task):
    """Whether a sentence is true of a pair of pictures; accuracy and consistency.

    Args:
        only: ``text`` or ``images`` make the control that sees one modality, in training and in evaluation.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for pairs.
    """

    paper = "Suhr et al. 2019, A Corpus for Reasoning about Natural Language Grounded in Photographs"
    metric = "accuracy"
    eval_split = "dev"
    images = 2

    def __init__(self, *, only: Only = "both", head: str | None = None) -> None:
        self.only, self.head = only, head

    def objectives(self) -> list[Spec]:
        spec: Spec = {"name": "classification", "classes": 2, "images": 2}
        if self.only != "both":
            spec["only"] = self.only
        return [spec if self.head is None else {**spec, "head": self.head}]

    def dataset(self) -> Spec:
        return {"name": "nlvr2"}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (bool) and ``score``, the probability of True; ``correct`` where the label is known
        chances = full_precision(logits_of(outputs, "classification", classes=2)).softmax(-1)[:, 1].tolist()
        names = [given or key for given, key in zip(target(batch, "identifier"), batch.keys, strict=True)]
        labels, kinds = target(batch, "label"), target(batch, "kind")
        return [_row(name, p > 0.5, p, *facts) for name, p, *facts in zip(names, chances, labels, kinds, strict=True)]

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        names = [given or key for given, key in zip(target(batch, "identifier"), batch.keys, strict=True)]
        facts = zip(names, predictions, target(batch, "label"), target(batch, "kind"), strict=True)
        return [_row(name, _verdict(row), row.get("score"), label, kind) for name, row, label, kind in facts]

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        chances = full_precision(logits_of(predict(step), "classification", classes=2)).softmax(-1)
        return likeliest(("False", "True"), chances)

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        right = [row["correct"] for row in rows]
        found = {"accuracy": accuracy(right), **most_frequent(rows)}
        found["consistency"] = consistency((row["key"] for row in rows), right)
        kinds = {f"accuracy/{kind}": value for kind, value in by_kind(rows, "kind").items()}
        return found | kinds | most_frequent(rows, "kind")

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # ``nlvr2.csv``: a line ``identifier,True`` or ``identifier,False`` each
        return [write_csv(folder / "nlvr2.csv", [(row["key"], row["prediction"]) for row in predictions])]


def _verdict(row: dict[str, Any]) -> bool:
    said = str(row["prediction"]).strip().lower()
    if said not in ("true", "false"):
        what = "A prediction is no verdict."
        raise DataError(what, where=str(row.get("key", "")), got=shown(row["prediction"], 60), expected="true or false")
    return said == "true"


def _row(name: str, verdict: bool, chance: float | None, label: Any, kind: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"key": name, "prediction": verdict} | ({} if chance is None else {"score": chance})
    if label is not None and label != -1:
        row |= {"label": bool(label), "correct": verdict == bool(label)}
    return row if kind in (None, "") else {**row, "kind": kind}
