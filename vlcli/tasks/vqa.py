"""VQA v2: answer a question about a picture, scored by the official rule."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from vlcli.metrics import vqa
from vlcli.metrics.nlvr2 import by_kind
from vlcli.nn.batch import Batch
from vlcli.nn.model import Facts
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Task
from vlcli.tasks.outputs import logits_of, target, write_json

_TYPES = ("answer_type", "question_type")


class VQA(Task):
    """Answer questions; official accuracy, overall and by type of answer and question.

    Args:
        min_count: an answer belongs to the table if it is the most common one of so many training questions.
        loss: ``bce`` against soft scores, or ``ce`` against the best answer.
        only: ``text`` or ``images`` make the control that sees one modality.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for answers.
    """

    paper = "Goyal et al. 2017, Making the V in VQA Matter; Teney et al. 2018 (answer table, soft scores)"
    metric = "accuracy"
    eval_split = "val"
    usual_answers = 3129

    def __init__(
        self,
        *,
        min_count: int = 9,
        loss: Literal["bce", "ce"] = "bce",
        only: Only = "both",
        head: str | None = None,
    ) -> None:
        self.min_count, self.loss, self.only, self.head = min_count, loss, only, head
        self.answers: tuple[str, ...] = ()

    def objectives(self) -> list[Spec]:
        """Classification over the answer table."""
        spec: Spec = {"name": "answering", "loss": self.loss}
        if self.only != "both":
            spec["only"] = self.only
        return [spec if self.head is None else {**spec, "head": self.head}]

    def dataset(self) -> Spec:
        """The official question and annotation files."""
        return {"name": "vqa"}

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        """The answer table: best answers of the training questions, ``min_count`` times or more."""
        counts = Counter(
            vqa.normalise(_best(answers))
            for reader in readers
            for example in reader.examples()
            if (answers := example.targets.get("answers"))
        )
        return vqa.answer_vocabulary(counts, self.min_count)

    def attach(self, facts: Facts) -> None:
        """The answer table the model was trained on."""
        self.answers = facts.answers

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        """``prediction`` (the answer), ``score`` (its logit) and ``accuracy`` where people's answers are known."""
        score, chosen = logits_of(outputs, "answering", classes=len(self.answers)).float().max(-1)
        rows = [
            {"key": key, "prediction": self.answers[place], "score": value}
            for key, place, value in zip(batch.keys, chosen.tolist(), score.tolist(), strict=True)
        ]
        for name in ("question_id", *_TYPES):
            for row, value in zip(rows, target(batch, name), strict=True):
                row.update({} if value is None else {name: value})
        given = zip(rows, target(batch, "raw_answers"), target(batch, "answers"), strict=True)
        for row, people, soft in given:
            if people:
                row["accuracy"] = vqa.accuracy(row["prediction"], people)
            elif soft is not None:
                row["accuracy"] = float(soft.get(row["prediction"], 0.0))
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        """Official accuracy, by answer type, and by question type where there are few."""
        rows = [row for row in predictions if "accuracy" in row]
        if not rows:
            return {}
        found = {"accuracy": sum(row["accuracy"] for row in rows) / len(rows)}
        for kind in _TYPES:
            found |= {f"accuracy/{name}": value for name, value in by_kind(rows, kind, "accuracy").items()}
        return found

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        """``vqa.json``: a list of ``question_id`` and ``answer``."""
        rows = [
            {"question_id": _number(row.get("question_id", row["key"])), "answer": row["prediction"]}
            for row in predictions
        ]
        return [write_json(folder / "vqa.json", rows)]


def _best(answers: dict[str, float]) -> str:
    """The answer with the highest score; the first of several."""
    return max(answers, key=lambda answer: answers[answer])


def _number(question: Any) -> Any:
    """Question ids are integers in the official files."""
    return int(question) if str(question).isdecimal() else question
