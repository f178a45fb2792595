"""Defines VLMo's relative position bias: one table for all layers, over words, patches and between the two."""

from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, Layout, PairwisePosition, within

Array = NDArray[np.float64]


def resample(table: Tensor, size: tuple[int, int]) -> Tensor:
    """Resamples a table of relative positions (2h-1, 2w-1, C) for another grid: (*size, C).

    Old positions lie at sums of a geometric series that reaches as far as the new grid, so that near ones keep their
    spacing (BEiT's fine-tuning code). Between them runs a cubic spline (not-a-knot), per axis.
    """
    rows, columns = (torch.from_numpy(_axis(old, new)) for old, new in zip(table.shape[:2], size, strict=True))
    return torch.einsum("ri,ijc,sj->rsc", rows, table.double(), columns).to(table.dtype)


def _axis(old: int, new: int) -> Array:
    # (new, old): the share of each old position in each new one.
    from scipy.interpolate import CubicSpline

    if old == new:
        return np.eye(old)
    low, high = 1.01, 1.5
    while high - low > 1e-6:  # so that 0, +-1, +-(1 + q), +-(1 + q + q^2) ... span the new grid
        ratio = (low + high) / 2
        beyond = sum(ratio**power for power in range(old // 2)) > new // 2
        low, high = (low, ratio) if beyond else (ratio, high)
    steps = np.cumsum([ratio**power for power in range(old // 2)])
    source = np.concatenate([-steps[::-1], [0.0], steps])
    target = np.clip(np.arange(new, dtype=np.float64) - (new // 2), source[0], source[-1])
    if old < 4:  # straight lines
        return np.stack([np.interp(target, source, unit) for unit in np.eye(old)], 1)
    return cast("Array", CubicSpline(source, np.eye(old))(target))


SPECIAL = 3
"""Rows for a class token: it looks at others, others at it, it at itself."""


class VLMoBias(PairwisePosition):
    """A learned number per head and layer for how two words, or two patches, lie to each other.

    Rows of the table, for a grid of h by w patches, I = (2h-1)(2w-1) + 3 and sentences of up to T words:

    - two patches: (dy + h - 1)(2w - 1) + dx + w - 1, with d = query - key;
    - I-3 the image's class token on a patch, I-2 a patch on it, I-1 it on itself;
    - I a word on the image, I+1 the image on a word, wherever they are;
    - two words: key - query + T - 2 + I + 2 (the other sign than for patches);
    - the last three: the first word on another, another on it, it on itself.

    Args:
        grid: patches of the image: rows and columns, or one number for both.
        length: T, the longest sentence the table serves (196 in all of VLMo's stages).
    """

    paper = "VLMo, Bao et al., NeurIPS 2022, arXiv:2111.02358, released code; BEiT, Bao et al. 2021, section 2"

    def __init__(self, shape: AttentionShape, *, grid: int | tuple[int, int] = 14, length: int = 196) -> None:
        super().__init__(shape)
        self.grid = (grid, grid) if isinstance(grid, int) else (int(grid[0]), int(grid[1]))
        self.length, self.encodes = length, within("word", "cell")
        if length < 2:
            raise ComponentError("The bias table needs two words or more.", where="vlmo-bias.length", got=str(length))
        self.image_rows = (2 * self.grid[0] - 1) * (2 * self.grid[1] - 1) + SPECIAL
        self.table = nn.Parameter(torch.zeros(self.image_rows + 2 * length + 2, shape.heads * shape.layers))

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Tensor:
        return self.rows(_alike(x_layout), _alike(y_layout))

    def logits(self, q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor:
        columns = self.table.narrow(1, layer * self.shape.heads, self.shape.heads).t()  # (H, R)
        picked = columns.index_select(1, state.flatten())  # (H, Tq * Tk)
        return torch.unflatten(picked, 1, state.shape).transpose(0, 1)  # (1 or B, H, Tq, Tk)

    def rows(self, asking: Layout, asked: Layout) -> Tensor:
        """Returns the table's row of each query and key: (B, Tq, Tk)."""
        q, k = _Kinds(asking, 2), _Kinds(asked, 1)
        top, end = self.image_rows, len(self.table)
        height, width = self.grid
        dy = (q.centre[..., 0] - k.centre[..., 0]).clamp(1 - height, height - 1)
        dx = (q.centre[..., 1] - k.centre[..., 1]).clamp(1 - width, width - 1)
        patches = (dy + height - 1) * (2 * width - 1) + dx + width - 1  # (B, Tq, Tk)
        images = torch.where(q.first, torch.where(k.first, top - 1, top - 3), torch.where(k.first, top - 2, patches))
        apart = (k.index - q.index).clamp(2 - self.length, self.length - 2) + self.length + top
        words = torch.where(q.first, torch.where(k.first, end - 1, end - 3), torch.where(k.first, end - 2, apart))
        same = torch.where(q.text, words, images)
        return torch.where(q.text == k.text, same, torch.where(q.text, top, top + 1))

    def resize_state(self, state: dict[str, Tensor], old: tuple[int, int], new: tuple[int, int]) -> dict[str, Tensor]:
        table = state["table"]
        rows = (2 * old[0] - 1) * (2 * old[1] - 1)
        offsets = table[:rows].unflatten(0, (-1, 2 * old[1] - 1))
        resized = resample(offsets, (2 * new[0] - 1, 2 * new[1] - 1)).flatten(0, 1)
        return {**state, "table": torch.cat([resized, table[rows:]])}

    def fit_weight(self, name: str, value: Tensor, wanted: Tensor, report: list[str]) -> Tensor:
        offsets = len(value) - SPECIAL - 2 * self.length - 2
        side = (round(max(offsets, 0) ** 0.5) + 1) // 2
        if (2 * side - 1) ** 2 != offsets or (side, side) == self.grid:
            return value
        report.append(f"{name}: {side}x{side} places interpolated to {self.grid[0]}x{self.grid[1]}")
        return self.resize_state({"table": value}, (side, side), self.grid)["table"]


class _Kinds:
    def __init__(self, layout: Layout, place: int) -> None:
        self.index = layout.index.unsqueeze(place)
        self.text = self.index >= 0
        self.first = ((layout.index == 0) | ((layout.index < 0) & layout.special)).unsqueeze(place)
        self.centre = layout.centre.nan_to_num(0).long().unsqueeze(place)


def _alike(layout: Layout) -> Layout:
    if layout.route.shape[0] == 1:
        return layout
    one = layout.map(lambda tensor: tensor[:1])
    if layout.index.is_meta or torch.compiler.is_compiling() or torch.compiler.is_exporting():
        return one  # what is compiled must not depend on values; the model numbers all rows alike
    pairs = ((layout.index, one.index), (layout.centre.nan_to_num(-1.0), one.centre.nan_to_num(-1.0)))
    return one if all(torch.equal(values, first.expand_as(values)) for values, first in pairs) else layout
