"""Draws the terms that a trained model's encoding adds to attention, block by block (Figure 5)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.drawings import PLOTS, Drawing, DrawingContext, new_figure, save_picture
from vlcli.engine import evaluating
from vlcli.errors import UsageError
from vlcli.nn import Layout, PairwisePosition


@dataclass
class Terms:
    """Terms on the scores by layer, averaged over pictures and heads (T, T), of ``front`` special tokens and a grid."""

    added: list[Tensor] = field(default_factory=list)
    grid: tuple[int, int] = (0, 0)
    front: int = 0


class PositionTerms(Drawing):
    """The terms that position adds to attention in each block, for reference cells of the grid (Figure 5).

    Args:
        blocks: which ones; None: the first and the last but one, as in the paper (blocks 0 and 10 of 12).
        references: so many cells a side, spread evenly.
        pictures: queries differ from picture to picture: the mean over so many.
    """

    paper = "iRPE, Wu et al., ICCV 2021, Figure 5"
    packages = ("matplotlib",)
    install = PLOTS
    reads_data = True

    def __init__(self, *, blocks: list[int] | None = None, references: int = 5, pictures: int = 16) -> None:
        self.blocks, self.references, self.pictures = blocks, references, pictures

    def draw(self, scene: DrawingContext) -> list[Path]:
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.pictures)
        batch = runner.data.batch(range(min(self.pictures, runner.data.total))).to(scene.device)
        with evaluating(runner.module), torch.no_grad(), recorded(runner.model) as terms:
            runner.step(batch).image()
        if not terms.added:
            what = "The model's attention has no encoding that adds to the scores."
            raise UsageError(what, where=str(bundle.folder), expected="position: irpe on keys or queries")
        count = len(terms.added)
        blocks = self.blocks if self.blocks is not None else sorted({0, max(count - 2, 0)})
        if beyond := [number for number in blocks if not 0 <= number < count]:
            where, expected = "drawing irpe-terms, blocks", f"0 to {count - 1}"
            raise UsageError("There is no such block.", where=where, got=str(beyond[0]), expected=expected)
        return [self._block(scene, terms, number) for number in blocks]

    def _block(self, scene: DrawingContext, terms: Terms, number: int) -> Path:
        rows, columns = terms.grid
        inner = slice(terms.front, terms.front + rows * columns)
        added = terms.added[number][inner, inner].unflatten(1, terms.grid)  # (N, rows, columns)
        low, high = float(added.min()), float(added.max())
        down, across = _spread(rows, self.references), _spread(columns, self.references)
        figure = new_figure(1.5 * len(across) + 0.8, 1.5 * len(down) * rows / columns + 0.5)
        panels = figure.subplots(len(down), len(across), squeeze=False)
        image: Any = None
        for axes, (row, column) in zip(panels.ravel(), product(down, across), strict=True):
            image = axes.imshow(added[row * columns + column].cpu().numpy(), vmin=low, vmax=high, cmap="viridis")
            axes.plot(column, row, marker="*", color="red", markersize=7)
            axes.set(xticks=[], yticks=[])
        figure.colorbar(image, ax=panels.ravel().tolist(), shrink=0.7)
        figure.suptitle(f"block {number}: added to the scores, mean over heads and pictures", fontsize=9)
        return save_picture(figure, scene.folder / f"block-{number}.png")


def _spread(length: int, count: int) -> list[int]:
    count = min(count, length)
    return [int((number + 0.5) * length / count) for number in range(count)]


@contextmanager
def recorded(model: nn.Module) -> Iterator[Terms]:
    """Keeps the terms that every pairwise encoding of a model adds to the scores while it runs."""
    encodings = [module for module in model.modules() if isinstance(module, PairwisePosition)]
    single = [one for one in encodings if not any(other in encodings for other in one.modules() if other is not one)]
    terms = Terms()
    for module in single:
        _watch(module, terms)
    try:
        yield terms
    finally:
        for module in single:
            del module.prepare, module.logits


def _watch(module: Any, terms: Terms) -> None:
    prepare, logits = module.prepare, module.logits

    def prepared(x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Any:
        if x_layout.grid is not None:
            terms.grid, terms.front = x_layout.grid, int(x_layout.special[0].sum())
        return prepare(x, y, x_layout, y_layout)

    def added(q: Tensor, k: Tensor, state: Any, layer: int) -> Tensor | None:
        term: Tensor | None = logits(q, k, state, layer)
        if term is not None:
            terms.added.append(term.float().mean((0, 1)))
        return term

    module.prepare, module.logits = prepared, added
