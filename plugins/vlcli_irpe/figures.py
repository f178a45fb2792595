"""Draws figures of the iRPE paper: index functions (2), terms of a trained model (5) and bucket maps (6 to 9)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from vlcli.drawings import PLOTS, Drawing, DrawingContext, new_figure, save_numbers, save_picture
from vlcli.engine import evaluating
from vlcli.errors import UsageError
from vlcli.nn import Layout, PairwisePosition
from vlcli_irpe.buckets import BucketRule, Form, Index, clip, piecewise
from vlcli_irpe.relative_index import TokenGrid, grid_ids


class Plot(Drawing):
    """Base of drawings that matplotlib makes."""

    packages = ("matplotlib",)
    install = PLOTS


@dataclass
class Terms:
    """Terms on the scores by layer, averaged over pictures and heads (T, T), of ``front`` special tokens and a grid."""

    added: list[Tensor] = field(default_factory=list)
    grid: tuple[int, int] = (0, 0)
    front: int = 0


class PositionTerms(Plot):
    """The terms that position adds to attention in each block, for reference cells of the grid (Figure 5).

    Args:
        blocks: numbers from 0; None: the first and the last but one, as in the paper (blocks 0 and 10 of 12).
        references: number of reference cells a side, spread evenly.
        pictures: number of pictures over which the terms are averaged.
    """

    paper = "iRPE, Wu et al., ICCV 2021, Figure 5"
    reads_data = True

    def __init__(self, *, blocks: list[int] | None = None, references: int = 5, pictures: int = 16) -> None:
        self.blocks, self.references, self.pictures = blocks, references, pictures

    def draw(self, scene: DrawingContext) -> list[Path]:
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.pictures)
        batch = runner.data.batch(range(min(self.pictures, runner.data.total))).to(scene.device)
        with evaluating(runner.module), torch.no_grad(), recorded(runner.model) as terms:
            runner.step(batch).image()
        count = len(terms.added)
        if not count:
            what = "The model's attention has no encoding that adds to the scores."
            raise UsageError(what, where=str(bundle.folder), expected="position: irpe on keys or queries")
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


# Ratios of the released configurations (reference: the release's own defaults by method)
RELEASED = {"euclidean": 20.0, "quantization": 33.0, "cross": 20.0, "product": 1.9}
Method = Literal["euclidean", "quantization", "cross", "product"]


class IndexFunctions(Plot):
    """The piecewise index function beside the clip function (Figure 2).

    Args:
        ratio: alpha; beta is twice, gamma eight times as much.
        reach: distances up to this one are drawn; None: a little beyond gamma.
    """

    paper = "iRPE, Wu et al., ICCV 2021, Figure 2"

    def __init__(self, *, ratio: float = 2.0, reach: int | None = None) -> None:
        self.ratio, self.reach = ratio, int(10 * ratio) if reach is None else reach

    def draw(self, scene: DrawingContext) -> list[Path]:
        x = torch.arange(-self.reach, self.reach + 1)
        lines = {"piecewise g(x)": piecewise(x, self.ratio), "clip h(x)": clip(x, self.ratio)}
        figure = new_figure(6.4, 4.2)
        axes = figure.add_subplot(xlabel="relative position x", ylabel="index")
        for (label, y), style in zip(lines.items(), ("-", "--"), strict=True):
            axes.step(x.tolist(), y.tolist(), style, where="mid", label=label)
        for name, factor in (("alpha", 1), ("beta", 2), ("gamma", 8)):
            axes.axvline(factor * self.ratio, color="0.6", linewidth=0.8)
            axes.annotate(name, (factor * self.ratio, -2 * self.ratio), rotation=90, fontsize=8, ha="right")
        axes.legend()
        axes.grid(alpha=0.3)
        numbers = {"x": x.tolist(), **{label: y.tolist() for label, y in lines.items()}}
        return [save_picture(figure, scene.folder / "index.png"), save_numbers(numbers, scene.folder / "index.json")]


class BucketMaps(Plot):
    """The bucket of each cell of a grid, seen from reference cells (Figures 6 to 9).

    Args:
        method: how a 2-D offset becomes a bucket; Cross has two maps, rows and columns.
        grid: rows and columns.
        at: reference cells, row and column each; None: the centre, and one near a corner.
        ratio: alpha; None: that of the released configuration.
        index: piecewise, or clip.
        form: where paper and released code differ, which one holds.
        numbers: write the ids into the cells.
    """

    paper = "iRPE, Wu et al., ICCV 2021, Figures 6-9"

    def __init__(
        self,
        *,
        method: Method = "product",
        grid: tuple[int, int] = (14, 14),
        at: list[tuple[int, int]] | None = None,
        ratio: float | None = None,
        index: Index = "piecewise",
        form: Form = "as_released",
        numbers: bool = True,
    ) -> None:
        rows, columns = grid
        self.grid, self.numbers = grid, numbers
        self.rule = BucketRule(method, RELEASED[method] if ratio is None else ratio, index, form)
        self.at = at or list(dict.fromkeys([(rows // 2, columns // 2), (min(1, rows - 1), min(2, columns - 1))]))
        outside = [cell for cell in self.at if not (0 <= cell[0] < rows and 0 <= cell[1] < columns)]
        if outside:
            where, expected = "drawing irpe-buckets, at", f"rows 0 to {rows - 1}, columns 0 to {columns - 1}"
            raise UsageError("This cell is not on the grid.", where=where, got=str(outside[0]), expected=expected)

    def draw(self, scene: DrawingContext) -> list[Path]:
        (rows, columns), grid = self.grid, TokenGrid(*self.grid)
        tables = grid_ids(self.rule, grid, grid)
        names = ["rows", "columns"] if self.rule.tables == 2 else [self.rule.method]
        panels = [(at, name, ids) for at in self.at for name, ids in zip(names, tables, strict=True)]
        figure = new_figure(max(2.2, 0.36 * columns) * len(panels) + 0.5, max(2.2, 0.36 * rows) + 0.6)
        maps = []
        for axes, (at, name, ids) in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            seen = ids[at[0] * columns + at[1]].reshape(rows, columns)  # the reference is the query
            self._map(axes, seen, at, f"{name}, from ({at[0]}, {at[1]})")
            maps.append({"from": list(at), "table": name, "ids": seen.tolist()})
        stem = scene.folder / f"buckets-{self.rule.method}"
        used = sum(len(ids.unique()) for ids in tables)
        facts = {"ratio": self.rule.ratio, "allocated": self.rule.buckets, "maps": maps, "used": used}
        return [save_picture(figure, stem.with_suffix(".png")), save_numbers(facts, stem.with_suffix(".json"))]

    def _map(self, axes: Any, ids: Any, at: tuple[int, int], title: str) -> None:
        # Neighbouring ids get unlike colours, equal ids the same one in every map.
        from matplotlib import colormaps

        shades = (ids * 0.618033988749895) % 1.0  # the golden ratio spreads them
        axes.imshow(colormaps["hsv"](shades.numpy()) * [0.75, 0.75, 0.75, 1] + [0.25, 0.25, 0.25, 0])
        axes.plot(at[1], at[0], marker="*", markersize=14, color="red", markeredgecolor="white")
        if self.numbers and ids.numel() <= 1024:
            for (row, column), number in np.ndenumerate(ids.numpy()):
                if (row, column) != at:
                    axes.text(column, row, str(number), ha="center", va="center", fontsize=6)
        axes.set_title(f"{title}: {len(ids.unique())} buckets", fontsize=9)
        axes.set(xticks=[], yticks=[])
