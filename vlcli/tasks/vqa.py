"""VQA v2: answer a question about a picture, scored by the official rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcli.data.answers import best_answer
from vlcli.files import write_json
from vlcli.metrics import vqa
from vlcli.metrics.baseline import most_frequent
from vlcli.metrics.nlvr2 import by_kind
from vlcli.nn.batch import Batch
from vlcli.objectives.blanking import Only
from vlcli.registry import Spec
from vlcli.tasks.answering import Answering, Loss, mean
from vlcli.tasks.outputs import target

_TYPES = ("answer_type", "question_type")


class VQA(Answering):
    """Answer questions; official accuracy, overall and by type of answer and question.

    Args:
        answers: file of the answer table under the data root; None: ``vqa/trainval_label2ans.json`` where it is there,
            else a table made of the training questions.
        min_count: an answer belongs to a table made of the questions if it is the chosen one of so many.
        loss: ``bce`` against soft scores, or ``ce`` against the best answer.
        only: ``text`` or ``images`` make the control that sees one modality.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for answers.
        source_answers: where training starts from weights that are not vlcli's: the file of the answers that the rows
            of their answer head stand for, a path from the current folder.
        smoothing: label smoothing of the loss ``ce``.
    """

    paper = "Goyal et al. 2017, Making the V in VQA Matter; Teney et al. 2018 (answer table, soft scores)"
    metric = "accuracy"
    eval_split = "val"
    usual_answers = 3129
    usual_table = "vqa/trainval_label2ans.json"
    facts_of_questions = ("question_id", *_TYPES)

    def __init__(
        self,
        *,
        answers: str | None = None,
        min_count: int = 9,
        loss: Loss = "bce",
        only: Only = "both",
        head: str | None = None,
        source_answers: str | None = None,
        smoothing: float = 0.0,
    ) -> None:
        self.min_count, self.smoothing = min_count, smoothing
        self.set_up(answers, loss, only, head, source_answers)

    def dataset(self) -> Spec:
        return {"name": "vqa"}

    def count(self, readers: list[Any]) -> tuple[str, ...]:
        # The answers that most people gave to ``min_count`` training questions or more
        targets = (example.targets for reader in readers for example in reader.examples())
        best = ((best_answer(found), found.get("answer_form") == "plain") for found in targets)
        counts = Counter(answer if plain else vqa.table_form(answer) for answer, plain in best if answer is not None)
        return vqa.answer_vocabulary(counts, self.min_count)

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
        # The answers; where the true ones are known, ``accuracy``, and as ``answers`` that of each true one
        rows = super().answered(batch, answers, scores)
        given = zip(rows, target(batch, "raw_answers"), target(batch, "answers"), strict=True)
        for row, people, soft in given:
            if people:
                row |= {"accuracy": vqa.accuracy(row["prediction"], people), "answers": vqa.accuracies(people)}
            elif soft is not None:
                spelt = vqa.set_form if row.get("answer_type") == "set" else vqa.table_form
                form = row["prediction"] if row["prediction"] in soft else spelt(row["prediction"])
                row |= {"accuracy": float(soft.get(form, 0.0)), "answers": dict(soft)}
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "accuracy" in row]
        if not rows:
            return {}
        found = {"accuracy": mean(rows, "accuracy"), **most_frequent(rows)}
        for kind in _TYPES:
            found |= {f"accuracy/{name}": value for name, value in by_kind(rows, kind, "accuracy").items()}
            found |= most_frequent(rows, kind)
        return found

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # ``vqa.json``: a list of ``question_id`` and ``answer``
        rows = [
            {"question_id": _number(row.get("question_id", row["key"])), "answer": row["prediction"]}
            for row in predictions
        ]
        return [write_json(folder / "vqa.json", rows)]


def _number(question: Any) -> Any:
    return int(question) if str(question).isdecimal() else question
