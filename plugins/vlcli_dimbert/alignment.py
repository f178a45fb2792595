"""Defines UNITER's word-region alignment: optimal transport between the words and the regions of a pair."""

from collections.abc import Mapping
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.nn import DataSpec, ForwardPasses, Model
from vlcli.objectives import MATCHED, Mean, Objective, ObjectiveOutput, full_precision
from vlcli.registry import Between


@torch.no_grad()
def transport(cost: Tensor, words: Tensor, regions: Tensor, beta: float = 0.5, steps: int = 50) -> Tensor:
    """Returns plans (P, T, R) that carry even masses of words to even masses of regions; 0 without either.

    IPOT (Xie et al. 2019, algorithm 1, one inner step): ``Q = exp(-C / beta) * T``, then ``T = diag(d) Q diag(s)``; it
    converges to a plan of the linear programme itself, not of a smoothed one.

    Args:
        cost: (P, T, R) of moving one unit of mass.
        words: (P, T), false where there is no word; ``regions`` (P, R) likewise.
    """
    valid = words[:, :, None] & regions[:, None, :]  # (P, T, R)
    kernel = torch.exp(-cost / beta) * valid
    masks = (words.to(cost.dtype), regions.to(cost.dtype))
    of_words, of_regions = (mask / mask.sum(1, keepdim=True).clamp(min=1) for mask in masks)
    scale, plan = of_words, valid.to(cost.dtype)
    tiny = torch.finfo(cost.dtype).tiny
    for _ in range(steps):
        moved = kernel * plan
        columns = of_regions / torch.einsum("ptr,pt->pr", moved, scale).clamp(min=tiny)  # (P, R)
        scale = of_words / torch.einsum("ptr,pr->pt", moved, columns).clamp(min=tiny)  # (P, T)
        plan = scale[:, :, None] * moved * columns[:, None, :]
    return plan


class WordRegionAlignment(Objective):
    """Word-region alignment (UNITER): the least cost of carrying a sentence's words to its picture's regions.

    The cost of a word and a region is one minus the cosine of their states after the model; plans are found by IPOT and
    are constants of the gradient. Where ``matching`` shares the view, ``as_released`` subtracts the cost of pairs that
    do not belong together, and ``as_published`` leaves them out. UNITER's code weighs it by 0.1 (``weight: 0.1``).

    Args:
        mode: whose loss.
        beta: proximal step of IPOT.
        steps: of IPOT.
        view: the view it shares.
    """

    paper = "UNITER, Chen et al., ECCV 2020, section 3.2, equation 3; IPOT, Xie et al., UAI 2019, algorithm 1"
    requires = frozenset({"fuse"})
    inputs = frozenset({"regions"})

    def __init__(
        self,
        model: Model,
        data_spec: DataSpec,
        *,
        mode: Literal["as_published", "as_released"] = "as_published",
        beta: Annotated[float, Between(0, 1000, above=True)] = 0.5,
        steps: Annotated[int, Between(1, 10_000)] = 50,
        view: str = "corrupted",
    ) -> None:
        super().__init__(model, data_spec)
        self.released, self.beta, self.steps, self.view = mode == "as_released", beta, steps, view

    def forward(self, step: ForwardPasses, others: Mapping[str, ObjectiveOutput]) -> ObjectiveOutput:
        fused, marks = step.fused(self.view), step.view(self.view).mask_labels.get(MATCHED)
        words, regions = fused.text.layout.valid, fused.image.layout.valid  # (P, T), (P, R)
        states = (F.normalize(full_precision(part.hidden), dim=-1) for part in (fused.text, fused.image))
        cost = 1 - torch.einsum("ptd,prd->ptr", *states)  # (P, T, R)
        plan = transport(cost, words, regions, self.beta, self.steps)
        distance = (cost * plan).sum((1, 2))  # (P,)
        both = words.any(1) & regions.any(1)
        matched = torch.ones_like(both)
        if marks is not None:
            matched = marks.bool().repeat_interleave(len(distance) // len(marks))
        sign = torch.where(matched, 1.0, -1.0 if self.released else 0.0)
        asked = both if self.released else both & matched
        metrics = {"distance": Mean.of(distance.detach(), both & matched)}
        return ObjectiveOutput({"word-region-alignment": Mean.of(sign * distance, asked)}, metrics=metrics)
