"""What tasks of question answering share: an answer table, classification over it, predictions by string."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from torch import Tensor

from vlcli.data.answers import read_answers, table_file
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec
from vlcli.objectives.base import full_precision
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.base import Predict, Task
from vlcli.tasks.outputs import likeliest, logits_of, target

Loss = Literal["bce", "ce"]


class Answering(Task):
    """Base of tasks that choose an answer of a table. The usual one overrides ``count``, ``dataset`` and ``score``."""

    usual_table: ClassVar[str] = ""  # Where the authors' data folder has the published table
    facts_of_questions: ClassVar[tuple[str, ...]] = ("question_id",)  # Targets that predictions keep
    answers_file: str | None = None
    smoothing: float = 0.0  # Label smoothing of the loss ``ce``

    def set_up(self, answers: str | None, loss: Loss, only: Only, head: str | None, source_answers: str | None) -> None:
        """Keep the parameters that these tasks share."""
        self.answers_file = answers
        self.loss, self.only, self.head, self.source_answers = loss, only, head, source_answers
        self.answers: tuple[str, ...] = ()

    def objectives(self) -> list[Spec]:
        spec: Spec = {"name": "answering", "loss": self.loss}
        spec |= {"only": self.only} if self.only != "both" else {}
        spec |= {"head": self.head} if self.head is not None else {}
        spec |= {"smoothing": self.smoothing} if self.smoothing else {}
        return [spec | ({"source_answers": self.source_answers} if self.source_answers is not None else {})]

    def labels(self, readers: list[Any]) -> tuple[str, ...]:
        file = table_file(self.answers_file, readers, self.usual_table) if self.usual_table else None
        return self.count(readers) if file is None else read_answers(file).strings

    def count(self, readers: list[Any]) -> tuple[str, ...]:
        """The answers of the training questions that are worth a row."""
        raise NotImplementedError(f"{type(self).__name__} makes no table")

    def attach(self, data_spec: DataSpec) -> None:
        self.answers = data_spec.answers

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (the answer), ``score`` (its logit), and what the data say of the question
        score, chosen = full_precision(logits_of(outputs, "answering", classes=len(self.answers))).max(-1)
        return self.answered(batch, [self.answers[place] for place in chosen.tolist()], score.tolist())

    def judge(self, predictions: list[dict[str, Any]], batch: Batch) -> list[dict[str, Any]]:
        answers = [str(row["prediction"]) for row in predictions]
        return self.answered(batch, answers, [row.get("score", 0.0) for row in predictions])

    def probabilities(self, step: ForwardPasses, predict: Predict, tokenizer: Any) -> list[list[tuple[str, float]]]:
        # Answers of the table: each by its own sigmoid where ``loss`` is ``bce``, else by a softmax
        logits = full_precision(logits_of(predict(step), "answering", classes=len(self.answers)))
        return likeliest(self.answers, logits.sigmoid() if self.loss == "bce" else logits.softmax(-1))

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
        """A prediction of every question, with what the data say of it."""
        rows: list[dict[str, Any]] = [
            {"key": key, "prediction": answer, "score": value}
            for key, answer, value in zip(batch.keys, answers, scores, strict=True)
        ]
        for name in self.facts_of_questions:
            for row, value in zip(rows, target(batch, name), strict=True):
                row.update({} if value is None else {name: value})
        return rows


def mean(rows: Sequence[dict[str, Any]], key: str) -> float:
    """The mean of a field; 0 of none."""
    return sum(float(row[key]) for row in rows) / len(rows) if rows else 0.0
