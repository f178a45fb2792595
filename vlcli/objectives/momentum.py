"""What objectives with a momentum copy share: a head's copy that follows it, and the share of the copy's word."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.objectives.base import Objective

COPY = "_copy"  # What the name of a head's momentum copy ends in


def ramped(share: float, steps: int, index: int) -> float:
    """ALBEF's share of the momentum copy's word: rises to ``share`` over the first ``steps``."""
    return share if steps <= 0 else share * min(1.0, index / steps)


def checked_share(share: float, where: str) -> float:
    """A share of the momentum copy's word, as a recipe gives it.

    Raises:
        ComponentError: it is none.
    """
    if not 0 <= share <= 1:
        raise ComponentError("A share lies in [0, 1].", where=f"{where}.distill", got=str(share))
    return share


def softened(losses: Tensor, scores: Tensor, guess: Tensor, share: float) -> Tensor:
    """Cross-entropy (N,) of scores (N, C) with the right class, mixed with that with the copy's guess (N, C)."""
    return (1 - share) * losses - share * (scores.log_softmax(-1) * guess).sum(-1)


@torch.no_grad()
def follow(copied: nn.Module, original: nn.Module, momentum: float) -> None:
    """Move a head's momentum copy."""
    for own, other in zip(copied.parameters(), original.parameters(), strict=True):
        own.mul_(momentum).add_(other.detach(), alpha=1 - momentum)


def momentum_copy(module: nn.Module) -> nn.Module:
    """A copy that no optimizer touches, and that is not counted."""
    made = copy.deepcopy(module).requires_grad_(False)
    made.momentum_copy = True  # type: ignore[assignment]
    return made


class MomentumHeads(Objective):
    """Base of objectives whose heads have momentum copies: ``NAME_copy`` is that of ``NAME``."""

    def before_step(self, step: ForwardPasses) -> None:
        if self.teacher_momentum is not None:
            for name, head in self.copied().items():
                follow(getattr(self, name + COPY), head, self.teacher_momentum)

    def copied(self) -> dict[str, nn.Module]:
        """The heads that have a copy, by name."""
        children = dict(self.named_children())
        return {name: part for name, part in children.items() if name + COPY in children}

    def adapt(self, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
        return self.with_copies(super().adapt(state, report))

    def with_copies(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """``state`` with the copies it lacks."""
        made = dict(state)
        for head in self.copied():
            for name, value in state.items():
                if name.startswith(f"{head}."):
                    made.setdefault(f"{head}{COPY}{name[len(head) :]}", value)
        return made
