"""Multiple choice: the answer of a question's own choices that scores highest (A-OKVQA, Visual7W, ScienceQA)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from vlcli.data.answers import AnswerList
from vlcli.files import write_json
from vlcli.metrics.baseline import CHANCE
from vlcli.metrics.vqa import same, table_form
from vlcli.nn.batch import Batch
from vlcli.objectives.base import full_precision
from vlcli.registry import Spec
from vlcli.tasks.answering import mean
from vlcli.tasks.outputs import logits_of, target
from vlcli.tasks.vqa import VQA


class MultipleChoice(VQA):
    """Choose one of the choices that a question comes with, by the scores of the answer table; accuracy.

    The data name the choices: ``choices: COLUMN`` of tables. A choice that the table lacks is chosen only if it lacks
    all of them, and then the first is. The options are those of ``vqa``.
    """

    paper = "Schwenk et al. 2022, A-OKVQA: A Benchmark for Visual Question Answering using World Knowledge"

    def dataset(self) -> Spec:
        columns = {"text": "question", "id": "question_id", "answers": "direct_answers", "choices": "choices"}
        return {"name": "json", "file": "aokvqa_v1p0_{split}.json", "image": "{image_id:012}.jpg", **columns}

    def decode(self, outputs: dict[str, dict[str, Tensor]], batch: Batch) -> list[dict[str, Any]]:
        # ``prediction`` (the choice) and ``score`` (its logit); where the right one is known, ``correct``
        logits = full_precision(logits_of(outputs, "answering", classes=len(self.answers))).tolist()
        table = AnswerList(self.answers)
        chosen = []
        for row, choices in zip(logits, target(batch, "choices"), strict=True):
            places = [table.find(table_form(choice)) for choice in choices or ()]
            scores = [float("-inf") if place is None else row[place] for place in places]
            best = max(range(len(scores)), key=lambda k: scores[k], default=None)
            chosen.append(("", 0.0) if best is None or choices is None else (choices[best], max(scores[best], -1e9)))
        return self.answered(batch, [word for word, _ in chosen], [score for _, score in chosen])

    def answered(self, batch: Batch, answers: Sequence[str], scores: Sequence[float]) -> list[dict[str, Any]]:
        rows = super(VQA, self).answered(batch, answers, scores)
        for row, choices, right in zip(rows, target(batch, "choices"), target(batch, "choice"), strict=True):
            if right is not None:
                hit = same(row["prediction"], right)
                row |= {"label": right, "correct": hit, "accuracy": float(hit), "chance": 1 / len(choices)}
        return rows

    def score(self, predictions: list[dict[str, Any]]) -> dict[str, float]:
        rows = [row for row in predictions if "correct" in row]
        return {"accuracy": mean(rows, "accuracy"), f"{CHANCE}/accuracy": mean(rows, "chance")} if rows else {}

    def submission(self, predictions: list[dict[str, Any]], folder: Path) -> list[Path]:
        # ``multiple_choice.json``: ``{"multiple_choice": CHOICE}`` by ``question_id``, A-OKVQA's form
        found = {str(row.get("question_id", row["key"])): {"multiple_choice": row["prediction"]} for row in predictions}
        return [write_json(folder / "multiple_choice.json", found)]
