"""Takes the positions of tokens from the caller of ``equip``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from vlcli.errors import ComponentError
from vlcli.foreign.places import PICTURE, SENTENCE, TokenPlaces, numbered, own_layouts
from vlcli.nn import Layout, Sort


class GivenPlaces(TokenPlaces):
    """Tokens whose positions a layout gives, or a function of their number.

    Args:
        layout: of all tokens, or a function that makes it from their number; with a leading dimension of 1 or B.
        holds: sorts of tokens in it; required with a function.
    """

    told_by = "the layout that was given"

    def __init__(self, layout: Layout | Callable[[int], Layout], holds: frozenset[Sort] | None = None) -> None:
        if holds is None and not isinstance(layout, Layout):
            raise ComponentError(
                "A function that makes layouts must come with the sorts of its tokens.",
                where="GivenPlaces",
                expected='e.g. GivenPlaces(function, frozenset({"word", "box"}))',
            )
        self.layout = layout
        self.holds = sorts_of(layout) if holds is None and isinstance(layout, Layout) else holds or frozenset()
        ...

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        layout = (self.layout if isinstance(self.layout, Layout) else self.layout(y.shape[1])).to(y.device)
        count = layout.route.shape[1]
        if count != y.shape[1]:
            raise ComponentError(
                "The layout that was given is not that of the tokens.",
                where="vlcli.foreign.equip",
                got=f"a layout of {count} tokens, and {y.shape[1]} tokens",
                hint="give a function of the number of tokens",
            )
        return own_layouts(layout, x)


class PictureInText(TokenPlaces):
    """A grid of image tokens between words, as in decoders that read pictures (nanoVLM, LLaVA); words may grow.

    Words are numbered as if the picture were not among them, and a word and a cell have no offset from each other.

    Args:
        rows: of the grid.
        columns: of the grid.
        start: words before it.
        special: tokens without a place between those words and the grid.
    """

    holds = frozenset({"word", "cell"})
    told_by = "the grid that was given"

    def __init__(self, rows: int, columns: int, *, start: int = 0, special: int = 0) -> None:
        self.rows, self.columns, self.start, self.special = rows, columns, start, special

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        count, device = y.shape[1], y.device
        picture = Layout.for_grid(self.rows, self.columns, skip=self.special, device=device)
        behind = count - self.start - picture.route.shape[1]
        if behind < 0:
            raise ComponentError(
                "There are fewer tokens than the words and the picture that were announced.",
                where="PictureInText",
                got=f"{count} tokens",
                expected=f"{self.start} words and {self.rows}x{self.columns} cells at least",
            )
        words = numbered(
            Layout.for_text(torch.ones(1, self.start + behind, dtype=torch.bool, device=device)), *SENTENCE
        )
        parts = [words.cut(0, self.start), numbered(picture, *PICTURE), words.cut(self.start, self.start + behind)]
        layout = parts[0] + parts[1] + parts[2]
        return own_layouts(replace(layout, grid=(self.rows, self.columns)), x)


def sorts_of(layout: Layout) -> frozenset[Sort]:
    """Returns the sorts of tokens in a layout."""
    sorts: set[Sort] = {"word"} if bool((layout.index >= 0).any()) else set()
    if bool((~layout.centre[..., 0].isnan()).any()):
        sorts.add("box" if layout.boxes is not None else "cell")
    return frozenset(sorts)
