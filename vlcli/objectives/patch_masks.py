"""Which patches of a picture are hidden: rectangles, or single patches at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vlcli.errors import ComponentError

Mask = NDArray[np.bool_]
ASPECT = 0.3  # Rectangles are at most 1 / 0.3 times as long as they are wide (BEiT, Algorithm 1)
TRIES = 10


@dataclass(frozen=True)
class PatchMasks:
    """How patches are chosen; every picture of a grid loses the same number, so that losses weigh them alike.

    Attributes:
        rule: ``blocks``: rectangles one after another (BEiT, Algorithm 1); ``random``: squares of ``unit`` patches
            (SimMIM).
        ratio: share of the patches that is hidden.
        smallest: patches of the smallest rectangle, less where fewer are still to be hidden.
        unit: side of a square, in patches.
    """

    rule: Literal["blocks", "random"] = "blocks"
    ratio: float = 0.4
    smallest: int = 16
    unit: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.ratio < 1 or self.smallest < 1 or self.unit < 1:
            got = f"ratio {self.ratio}, smallest {self.smallest}, unit {self.unit}"
            expected = "a ratio between 0 and 1, at least one patch"
            raise ComponentError("Patches cannot be hidden so.", where="masked-image", got=got, expected=expected)

    def draw(self, grid: tuple[int, int], seeds: Sequence[int]) -> Tensor:
        """(M, rows * columns) bool, one mask a seed."""
        made = [self(grid, np.random.default_rng(seed & (2**63 - 1))) for seed in seeds]
        return torch.from_numpy(np.stack(made)).flatten(1)

    def __call__(self, grid: tuple[int, int], rng: np.random.Generator) -> Mask:
        return self._squares(grid, rng) if self.rule == "random" else self._blocks(grid, rng)

    def _squares(self, grid: tuple[int, int], rng: np.random.Generator) -> Mask:
        rows, columns = (-(-side // self.unit) for side in grid)
        count = min(math.ceil(self.ratio * rows * columns), rows * columns - 1)
        coarse = np.zeros(rows * columns, bool)
        coarse[rng.permutation(rows * columns)[: max(1, count)]] = True
        fine = coarse.reshape(rows, columns).repeat(self.unit, 0).repeat(self.unit, 1)
        return fine[: grid[0], : grid[1]]

    def _blocks(self, grid: tuple[int, int], rng: np.random.Generator) -> Mask:
        mask = np.zeros(grid, bool)
        wanted = min(max(1, int(self.ratio * mask.size)), mask.size - 1)
        while (left := wanted - int(mask.sum())) > 0 and self._block(mask, left, rng):
            pass
        free = np.flatnonzero(~mask.ravel())
        mask.ravel()[rng.permutation(free)[: wanted - int(mask.sum())]] = True
        return mask

    def _block(self, mask: Mask, left: int, rng: np.random.Generator) -> bool:
        # One more rectangle of at most ``left`` new patches; False where none was found
        for _ in range(TRIES):
            area = rng.uniform(min(self.smallest, left), left)
            aspect = math.exp(rng.uniform(math.log(ASPECT), -math.log(ASPECT)))
            height, width = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if not (0 < height < mask.shape[0] and 0 < width < mask.shape[1]):
                continue
            top, first = (int(rng.integers(n - m + 1)) for n, m in zip(mask.shape, (height, width), strict=True))
            window = mask[top : top + height, first : first + width]
            if 0 < height * width - int(window.sum()) <= left:
                window[:] = True
                return True
        return False
