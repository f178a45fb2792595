"""GQA: compositional questions about pictures, with one answer each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.answers import best_answer
from vlcli.files import write_json
from vlcli.metrics import gqa
from vlcli.metrics.vqa import same
from vlcli.nn.batch import Batch
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.answering import Answering, Loss
from vlcli.tasks.base import Examples, Find, Result, Runner


class GQA(Answering):
    """Answer questions; accuracy, by type, and what else the official evaluation finds.

    ``binary`` and ``open``, ``consistency`` and ``distribution`` come where the question file says enough, ``validity``
    and ``plausibility`` where the file of choices is there.

    Args:
        answers: file of the answer table under the data root; None: ``gqa/trainval_label2ans.json`` where it is there,
            else the answers of the training questions.
        min_count: an answer belongs to a table made of the questions if it is that of so many.
        loss: ``bce``, or ``ce`` against the one answer.
        only: ``text`` or ``images`` make the control that sees one modality.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for answers.
        source_answers: where training starts from weights that are not vlcli's: the file of the answers that the rows
            of their answer head stand for, a path from the current folder.
    """

    paper = "Hudson and Manning 2019, GQA: A New Dataset for Real-World Visual Reasoning"
    metric = "accuracy"
    joint = True
    eval_split = "testdev"
    usual_answers = 1842
    usual_table = "gqa/trainval_label2ans.json"
    facts_of_questions: ClassVar[tuple[str, ...]] = (
        "question_id",
        "answer",
        "structural",
        "semantic",
        "detailed",
        "group",
        "balanced",
        "entailed",
    )

    def __init__(
        self,
        *,
        answers: str | None = None,
        min_count: int = 1,
        loss: Loss = "bce",
        only: Only = "both",
        head: str | None = None,
        source_answers: str | None = None,
    ) -> None:
        self.min_count = min_count
        self.choices: dict[str, dict[str, list[str]]] = {}
        self.set_up(answers, loss, only, head, source_answers)

    def dataset(self) -> Spec:
        return {"name": "gqa"}

    def count(self, readers: list[Any]) -> tuple[str, ...]:
        # The answers of ``min_count`` training questions or more, in alphabetical order
        counts: dict[str, int] = {}
        for reader in readers:
            for example in reader.examples():
                if (answer := best_answer(example.targets)) is not None:
                    counts[answer] = counts.get(answer, 0) + 1
        return tuple(sorted(answer for answer, count in counts.items() if count >= self.min_count))

    def evaluate(self, runner: Runner) -> Result:
        self._read_choices(runner)
        return super().evaluate(runner)

    def rescore(self, find: Find, runner: Examples) -> Result:
        self._read_choices(runner)
        return super().rescore(find, runner)

    def _read_choices(self, runner: Examples) -> None:
        readers = getattr(runner.data, "readers", ())
        self.choices = {
            key: row for reader in readers if hasattr(reader, "choices") for key, row in reader.choices().items()
        }

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
        # The answers, with ``correct`` where the true one is known
        rows = super().answered(batch, answers, scores)
        for row in rows:
            if "answer" in row:
                row["correct"] = same(row["prediction"], str(row["answer"]))
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        return gqa.scores([row for row in predictions if "answer" in row], self.choices)

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # ``gqa.json``: a list of ``questionId`` and ``prediction``
        rows = [
            {"questionId": str(row.get("question_id", row["key"])), "prediction": row["prediction"]}
            for row in predictions
        ]
        return [write_json(folder / "gqa.json", rows)]
