"""Image question answering as LXMERT pre-trains it: one drawn answer of a large table, on the shared pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from vlcli.data.answers import (
    ANSWER_TABLE_SIZE,
    AnswerList,
    build_answer_table,
    count_answers,
    read_answers,
    table_file,
)
from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives.answering import Answering, draws
from vlcli.objectives.base import Mean, ObjectiveOutput, full_precision
from vlcli.objectives.blanking import Only

USUAL = "lxmert/all_ans.json"  # Where the authors' data folder has the published table


class ImageQA(Answering):
    """Answer the questions among the sentences while pre-training; a softmax over the answer table.

    Each epoch draws one answer of a question in proportion to the scores, among those the table has. A sentence without
    an answer in the table, or one that matching put in place of the picture's own, has no part in the loss; a batch
    without any question costs nothing. Words and regions stay hidden as the other objectives hid them: all share one
    pass. The paper starts it at epoch 10 (``from_epoch: 10``), the released code at once.

    Args:
        model: gives the width and the head.
        data_spec: ``answers`` is the table.
        answers: file of the answer table under the data root; None: ``lxmert/all_ans.json`` where it is there, else a
            table made of the training questions.
        answer_sets: only the table's answers that belong to one of these data sets (``vqa``, ``gqa``, ``visual7w``).
        size: answers of a table that is made of the training questions.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for the role ``answer``.
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view it shares.
        source_answers: where the weights it starts from are not vlcli's: the file of the answers that their rows stand
            for, a path from the current folder.
    """

    paper = "LXMERT, Tan and Bansal 2019, section 3.1.3; airsplay/lxmert for sampling and the table"
    init_from = ("answering",)
    usual_answers = ANSWER_TABLE_SIZE

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        answers: str | None = None,
        answer_sets: list[str] | None = None,
        size: int = ANSWER_TABLE_SIZE,
        head: str | None = None,
        only: Only = "both",
        view: str = "corrupted",
        source_answers: str | None = None,
    ) -> None:
        super().__init__(
            model, data_spec, loss="ce", sample=True, head=head, only=only, view=view, source_answers=source_answers
        )
        self.rows = AnswerList(data_spec.answers)

    @classmethod
    def labels(cls, spec: Mapping[str, Any], readers: Sequence[Any]) -> tuple[str, ...]:
        file = table_file(spec.get("answers"), readers, USUAL)
        if file is None:
            return build_answer_table(count_answers(readers), int(spec.get("size", ANSWER_TABLE_SIZE)), {}).strings
        table = read_answers(file)
        return (table.only(spec["answer_sets"]) if spec.get("answer_sets") else table).strings

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        given = step.batch.targets.get("answers") or [None] * len(step.batch)
        name = self.seen(step)
        asked = self._rows(given, step.view(name).mask_labels.get("matched")).tolist()
        known = {row: found for row in asked if (found := self.known(given[row]))}
        rows = torch.tensor(list(known), dtype=torch.long)
        pooled = step.fused(name).by_example()
        logits = full_precision(self.head(pooled[rows.to(pooled.device)]))  # (Q, A)
        truth = torch.tensor(self._drawn(known.values(), step.batch.seeds[rows.to(step.batch.seeds.device)]))
        truth = truth.to(logits.device, torch.long)
        best = logits.argmax(1).tolist()
        score = [found.get(place, 0.0) for found, place in zip(known.values(), best, strict=True)]
        loss = Mean.of(functional.cross_entropy(logits, truth, reduction="none"))
        return ObjectiveOutput({"image-qa": loss}, metrics={"score": Mean.of(logits.new_tensor(score))})

    def known(self, answers: Mapping[str, float]) -> dict[int, float]:
        """Row -> score of the answers that the table has; of two that are one there, the higher score."""
        found: dict[int, float] = {}
        for answer, score in answers.items():
            place = self.rows.find(answer)
            if place is not None and score > found.get(place, 0.0):
                found[place] = float(score)
        return found

    @staticmethod
    def _drawn(known: Any, seeds: Tensor) -> list[int]:
        chosen = []
        for found, number in zip(known, draws(seeds), strict=True):
            left = number * sum(found.values())
            place = next(iter(found))
            for place, score in found.items():  # noqa: B007 (the last one where rounding leaves a rest)
                left -= score
                if left < 0:
                    break
            chosen.append(place)
        return chosen
