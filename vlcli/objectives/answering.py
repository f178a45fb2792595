"""Question answering as classification over an answer table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from vlcli.data.answers import AnswerList, read_answers
from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, ForwardPasses, Model, build_head
from vlcli.objectives.answers import KEY, AnswerTable, encode
from vlcli.objectives.base import Mean, Objective, ObjectiveOutput, full_precision
from vlcli.objectives.blanking import Only, seen
from vlcli.objectives.labels import entropy


class Answering(Objective):
    """Answer a question about a picture, by classification over the answer table.

    The target is ``answers``: a mapping from answer to score. ``bce`` is a sigmoid per answer against its score, summed
    over answers (LXMERT multiplies the mean by their number, the same); ``ce`` is a softmax against one answer: the
    best, or one drawn in proportion to the scores. Sentences that matching replaced are left out: the answer is not
    theirs.

    Args:
        model: the model it trains.
        data_spec: ``answers`` is the table.
        loss: which loss.
        sample: with ``ce``: draw the answer (pre-training) instead of taking the best.
        head: a head of ``vlcli.nn.heads``; None takes the model's own for the role ``answer``.
        only: what the model sees; ``text`` and ``images`` are controls.
        view: the view that is answered.
        source_answers: where the weights it starts from are not vlcli's: the file of the answers that their rows stand
            for (``all_ans.json`` of LXMERT's release), a path from the current folder. Rows are taken over by string.
        smoothing: label smoothing of ``ce``: share of the target that is spread over all answers.
    """

    paper = "LXMERT, Tan and Bansal 2019, sections 3.1.3 and 4.2; Teney et al. 2018 (soft targets)"
    requires = frozenset({"fuse"})
    init_from = ("image-qa",)

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        loss: Literal["bce", "ce"] = "bce",
        sample: bool = False,
        head: str | None = None,
        only: Only = "both",
        view: str = "clean",
        source_answers: str | None = None,
        smoothing: float = 0.0,
    ) -> None:
        super().__init__(model, data_spec)
        if not data_spec.answers:
            raise ComponentError(
                "There is no answer to choose from.",
                where="objective answering",
                expected="data whose examples have answers, or an answer table",
                hint="check `min_count` of the task against the size of the data",
            )
        self.loss, self.sample, self.only, self.view = loss, sample, only, view
        self.smoothing = smoothing
        self.head = build_head(model, "answer", model.pooled_dim, len(data_spec.answers), head)
        self.table = AnswerTable(data_spec.answers)
        self.source_answers = source_answers

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        name = self.seen(step)
        given = step.batch.targets.get("answers") or [None] * len(step.batch)
        rows = self._rows(given, step.view(name).mask_labels.get("matched"))
        fused = step.fused(name)
        logits = full_precision(self.head(fused.by_example()[rows.to(fused.pooled.device)]))  # (Q, A)
        target = self.targets([given[row] for row in rows.tolist()]).to(logits)
        score = target.gather(1, logits.argmax(1, keepdim=True))
        loss = self._bce(logits, target) if self.loss == "bce" else self._ce(logits, target, step.batch.seeds[rows])
        return ObjectiveOutput({"answering": loss}, metrics={"score": Mean.of(score)})

    def predict(self, step: ForwardPasses) -> dict[str, Tensor]:
        # ``logits`` (B, A)
        return {"logits": self.head(step.fused(self.seen(step)).by_example())}

    def constant_loss(self, targets: Sequence[Mapping[str, Any]]) -> float | None:
        # The entropy of the answers: of each by itself with ``bce``
        given = [one["answers"] for one in targets if isinstance(one.get("answers"), Mapping)]
        if not given:
            return None
        table = self.targets(given)  # (Q, A)
        if self.loss == "ce":
            known = table[table.sum(1) > 0]
            return entropy(torch.bincount(known.argmax(1), minlength=table.shape[1])) if len(known) else None
        shares = table.mean(0).clamp(0, 1)
        return float(torch.special.entr(shares).sum() + torch.special.entr(1 - shares).sum())

    def seen(self, step: ForwardPasses) -> str:
        """The name of the view it answers from."""
        return seen(step, self.view, self.only)

    def targets(self, given: Sequence[Mapping[str, float]]) -> Tensor:
        """(Q, A) the score of every answer of the table, in float64."""
        made = torch.zeros(len(given), len(self.table.answers), dtype=torch.float64)
        for row, answers in enumerate(given):
            for answer, score in answers.items():
                if (place := self.table.find(answer)) is not None:
                    made[row, place] = score
        return made

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        if KEY not in state and self.source_answers is not None:
            state = {**state, KEY: self._named_rows(state, Path(self.source_answers).expanduser())}
        return self.table.adapt(state, self.state_dict(), report, find=AnswerList.find, blank=True)

    @staticmethod
    def _named_rows(state: Mapping[str, Tensor], file: Path) -> Tensor:
        theirs = read_answers(file)
        if not any(value.dim() and len(value) == len(theirs) for value in state.values()):
            got = ", ".join(f"{name} {tuple(value.shape)}" for name, value in state.items())
            expected = f"{len(theirs):,} rows in the last layer"
            raise DataError(
                "The weights are not those of this answer table.", where=str(file), got=got, expected=expected
            )
        return encode(theirs.strings)

    @staticmethod
    def _rows(given: Sequence[Any], matched: Tensor | None) -> Tensor:
        asked = torch.tensor([isinstance(item, Mapping) for item in given], dtype=torch.bool)
        if matched is not None:
            asked &= matched.cpu() == 1
        return asked.nonzero()[:, 0]

    @staticmethod
    def _bce(logits: Tensor, target: Tensor) -> Mean:
        terms = functional.binary_cross_entropy_with_logits(logits, target, reduction="none")
        return Mean.of(terms.sum(1))

    def _ce(self, logits: Tensor, target: Tensor, seeds: Tensor) -> Mean:
        known = target.sum(1) > 0
        chosen = self._draw(target, seeds) if self.sample else target.argmax(1)
        return Mean.of(
            functional.cross_entropy(logits, chosen, reduction="none", label_smoothing=self.smoothing), known
        )

    @staticmethod
    def _draw(target: Tensor, seeds: Tensor) -> Tensor:
        # (Q,) an answer drawn in proportion to its score, the same for the same seed
        running = target.double().cumsum(1)  # (Q, A)
        mark = torch.tensor(draws(seeds), dtype=torch.float64, device=target.device)[:, None] * running[:, -1:]
        return (running <= mark).sum(1).clamp(max=target.shape[1] - 1)


def draws(seeds: Tensor) -> list[float]:
    """A number in [0, 1) for each seed."""
    return [float(np.random.default_rng(seed & 0xFFFFFFFFFFFF).random()) for seed in seeds.tolist()]
