"""Classification with labels of one's own: any data set whose examples have a label."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from vlcli.metrics.nlvr2 import accuracy, by_kind
from vlcli.nn.batch import Batch
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Result, Runner, Task
from vlcli.tasks.outputs import logits_of, target


class Classification(Task):
    """Classify a sentence with one picture or several into the labels of the data.

    Args:
        images: pictures an example has.
        only: ``text`` or ``images`` make the control that sees one modality.
        head: a head of ``vlcli.nn.heads``; None takes the model's own.
    """

    metric = "accuracy"
    eval_split = "test"

    def __init__(self, *, images: int = 1, only: Only = "both", head: str | None = None) -> None:
        self.images, self.only, self.head = images, only, head
        self.names: tuple[str, ...] = ()

    def objectives(self) -> list[Spec]:
        """Classification into the strings that :meth:`labels` finds."""
        spec: Spec = {"name": "classification", "images": self.images}
        if self.only != "both":
            spec["only"] = self.only
        return [spec if self.head is None else {**spec, "head": self.head}]

    def dataset(self) -> Spec:
        """JSON lines with the columns ``text``, ``image`` and ``label``."""
        return {"name": "jsonl"}

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        """Every label of the training data; numbers in their order, then strings in theirs."""
        given = (example.targets.get("label") for reader in readers for example in reader.examples())
        found = {str(label) for label in given if label not in (None, "")}
        return tuple(
            sorted(found, key=lambda label: (not label.isdecimal(), label.rjust(20) if label.isdecimal() else label))
        )

    def evaluate(self, runner: Runner) -> Result:
        """The usual loop, with the label strings the model was trained on."""
        self.names = runner.facts.answers
        return super().evaluate(runner)

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        """``prediction`` (the label), ``score`` (its probability) and ``correct`` where the label is known."""
        score, chosen = logits_of(outputs, "classification").float().softmax(-1).max(-1)
        rows = []
        facts = zip(batch.keys, chosen.tolist(), score.tolist(), target(batch, "label"), strict=True)
        for key, place, chance, label in facts:
            name = self.names[place] if self.names else str(place)
            row: dict[str, Any] = {"key": key, "prediction": name, "score": chance}
            if label not in (None, ""):
                row |= {"label": str(label), "correct": name == str(label)}
            rows.append(row)
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Accuracy, overall and by label."""
        rows = [row for row in predictions if "correct" in row]
        if not rows:
            return {}
        per_label = {f"accuracy/{name}": value for name, value in by_kind(rows, "label").items()}
        return {"accuracy": accuracy([row["correct"] for row in rows]), **(per_label if len(per_label) <= 20 else {})}


def _order(label: str) -> tuple[bool, int, str]:
    number = label.isdecimal()
    return not number, int(label) if number else 0, label
