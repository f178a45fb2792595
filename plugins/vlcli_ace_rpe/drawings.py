"""Draws Figure 4: the anchors of each word, and Grad-CAM of the match for the same words."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from torch import nn

from vlcli import drawings
from vlcli.engine import Bundle, TaskRunner, evaluating
from vlcli.errors import UsageError
from vlcli.nn import Batch
from vlcli.report import INK, Cell, contact_sheet, draw_attention
from vlcli.tasks import matching_maps
from vlcli_ace_rpe.encoding import ACERPE, Paths

RED = "#c00000"


class Anchors(drawings.Drawing):
    """A sentence's anchors: above, the patches each word is alike to; below, Grad-CAM for the same words (Figure 4).

    A patch is as bright as the share of channel groups in which it and the word are an anchor (Eq. 5). Words are
    ordered by the share of their anchors on their brightest tenth of patches. Numbers go to ``anchors.json``.

    Args:
        count: examples drawn, the first of the data.
        objective: whose score for a match Grad-CAM differentiates.
        layer: of Grad-CAM, as a pattern; None: the middle one. In the paper's, the last, only the class token has a
            gradient where the match is read from it.
        words: so many words get a column.
    """

    paper = "ACE-RPE, Figure 4"
    reads_data = True

    def __init__(
        self, *, count: int = 4, objective: str = "matching", layer: str | None = None, words: int = 5
    ) -> None:
        self.count, self.objective, self.layer, self.words = count, objective, layer, words

    def draw(self, scene: drawings.DrawingContext) -> list[Path]:
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.count)
        album, paths, numbers = drawings.Album(runner.data), list[Path](), list[dict[str, Any]]()
        count = min(self.count, runner.data.total)
        with evaluating(runner.module), scene.progress.task("draw", count, "ex") as bar:
            for code in range(count):
                batch = runner.data.batch([code]).to(scene.device)
                cells, clearness = self._cells(bundle, runner, batch, album)
                sheet = contact_sheet(cells, columns=len(cells) // 2)
                paths.append(drawings.save_picture(sheet, scene.folder / f"anchors-{code + 1}.png"))
                numbers.append({"key": batch.keys[0], "words": clearness})
                bar.advance()
        return [*paths, drawings.save_numbers(numbers, scene.folder / "anchors.json")]

    def _cells(
        self, bundle: Bundle, runner: TaskRunner, batch: Batch, album: drawings.Album
    ) -> tuple[list[Cell], dict[str, float]]:
        with measured(runner.model) as states:
            maps = matching_maps(runner, batch, self.objective, self.layer, None, "drawing ace-anchors")
        picture, sentence = drawings.opened(batch, album)
        shares = anchor_shares(states, maps.maps.shape[1], maps.maps.shape[2])  # (T, R)
        boxes, columns = drawings.token_boxes(maps.image, 0)
        ranked = by_clearness(shares[:, columns], drawings.pieces(bundle, batch))[: self.words]
        above = [Cell(drawings.with_truth(picture, batch), [(sentence, INK)])]
        below = [Cell(drawings.heated(picture, maps.whole()[0], maps.image), [("Grad-CAM, all words", INK)])]
        for row, word, _ in ranked:
            lit = draw_attention(picture, drawings.scaled(boxes, picture), shares[row, columns])
            anchor = float(shares[row, columns].max(initial=0))
            above.append(Cell(lit, [(f"{word}: {anchor:.2f} of the groups", RED if anchor > 0 else INK)]))
            below.append(Cell(drawings.heated(picture, maps.maps[0, row], maps.image), [(f"Grad-CAM, {word}", INK)]))
        return above + below, {f"{row} {word}": clear for row, word, clear in ranked}


@contextmanager
def measured(model: nn.Module) -> Iterator[list[Paths]]:
    """Collects the measures of every ACE-RPE of the model. Raises UsageError: it has none."""
    states: list[Paths] = []
    parts = [module for module in model.modules() if isinstance(module, ACERPE)]
    if not parts:
        what = "The model has no ACE-RPE, so there are no anchors."
        raise UsageError(what, where="drawing ace-anchors", expected="cross_position: ace-rpe")

    def prepare(module: ACERPE, *tokens: Any) -> Paths:
        states.append(type(module).prepare(module, *tokens))
        return states[-1]

    for module in parts:
        module.prepare = partial(prepare, module)  # type: ignore[method-assign]
    try:
        yield states
    finally:
        for module in parts:
            del module.prepare


def anchor_shares(states: list[Paths], words: int, tokens: int) -> NDArray[np.float32]:
    """Returns the shares (T, R) of groups in which word and image token of the first example are an anchor."""
    for state in states:
        shape = tuple(state.anchors.shape[1:3])
        if shape in ((words, tokens), (words + tokens, words + tokens)):
            return cast("NDArray[np.float32]", state.anchors[0, :words, -tokens:].float().mean(-1).cpu().numpy())
    raise UsageError("No position encoding compared the words with this picture.", where="drawing ace-anchors")


def by_clearness(shares: NDArray[np.float32], words: list[tuple[int, str]]) -> list[tuple[int, str, float]]:
    """Returns row, spelling and clearness of words, the clearest first, equal ones in the sentence's order."""
    best, total = max(1, round(shares.shape[1] / 10)), shares.sum(1)
    clear = np.sort(shares, axis=1)[:, ::-1][:, :best].sum(1) / np.maximum(total, 1e-9)  # 0 where there are none
    return sorted(((row, word, float(clear[row])) for row, word in words), key=lambda each: -each[2])
