"""Figure 4: which words are anchors, which patches they stand for, and what the match rests on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from vlcli.drawings import (
    Album,
    Drawing,
    DrawingContext,
    heated,
    opened,
    pieces,
    save_numbers,
    save_picture,
    scaled,
    token_boxes,
    with_truth,
)
from vlcli.engine import Bundle, TaskRunner, evaluating
from vlcli.errors import UsageError
from vlcli.nn import Batch, Layout
from vlcli.report import INK, Cell, contact_sheet, draw_attention
from vlcli.tasks import matching_maps
from vlcli_ace_rpe.encoding import ACERPE, Paths

RED = "#c00000"


class Anchors(Drawing):
    """A sentence's anchors: above, the patches each word is alike to; below, Grad-CAM for the same words (Figure 4).

    A patch is as bright as the share of channel groups in which it and the word are an anchor (Eq. 5). Words are drawn
    in the order of how clearly they point: the share of anchors that fall on their brightest tenth of patches. Numbers
    go to ``anchors.json``.

    Args:
        count: examples drawn, the first of the data.
        objective: whose score for a match Grad-CAM differentiates.
        layer: of Grad-CAM, as a pattern; None: the middle one. In the last, which the paper shows, only the class token
            has a gradient where the match is read from it.
        words: so many words get a column.
    """

    paper = "ACE-RPE, Figure 4"
    reads_data = True

    def __init__(
        self, *, count: int = 4, objective: str = "matching", layer: str | None = None, words: int = 5
    ) -> None:
        self.count, self.objective, self.layer, self.words = count, objective, layer, words

    def draw(self, scene: DrawingContext) -> list[Path]:
        # ``anchors-1.png`` ... and ``anchors.json``.
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.count)
        album = Album(runner.data)
        made: list[Path] = []
        numbers: list[dict[str, Any]] = []
        chosen = range(min(self.count, runner.data.total))
        with evaluating(runner.module), scene.progress.task("draw", len(chosen), "ex") as bar:
            for code in chosen:
                batch = runner.data.batch([code]).to(scene.device)
                cells, found = self._cells(bundle, runner, batch, album)
                sheet = contact_sheet(cells, columns=len(cells) // 2)
                made.append(save_picture(sheet, scene.folder / f"anchors-{len(made) + 1}.png"))
                numbers.append({"key": batch.keys[0], "words": found})
                bar.advance()
        return [*made, save_numbers(numbers, scene.folder / "anchors.json")]

    def _cells(
        self, bundle: Bundle, runner: TaskRunner, batch: Batch, album: Album
    ) -> tuple[list[Cell], dict[str, float]]:
        with measured(runner.model) as states:
            maps = matching_maps(runner, batch, self.objective, self.layer, None, "drawing ace-anchors")
        picture, sentence = opened(batch, album)
        shares = anchor_shares(states, maps.maps.shape[1], maps.maps.shape[2])  # (T, R)
        boxes, places = token_boxes(maps.image, 0)
        ranked = by_clearness(shares[:, places], pieces(bundle, batch))[: self.words]
        above = [Cell(with_truth(picture, batch), [(sentence, INK)])]
        below = [Cell(heated(picture, maps.whole()[0], maps.image), [("Grad-CAM, all words", INK)])]
        for place, word, _ in ranked:
            lit = draw_attention(picture, scaled(boxes, picture), shares[place, places])
            anchor = float(shares[place, places].max(initial=0))
            above.append(Cell(lit, [(f"{word}: {anchor:.2f} of the groups", RED if anchor > 0 else INK)]))
            below.append(Cell(heated(picture, maps.maps[0, place], maps.image), [(f"Grad-CAM, {word}", INK)]))
        return above + below, {f"{place} {word}": clear for place, word, clear in ranked}


@contextmanager
def measured(model: nn.Module) -> Iterator[list[Paths]]:
    """What every ACE-RPE of the model measures while the context lasts.

    Raises:
        UsageError: the model has none.
    """
    found: list[Paths] = []
    parts = [module for module in model.modules() if isinstance(module, ACERPE)]
    if not parts:
        what = "The model has no ACE-RPE, so there are no anchors."
        raise UsageError(what, where="drawing ace-anchors", expected="cross_position: ace-rpe")

    def keeping(module: ACERPE) -> Any:
        def prepare(x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Paths:
            found.append(type(module).prepare(module, x, y, x_layout, y_layout))
            return found[-1]

        return prepare

    for module in parts:
        module.prepare = keeping(module)  # type: ignore[method-assign]
    try:
        yield found
    finally:
        for module in parts:
            del module.prepare


def anchor_shares(states: list[Paths], words: int, tokens: int) -> NDArray[np.float32]:
    """(T, R) the share of groups in which a word and an image token of the first example are an anchor.

    Raises:
        UsageError: words ask for no picture anywhere.
    """
    for state in states:
        shape = tuple(state.anchors.shape[1:3])
        if shape in ((words, tokens), (words + tokens, words + tokens)):
            found: NDArray[np.float32] = state.anchors[0, :words, -tokens:].float().mean(-1).cpu().numpy()
            return found
    raise UsageError("The encoding measured no words against this picture.", where="drawing ace-anchors")


def by_clearness(shares: NDArray[np.float32], words: list[tuple[int, str]]) -> list[tuple[int, str, float]]:
    """Place, spelling and clearness of words, the clearest first, equal ones in the sentence's order."""
    best = max(1, round(shares.shape[1] / 10))
    top = np.sort(shares, axis=1)[:, ::-1][:, :best].sum(1) / np.maximum(shares.sum(1), 1e-9)
    clear = np.where(shares.sum(1) > 0, top, 0.0)
    return sorted(((place, word, float(clear[place])) for place, word in words), key=lambda row: -row[2])
