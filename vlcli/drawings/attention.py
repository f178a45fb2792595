"""Draws the attention of a trained model over the regions of pictures."""

import fnmatch
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vlcli.drawings import base
from vlcli.engine import Bundle, TaskRunner, evaluating
from vlcli.errors import UsageError
from vlcli.nn import Batch, Layout
from vlcli.report.drawing import attention_bar, draw_attention, draw_boxes
from vlcli.report.sheet import INK, Cell, contact_sheet

ALL_WORDS = "all words"


class Seen(NamedTuple):
    """The layout of the image tokens, tokens of the sentence, and one layer's attention (P, H, Tq, Tk)."""

    layout: Layout
    text: int
    attention: Tensor
    name: str


class Attention(base.Drawing):
    """Where a model looks: attention over regions, averaged over words and for each word.

    Args:
        count: examples drawn, the first of the data.
        layer: which recorded attention, as a pattern (``cross.*.text_to_image``); the last that fits is drawn. None:
            the last one from words to regions, else the last over the picture.
        head: one head; None averages them.
        words: so many words of the sentence get a panel.
        columns: panels in a row.
    """

    reads_data = True

    def __init__(
        self, *, count: int = 4, layer: str | None = None, head: int | None = None, words: int = 12, columns: int = 5
    ) -> None:
        self.count, self.layer, self.head, self.words, self.columns = count, layer, head, words, columns

    def draw(self, scene: base.DrawingContext) -> list[Path]:
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.count)
        album = base.Album(runner.data)
        paths: list[Path] = []
        with evaluating(runner.module), scene.progress.task("draw", self.count, "ex") as bar:
            for code in range(min(self.count, runner.data.total)):
                batch = runner.data.batch([code]).to(scene.device)
                seen = self._look(runner, batch)
                for pair in range(len(seen.attention)):
                    cells, scale = self._cells(bundle, batch, seen, pair, album)
                    sheet = contact_sheet(cells, columns=self.columns, scale=scale)
                    paths.append(base.save_picture(sheet, scene.folder / f"attention-{len(paths) + 1}.png"))
                bar.advance()
        return paths

    def _look(self, runner: TaskRunner, batch: Batch) -> Seen:
        # attention over the picture's tokens, and from the sentence's where there is one
        attention, states, text = base.recorded(runner, batch)
        image = len(states.layout)
        fits = [n for n, w in attention.items() if w.shape[-1] in (image, text + image)]
        chosen = fnmatch.filter(fits, self.layer or "*")
        if not chosen:
            where, expected = "drawing attention, layer", ", ".join(fits) or "(the model records none over the picture)"
            raise UsageError("No such attention.", where=where, got=str(self.layer), expected=expected)
        worded = [n for n in chosen if text and attention[n].shape[-2] in (text, text + image)]
        name = (worded or chosen)[-1]
        return Seen(states.layout, text, attention[name].float(), name)

    def _cells(
        self, bundle: Bundle, batch: Batch, seen: Seen, pair: int, album: base.Album
    ) -> tuple[list[Cell], tuple[Image.Image, str, str, str]]:
        view = batch.clean
        assert view.images is not None
        key = view.images.keys[int(view.image_rows[0, pair])]
        picture = base.enlarged(album.open(key))
        boxes, tokens = base.token_boxes(seen.layout, pair)
        boxes = base.scaled(boxes, picture)
        sentence = view.text.raw[0] if seen.text and view.text is not None else key
        cells = [Cell(draw_boxes(picture, boxes, width=1), [(sentence, INK)])]
        rows = self._rows(seen, pair, tokens)
        whole, *others = self._panels(bundle, batch, seen, rows)
        worded = whole[0] == ALL_WORDS
        if worded and (left := len(others) - self.words) > 0:
            cells[0].lines.append((f"(the last {left} words have no panel: words={self.words})", INK))
        panels = [whole, *(others[: self.words] if worded else others)]
        top = max(float(weights.max(initial=0)) for _, weights in panels)
        for label, weights in panels:
            shown = draw_attention(picture, boxes, weights, top=top)
            cells.append(Cell(shown, [(f"{label}  (at most {weights.max(initial=0):.3f})", INK)]))
        even = 1 / max(int((seen.attention[pair].mean(0)[0] > 0).sum()), 1)
        what = f"attention of {seen.name}, one scale for all panels; evenly spread it would be {even:.3f}"
        return cells, (attention_bar(), "0", f"{top:.3f}", what)

    def _panels(
        self, bundle: Bundle, batch: Batch, seen: Seen, rows: NDArray[np.float32]
    ) -> list[tuple[str, NDArray[np.float32]]]:
        # label and weights (tokens,) of the mean, then of single queries: words, or class tokens of a picture alone
        layout = seen.layout
        if seen.text and len(rows) in (seen.text, seen.text + len(layout)):
            words = base.pieces(bundle, batch)
            mean = rows[[place for place, _ in words]].mean(0) if words else rows[: seen.text].mean(0)
            return [(ALL_WORDS, mean), *((word, rows[place]) for place, word in words)]
        special = layout.special[0].nonzero()[:, 0].tolist() if len(rows) == len(layout) else []
        return [("mean", rows.mean(0)), *((f"special token {place}", rows[place]) for place in special)]

    def _rows(self, seen: Seen, pair: int, tokens: NDArray[np.int64]) -> NDArray[np.float32]:
        weights = seen.attention[pair]  # (heads, queries, keys)
        if self.head is not None and self.head >= len(weights):
            expected = f"0 to {len(weights) - 1}"
            raise UsageError("No such head.", where="drawing attention, head", got=str(self.head), expected=expected)
        chosen = weights.mean(0) if self.head is None else weights[self.head]  # (queries, keys)
        before = chosen.shape[-1] - len(seen.layout)  # the sentence, in a joint sequence
        rows: NDArray[np.float32] = chosen[:, before:].cpu().numpy()[:, tokens]  # (queries, tokens)
        return rows
