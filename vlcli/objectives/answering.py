"""Question answering as classification over an answer table, in fine-tuning and in LXMERT's pre-training."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.data.answers import (
    ANSWER_TABLE_SIZE,
    AnswerList,
    build_answer_table,
    count_answers,
    read_answers,
    table_file,
)
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Model, build_head
from vlcli.objectives.answers import KEY, AnswerTable, encode, entropy
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.blanking import Only, seen


class AnswerHead(Objective):
    """Base of objectives that choose an answer of the table.

    Args:
        head: a head of ``vlcli.nn.heads``; None: the model's own for the role ``answer``.
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view that is answered.
        source_answers: file of the answers of starting weights that are not vlcli's (``all_ans.json`` of LXMERT's
            release), under the data root or here; rows are taken over by string.
    """

    requires = frozenset({"fuse"})
    images = 1
    local_files = ("source_answers",)
    loss: Literal["bce", "ce"] = "ce"

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        head: str | None = None,
        only: Only = "both",
        view: str = "clean",
        source_answers: str | None = None,
    ) -> None:
        super().__init__(model, data_spec)
        if not data_spec.answers:
            where, expected = "objective answering", "data whose examples have answers, or an answer table"
            hint = "check `min_count` of the task against the size of the data"
            raise ComponentError("There is no answer to choose from.", where=where, expected=expected, hint=hint)
        self.only, self.view, self.source_answers = only, view, source_answers
        self.head = build_head(model, "answer", model.pooled_dim, len(data_spec.answers), head)
        self.table = AnswerTable(data_spec.answers)

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        return {"logits": self.head(step.fused(self.seen(step), rows="pooled").by_example())}

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        # the entropy of the answers; with ``bce`` of each by itself
        table = self.targets([one["answers"] for one in targets if isinstance(one.get("answers"), Mapping)])  # (Q, A)
        if not len(table):
            return None
        if self.loss == "ce":
            known = table[table.sum(1) > 0]
            return entropy(torch.bincount(known.argmax(1), minlength=table.shape[1])) if len(known) else None
        shares = table.mean(0).clamp(0, 1)
        return float(torch.special.entr(shares).sum() + torch.special.entr(1 - shares).sum())

    def seen(self, step: ForwardPasses) -> str:
        return seen(step, self.view, self.only)

    def questions(self, step: ForwardPasses) -> tuple[Sequence[Any], Tensor]:
        """Return the answers of all examples, and the rows (Q,) of questions whose sentence was not replaced."""
        answers = step.batch.targets.get("answers") or [None] * len(step.batch)
        asked = torch.tensor([isinstance(item, Mapping) for item in answers], dtype=torch.bool)
        if (matched := step.view(self.seen(step)).mask_labels.get("matched")) is not None:
            asked &= matched.cpu() == 1
        return answers, asked.nonzero()[:, 0]

    def logits(self, step: ForwardPasses, rows: Tensor) -> Tensor:
        """Return the logits (Q, A) of some examples, in full precision."""
        pooled = step.fused(self.seen(step), rows="pooled").by_example()
        return full_precision(self.head(pooled[rows.to(pooled.device)]))

    def targets(self, answers: Sequence[Mapping[str, float]]) -> Tensor:
        """Return the score of every answer of the table (Q, A), in float64."""
        table = torch.zeros(len(answers), len(self.table.answers), dtype=torch.float64)
        for row, scores in enumerate(answers):
            for answer, score in scores.items():
                if (column := self.table.find(answer)) is not None:
                    table[row, column] = score
        return table

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        # An answer is looked for as it is written, then in LXMERT's normalised form; rows of others become zeros, as
        # in LXMERT's released code.
        if KEY not in state and self.source_answers is not None:
            theirs = read_answers(file := Path(self.source_answers).expanduser())
            if not any(value.dim() and len(value) == len(theirs) for value in state.values()):
                what = "The weights are not those of this answer table."
                got = ", ".join(f"{name} {tuple(value.shape)}" for name, value in state.items())
                raise DataError(what, where=str(file), got=got, expected=f"{len(theirs):,} rows in the last layer")
            state = {**state, KEY: encode(theirs.strings)}
        return self.table.adapt(state, self.state_dict(), report, find=AnswerList.find, blank=True)


def draws(seeds: Tensor) -> list[float]:
    """Return a number in [0, 1) for each seed."""
    return [float(np.random.default_rng(seed & 0xFFFFFFFFFFFF).random()) for seed in seeds.tolist()]


class Answering(AnswerHead):
    """Answer a question about a picture, by classification over the answer table.

    The target is ``answers``: a mapping from answer to score. Sentences that matching replaced are left out.

    Args:
        loss: ``bce``: a sigmoid per answer against its score, summed over answers; ``ce``: a softmax over answers.
        sample: with ``ce``: draw the answer in proportion to the scores (pre-training) instead of taking the best.
        smoothing: label smoothing of ``ce``: share of the target that is spread over all answers.
    """

    paper = "LXMERT, Tan and Bansal 2019, sections 3.1.3 and 4.2; Teney et al. 2018 (soft targets)"
    init_from = ("image-qa",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        loss: Literal["bce", "ce"] = "bce",
        sample: bool = False,
        smoothing: float = 0.0,
        **options: Any,
    ) -> None:
        super().__init__(model, data_spec, **options)
        self.loss, self.sample, self.smoothing = loss, sample, smoothing

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        answers, rows = self.questions(step)
        logits = self.logits(step, rows)  # (Q, A)
        target = self.targets([answers[row] for row in rows.tolist()]).to(logits)
        score = Mean.of(target.gather(1, logits.argmax(1, keepdim=True)))
        if self.loss == "bce":
            loss = Mean.of(F.binary_cross_entropy_with_logits(logits, target, reduction="none").sum(1))
        else:
            best = self._draw(target, step.batch.seeds[rows]) if self.sample else target.argmax(1)
            terms = F.cross_entropy(logits, best, reduction="none", label_smoothing=self.smoothing)
            loss = Mean.of(terms, target.sum(1) > 0)
        return ObjectiveOutput({"answering": loss}, metrics={"score": score})

    @staticmethod
    def _draw(target: Tensor, seeds: Tensor) -> Tensor:
        # (Q,) an answer drawn in proportion to its score, the same for the same seed
        running = target.double().cumsum(1)  # (Q, A)
        mark = torch.tensor(draws(seeds), dtype=torch.float64, device=target.device)[:, None] * running[:, -1:]
        return (running <= mark).sum(1).clamp(max=target.shape[1] - 1)


class ImageQA(AnswerHead):
    """Answer the questions among the sentences while pre-training; a softmax over the answer table.

    Each epoch draws one of a question's answers in proportion to the scores, among those the table has. Sentences
    without such an answer, and those that matching replaced, are left out. Words and regions stay hidden as the other
    objectives hid them. The paper starts it at epoch 10 (``from_epoch: 10``), the released code at once.

    Args:
        answers: file of the answer table under the data root; None: ``lxmert/all_ans.json`` where it is there, else a
            table made of the training questions.
        answer_sets: only the table's answers that belong to one of these data sets (``vqa``, ``gqa``, ``visual7w``).
        size: answers of a table that is made of the training questions.
        view: the view it shares.
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
        view: str = "corrupted",
        **options: Any,
    ) -> None:
        super().__init__(model, data_spec, view=view, **options)
        self.rows = AnswerList(data_spec.answers)

    @classmethod
    def labels(cls, spec: Mapping[str, Any], readers: Sequence[Any]) -> tuple[str, ...]:
        file = table_file(spec.get("answers"), readers, "lxmert/all_ans.json")  # in the authors' data folder
        if file is None:
            return build_answer_table(count_answers(readers), int(spec.get("size", ANSWER_TABLE_SIZE)), {}).strings
        table = read_answers(file)
        return (table.only(spec["answer_sets"]) if spec.get("answer_sets") else table).strings

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        answers, asked = self.questions(step)
        known = {row: scores for row in asked.tolist() if (scores := self.known(answers[row]))}
        rows = torch.tensor(list(known), dtype=torch.long)
        logits = self.logits(step, rows)  # (Q, A)
        truth = self.drawn(known.values(), step.batch.seeds[rows.to(step.batch.seeds.device)])
        right = [scores.get(row, 0.0) for scores, row in zip(known.values(), logits.argmax(1).tolist(), strict=True)]
        terms = F.cross_entropy(logits, torch.tensor(truth, dtype=torch.long, device=logits.device), reduction="none")
        return ObjectiveOutput({"image-qa": Mean.of(terms)}, metrics={"score": Mean.of(logits.new_tensor(right))})

    @staticmethod
    def drawn(known: Iterable[Mapping[int, float]], seeds: Tensor) -> list[int]:
        rows = []
        for scores, number in zip(known, draws(seeds), strict=True):
            ends = np.cumsum(list(scores.values()))
            chosen = int(np.searchsorted(ends, number * ends[-1], side="right"))
            rows.append(list(scores)[min(chosen, len(scores) - 1)])  # the last one where rounding leaves a rest
        return rows

    def known(self, answers: Mapping[str, float]) -> dict[int, float]:
        """Return row -> score of the answers that the table has; of two that are one there, the higher score."""
        rows: dict[int, float] = {}
        for answer, score in answers.items():
            if (row := self.rows.find(answer)) is not None and score > rows.get(row, 0.0):
                rows[row] = float(score)
        return rows
