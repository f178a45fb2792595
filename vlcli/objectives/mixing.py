"""Mixup and CutMix: pictures of a batch are blended, or patched with one another, and so are their targets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

Box = tuple[int, int, int, int]  # Top, bottom, left, right


@dataclass(frozen=True)
class Mixing:
    """How a batch is mixed with itself in reverse order; the draws are those of ``timm.data.Mixup`` by batch.

    Attributes:
        mixup: alpha of the Beta distribution that shares are drawn from; 0 for no blending (Zhang et al. 2018).
        cutmix: the same for patches; 0 for none (Yun et al. 2019).
        probability: how often a batch is mixed.
        switch: how often it is patched where both are on.
    """

    mixup: float = 0.0
    cutmix: float = 0.0
    probability: float = 1.0
    switch: float = 0.5

    @property
    def active(self) -> bool:
        """Whether anything is mixed."""
        return (self.mixup > 0 or self.cutmix > 0) and self.probability > 0

    def __call__(self, pixels: Tensor, seed: int) -> tuple[Tensor, float]:
        # Pictures (B, 3, H, W) mixed with those in reverse order, and the share that each keeps of itself
        share, box = self._draw(np.random.RandomState(seed), (pixels.shape[-2], pixels.shape[-1]))
        if share == 1.0:
            return pixels, share
        if box is None:
            return pixels * share + pixels.flip(0) * (1 - share), share
        top, bottom, left, right = box
        mixed = pixels.clone()
        mixed[..., top:bottom, left:right] = pixels.flip(0)[..., top:bottom, left:right]
        return mixed, share

    def _draw(self, rng: np.random.RandomState, size: tuple[int, int]) -> tuple[float, Box | None]:
        if not self.active or rng.rand() >= self.probability:
            return 1.0, None
        patched = self.cutmix > 0 and (self.mixup == 0 or rng.rand() < self.switch)
        alpha = self.cutmix if patched else self.mixup
        share = float(rng.beta(alpha, alpha))
        return _patch(rng, size, share) if patched else (share, None)


def _patch(rng: np.random.RandomState, size: tuple[int, int], share: float) -> tuple[float, Box]:
    # A patch of about ``1 - share`` of the picture, and the share that is left where the edge cuts it
    side = np.sqrt(1 - share)
    (height, width), sides = size, [int(length * side) for length in size]
    middle = [int(rng.randint(0, length)) for length in size]
    low = [max(at - cut // 2, 0) for at, cut in zip(middle, sides, strict=True)]
    high = [min(at + (cut + 1) // 2, length) for at, cut, length in zip(middle, sides, size, strict=True)]
    area = (high[0] - low[0]) * (high[1] - low[1])
    return 1 - area / (height * width), (low[0], high[0], low[1], high[1])


def soft_targets(labels: Tensor, classes: int, smoothing: float = 0.0) -> Tensor:
    """Class ids (B,) as distributions (B, classes); ``smoothing`` is spread over all classes; -1 gives zeros."""
    known = labels >= 0
    spread = torch.full((len(labels), classes), smoothing / classes, device=labels.device)
    spread.scatter_add_(1, labels.clamp(min=0)[:, None], torch.full_like(spread[:, :1], 1 - smoothing))
    return spread * known[:, None]


def batch_seed(seeds: Tensor) -> int:
    """One number for a batch: of (seed, epoch, examples), the same whatever the workers or a resume."""
    return int(np.random.SeedSequence([value & (2**63 - 1) for value in seeds.tolist()]).generate_state(1)[0])
