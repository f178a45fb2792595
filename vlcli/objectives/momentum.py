"""Momentum copies of heads, and losses that mix their predictions with the labels."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives.base import Objective

COPY = "_copy"  # What the name of a head's momentum copy ends in


def ramped(share: float, steps: int, index: int) -> float:
    """Return the share of the momentum copy's prediction, which rises to ``share`` over the first ``steps`` (ALBEF)."""
    return share if steps <= 0 else share * min(1.0, index / steps)


def checked_share(share: float, where: str) -> float:
    """Refuse a share that does not lie in [0, 1]."""
    if not 0 <= share <= 1:
        raise ComponentError("A share lies in [0, 1].", where=f"{where}.distill", got=str(share))
    return share


def softened(losses: Tensor, scores: Tensor, guess: Tensor, share: float) -> Tensor:
    """Mix cross-entropies (N,) with the labels and those of scores (N, C) with the copy's probabilities (N, C)."""
    return (1 - share) * losses - share * (scores.log_softmax(-1) * guess).sum(-1)


def momentum_copy(module: nn.Module) -> nn.Module:
    """Return a copy that is not trained and not counted."""
    copied = copy.deepcopy(module).requires_grad_(False)
    copied.momentum_copy = True  # type: ignore[assignment]
    return copied


class MomentumHeads(Objective):
    """Base of objectives whose heads have momentum copies: ``NAME_copy`` is that of ``NAME``.

    Args:
        distill: share of the momentum copy in the right answers.
        ramp: steps over which that share rises from 0.
        momentum: share of itself that the copy keeps in each step.
    """

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        distill: float = 0.4,
        ramp: int = 0,
        momentum: float = 0.995,
        **options: Any,
    ) -> None:
        super().__init__(model, data_spec, **options)
        self.distill, self.ramp, self.teacher_momentum = distill, ramp, momentum

    def share(self, step: ForwardPasses) -> float:
        return ramped(self.distill, self.ramp, step.index)

    @torch.no_grad()
    def before_step(self, step: ForwardPasses) -> None:
        if self.teacher_momentum is not None:
            for name, head in self.copied().items():
                copied = getattr(self, name + COPY)
                for ours, theirs in zip(copied.parameters(), head.parameters(), strict=True):
                    ours.mul_(self.teacher_momentum).add_(theirs.detach(), alpha=1 - self.teacher_momentum)

    def copied(self) -> dict[str, nn.Module]:
        children = dict(self.named_children())
        return {name: part for name, part in children.items() if name + COPY in children}

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        # a copy that the checkpoint lacks starts as its head
        adapted = dict(super().adapt(state, report))
        for head in self.copied():
            for name in [name for name in adapted if name.startswith(f"{head}.")]:
                adapted.setdefault(f"{head}{COPY}{name[len(head) :]}", adapted[name])
        return adapted
