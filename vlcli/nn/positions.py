"""Absolute position encodings (learned, sinusoid, box, none), and combinations of several encodings."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli import registry
from vlcli.errors import ComponentError, DataError
from vlcli.nn.fitting import BoxProjection
from vlcli.nn.layout import Layout
from vlcli.nn.position import AttentionShape, PairwisePosition, Slot, Sort, TokenPosition, total
from vlcli.nn.slots import record, require
from vlcli.registry import Spec, as_spec

PositionChoice = Spec | str | list[Spec | str] | None
"""A recipe's position encodings: a component, several, or none."""


def build_positions(
    choice: Any, shape: AttentionShape, slot: Slot | None = None
) -> tuple[nn.ModuleList, PairwisePosition | None]:
    """Build the position encodings of one stack: token encodings in order, and the pairwise ones as one module or None.

    Raises ComponentError if an encoding would have no effect (with the reason and the slots that take it), or without a
    slot.

    Args:
        choice: a name, a mapping with ``name``, a list of these, or None.
        slot: one of ``Model.slots``, or another one for encodings that no recipe chooses.
    """
    if slot is None:
        expected = "build_positions(choice, shape, slot), with a vlcli.nn.Slot that says what is used"
        hint = 'e.g. Slot.of("position", ["tokens", "pairs"], ["word"]); see "Position encodings" in docs/seams.md'
        raise ComponentError("`build_positions` must be told where the encodings go.", expected=expected, hint=hint)
    encodings = [registry.build("positions", item, shape) for item in chosen(choice)]
    acting = [module for module in encodings if not isinstance(module, NoPosition)]
    for module in acting:
        require(module, slot, shape.layers)
    record(slot, acting)
    pairwise = [module for module in acting if isinstance(module, PairwisePosition)]
    tokens = [module for module in acting if not isinstance(module, PairwisePosition)]
    joined = pairwise[0] if len(pairwise) == 1 else CombinedPairwise(shape, pairwise) if pairwise else None
    return nn.ModuleList(tokens), joined


def chosen(choice: Any) -> list[Any]:
    """Return the encodings of one slot as a list."""
    return [] if choice is None else list(choice) if isinstance(choice, list) else [choice]


def with_grid(choice: Any, grid: tuple[int, int], specials: int = 1) -> list[Spec]:
    """Return the encodings of a picture's slot, with the table of ``learned`` sized by the picture's grid.

    ``grid`` are rows and columns of the picture, ``specials`` the class tokens before it.
    """
    specs = map(as_spec, chosen(choice))
    sized = {"learned": {"specials": specials, "grid": list(grid)}}
    return [s if {"grid", "length"} & set(s) else {**sized.get(s["name"], {}), **s} for s in specs]


class CombinedPairwise(PairwisePosition):
    """Several pairwise encodings as one: logits and values are summed, inputs and rotations applied in order."""

    def __init__(self, shape: AttentionShape, parts: Sequence[PairwisePosition]) -> None:
        super().__init__(shape)
        self.parts = nn.ModuleList(parts)
        self.uses_weights = any(part.uses_weights for part in parts)

    def each(self) -> Iterator[PairwisePosition]:
        return cast("Iterator[PairwisePosition]", iter(self.parts))

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Any:
        return [part.prepare(x, y, x_layout, y_layout) for part in self.each()]

    def inputs(self, q_in: Tensor, k_in: Tensor, v_in: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor, Tensor]:
        for part, inner in zip(self.each(), state, strict=True):
            q_in, k_in, v_in = part.inputs(q_in, k_in, v_in, inner, layer)
        return q_in, k_in, v_in

    def rotate(self, q: Tensor, k: Tensor, state: Any, layer: int) -> tuple[Tensor, Tensor]:
        for part, inner in zip(self.each(), state, strict=True):
            q, k = part.rotate(q, k, inner, layer)
        return q, k

    def logits(self, q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        return total(*(part.logits(q, k, inner, layer) for part, inner in zip(self.each(), state, strict=True)))

    def values(self, weights: Tensor, state: Any, layer: int) -> Tensor | None:
        pairs = zip(self.each(), state, strict=True)
        return total(*(part.values(weights, inner, layer) for part, inner in pairs if part.uses_weights))

    def objection(self, slot: Slot) -> str:
        return "; ".join(filter(None, (part.objection(slot) for part in self.each())))

    def resize_state(self, state: dict[str, Tensor], old: tuple[int, int], new: tuple[int, int]) -> dict[str, Tensor]:
        resized = dict(state)
        for number, part in enumerate(self.each()):
            prefix = f"parts.{number}."
            inner = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
            resized.update({prefix + key: value for key, value in part.resize_state(inner, old, new).items()})
        return resized


class NoPosition(TokenPosition):
    """No position encoding: tokens are a set."""


class LearnedPosition(TokenPosition):
    """A learned vector per place in a sentence, or per cell of a grid; other tokens stay as they are.

    Args:
        length: rows of a sentence's table.
        grid: rows and columns of an image's table, instead of a sentence's.
        specials: class tokens before a grid that have a row of their own.
        frozen_first: row 0 keeps its initial value (a padding index, as in LXMERT's code).
    """

    paper = "Gehring et al. 2017; BERT, Devlin et al. 2019; ViT, Dosovitskiy et al. 2021"

    def __init__(
        self,
        shape: AttentionShape,
        *,
        length: int = 512,
        grid: tuple[int, int] | None = None,
        specials: int = 1,
        frozen_first: bool = False,
    ) -> None:
        super().__init__(shape)
        self.grid, self.specials = grid, specials
        self.encodes: frozenset[Sort] = frozenset({"word"} if grid is None else {"cell"})
        rows = length if grid is None else specials + grid[0] * grid[1]
        self.table = nn.Embedding(rows, shape.dim, padding_idx=0 if frozen_first else None)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        # x has the shape (B, T, dim).
        row = self._by_index(layout) if self.grid is None else self._by_cell(layout)  # (B or 1, T)
        added: Tensor = self.table(row.clamp(min=0))  # (B or 1, T, dim)
        return x + added.masked_fill((row < 0)[..., None], 0)

    def _by_index(self, layout: Layout) -> Tensor:
        count = layout.route.shape[1]  # not len(): an exporter's lengths are symbols
        checked = not torch.compiler.is_exporting() and layout.grid is None and layout.boxes is None
        if checked and count > len(self.table.weight):
            what, expected = "A text is longer than the position table.", f"at most {len(self.table.weight)}"
            hint = "lower text.length, or raise the position's length"
            raise DataError(what, got=f"{count} pieces", expected=expected, hint=hint)
        return layout.index

    def _by_cell(self, layout: Layout) -> Tensor:
        if layout.grid != self.grid:
            what = "The image's grid is not the one that positions were made for."
            hint = "set the position's grid, or load the weights through the model, which resizes them"
            got, expected = str(layout.grid), str(self.grid)
            raise ComponentError(what, where="position learned", got=got, expected=expected, hint=hint)
        assert self.grid is not None
        cell = layout.centre.nan_to_num(-1.0).long()  # (B or 1, T, 2)
        row = self.specials + cell[..., 0] * self.grid[1] + cell[..., 1]  # (B or 1, T)
        # The image's class tokens are numbered in their order; a sentence's special tokens have no row.
        of_image = layout.special & (layout.index < 0)
        order = of_image.long().cumsum(1) - 1
        return torch.where(of_image & (order < self.specials), order, row.masked_fill(cell[..., 0] < 0, -1))

    def resize_state(self, state: dict[str, Tensor], old: tuple[int, int], new: tuple[int, int]) -> dict[str, Tensor]:
        if self.grid is None or old == new:
            return state
        table = state["table.weight"]
        front, cells = table[: self.specials], table[self.specials :]
        exact = cells if cells.dtype == torch.float64 else cells.float()
        grown = F.interpolate(exact.T.reshape(1, -1, *old), size=new, mode="bicubic", align_corners=False)
        return {**state, "table.weight": torch.cat([front, grown.flatten(2)[0].T.to(table.dtype)])}

    def fit_weight(self, name: str, value: Tensor, wanted: Tensor, report: list[str]) -> Tensor:
        value = value[0] if value.dim() == 3 else value  # (1, T, D) in files of vision transformers
        if self.grid is None and value.shape[1:] == wanted.shape[1:] and len(value) > len(wanted):
            report.append(f"{name}: the first {len(wanted)} of {len(value)} rows")
            return value[: len(wanted)]
        side = math.isqrt(max(len(value) - self.specials, 0))
        if self.grid is None or not side or len(value) == len(wanted) or side * side != len(value) - self.specials:
            return value
        report.append(f"{name}: {side}x{side} places interpolated to {self.grid[0]}x{self.grid[1]}")
        return self.resize_state({"table.weight": value}, (side, side), self.grid)["table.weight"]


class SinusoidPosition(TokenPosition):
    """Fixed sines and cosines: 1-D of the index in a sentence, 2-D of the place on an image.

    Args:
        temperature: the longest wavelength is 2 pi times this.
        normalise: measure places on a grid as shares of its size, times 2 pi, as DETR does; boxes always are.
    """

    paper = "Vaswani et al. 2017, section 3.5; DETR, Carion et al. 2020, appendix A.4 (2-D)"

    def __init__(self, shape: AttentionShape, *, temperature: float = 10000.0, normalise: bool = False) -> None:
        super().__init__(shape)
        if shape.dim % 4:
            raise ComponentError("Sinusoid positions need a width that 4 divides.", got=str(shape.dim))
        self.temperature, self.normalise = temperature, normalise

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        # x has the shape (B, T, dim).
        centre = layout.centre
        if layout.boxes is not None:
            centre = centre * (2 * math.pi)
        elif self.normalise and layout.grid is not None:
            centre = (centre + 1) / centre.new_tensor(layout.grid) * (2 * math.pi)
        line = self._waves(layout.index.float(), self.shape.dim)
        plane = self._waves(centre, self.shape.dim // 2).flatten(-2)  # (B or 1, T, dim)
        return x + torch.where((layout.index >= 0)[..., None], line, plane.nan_to_num(0.0)).to(x.dtype)

    def _waves(self, index: Tensor, width: int) -> Tensor:
        exponent = torch.arange(0, width, 2, device=index.device, dtype=torch.float32) / width
        angle = index[..., None] / self.temperature**exponent  # (B, T, width / 2)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)


class BoxPosition(TokenPosition):
    """Box coordinates, projected, normalised and averaged with the token of the box (LXMERT).

    Args:
        numbers: 4: x1, y1, x2, y2 (LXMERT); 5: and area (DiMBERT); 7: and width, height, area (UNITER).
        combine: ``mean`` of token and box (LXMERT), or ``add``.
        norm: whether the projected box is normalised.
        eps: of the norm.
    """

    paper = "LXMERT, Tan and Bansal 2019, Eq. 1 (W_P p_j)"
    encodes: frozenset[Sort] = frozenset({"box"})

    def __init__(
        self,
        shape: AttentionShape,
        *,
        numbers: Literal[4, 5, 7] = 4,
        combine: Literal["mean", "add"] = "mean",
        norm: bool = True,
        eps: float = 1e-12,
    ) -> None:
        super().__init__(shape)
        self.numbers, self.combine = numbers, combine
        self.project = BoxProjection(numbers, shape.dim)
        self.norm = nn.LayerNorm(shape.dim, eps=eps) if norm else nn.Identity()

    def forward(self, x: Tensor, layout: Layout) -> Tensor:
        # x: (B, R, dim); tokens that are no boxes stay as they are
        if layout.boxes is None:
            what = "The position encoding 'box' needs tokens that are boxes."
            raise ComponentError(what, where="position box", hint="use learned or sinusoid for grids and sentences")
        box = self.norm(self.project(geometry(layout.boxes, self.numbers).to(self.project.weight.dtype)))  # (B, R, dim)
        joined = (x + box) / 2 if self.combine == "mean" else x + box
        return torch.where(layout.centre[..., :1].isnan(), x, joined)


def match_normalised(positions: Iterable[nn.Module]) -> None:
    """Initialise learned tables of a grid with unit variance, as sines and cosines of row and column (MAE).

    Narrow models that read stored features call it: beside features with a standard deviation of 1, positions drawn
    with ``init_std`` are noise. The mean over the grid is subtracted, since slow waves hardly change within a small
    grid (on four by four cells at width 64, nine tenths of the squared norm are alike in every cell).
    """
    for position in positions:
        if isinstance(position, LearnedPosition) and position.grid is not None:
            cells = _waves(position.grid, position.table.embedding_dim)
            cells -= cells.mean(0)
            with torch.no_grad():
                size = cells.pow(2).mean().sqrt().clamp(min=1e-6)  # 0 on a grid of one cell
                position.table.weight[position.specials :] = cells / size


def _waves(grid: tuple[int, int], dim: int) -> Tensor:
    # (rows * columns, dim): sines and cosines of the row, then of the column, half of the width each
    count = -(-dim // 4)
    speed = 1000 ** -(torch.arange(count) / count)
    angle = torch.cartesian_prod(*map(torch.arange, grid))[..., None] * speed  # (rows * columns, 2, dim / 4)
    return torch.cat([angle.sin(), angle.cos()], -1).flatten(1)[:, :dim]


def geometry(boxes: Tensor, numbers: int = 4) -> Tensor:
    """Return boxes (..., 4) in [0, 1] as 4 numbers, 5 (with area) or 7 (with width, height, area)."""
    if numbers == 4:
        return boxes
    sides = (boxes[..., 2:] - boxes[..., :2]).clamp(min=0)  # (..., 2): width, height
    area = sides.prod(-1, keepdim=True)
    return torch.cat([boxes, area] if numbers == 5 else [boxes, sides, area], -1)
