"""Attention of a trained model, drawn over the regions of pictures."""

from __future__ import annotations

import fnmatch
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from vlcli.drawings.base import Drawing, DrawingContext, save_picture
from vlcli.drawings.pictures import Album, enlarged, scaled, token_boxes
from vlcli.engine.bundle import Bundle
from vlcli.engine.evaluation import TaskRunner, evaluating
from vlcli.errors import UsageError
from vlcli.nn.batch import Batch
from vlcli.nn.model import EncoderOutput, Recorder
from vlcli.report.drawing import attention_bar, draw_attention, draw_boxes
from vlcli.report.sheet import INK, Cell, contact_sheet


@dataclass
class Seen:
    """What one pass over an example leaves.

    Attributes:
        image: states of the image tokens, a row a picture.
        text: how many tokens the sentence has; 0 without one.
        attention: probabilities (P, H, Tq, Tk) of the chosen layer.
        name: of that layer.
    """

    image: EncoderOutput
    text: int
    attention: Tensor
    name: str


class Attention(Drawing):
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

    def draw(self, scene: DrawingContext) -> list[Path]:
        """One sheet a picture: ``attention-1.png`` ..."""
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.count)
        album = Album(runner.data)
        made: list[Path] = []
        with evaluating(runner.module), torch.no_grad(), scene.progress.task("draw", self.count, "ex") as bar:
            for code in range(min(self.count, runner.data.total)):
                batch = runner.data.batch([code]).to(scene.device)
                seen = self._look(runner, batch)
                for pair in range(len(seen.attention)):
                    cells, top = self._cells(bundle, batch, seen, pair, album)
                    sheet = contact_sheet(cells, columns=self.columns, scale=_scale(seen, pair, top))
                    made.append(save_picture(sheet, scene.folder / f"attention-{len(made) + 1}.png"))
                bar.advance()
        return made

    def _look(self, runner: TaskRunner, batch: Batch) -> Seen:
        record = Recorder()
        step = runner.step(batch, record=record)
        if "fuse" in runner.model.capabilities and batch.clean.text is not None:
            fused = step.fused()
            image, text = fused.image, len(fused.text.layout)
        else:
            image, text = step.image(), 0
        name = self._choose(record, len(image.layout), text)
        return Seen(image, text, record.attention[name].float(), name)

    def _choose(self, record: Recorder, image: int, text: int) -> str:
        """The recorded attention to draw: over the picture's tokens, and from the sentence's where there is one.

        Raises:
            UsageError: none fits.
        """
        fits = [n for n, w in record.attention.items() if w.shape[-1] in (image, text + image)]
        chosen = [n for n in fits if self.layer is None or fnmatch.fnmatchcase(n, self.layer)]
        if not chosen:
            expected = ", ".join(fits) or "(the model records none over the picture)"
            raise UsageError(
                "No such attention.", where="drawing attention, layer", got=str(self.layer), expected=expected
            )
        worded = [n for n in chosen if text and record.attention[n].shape[-2] in (text, text + image)]
        return (worded or chosen)[-1]

    def _cells(self, bundle: Bundle, batch: Batch, seen: Seen, pair: int, album: Album) -> tuple[list[Cell], float]:
        """The panels of one picture, all on one scale, and the attention that its bright end stands for."""
        view = batch.clean
        assert view.images is not None
        key = view.images.keys[int(view.image_rows[0, pair])]
        picture = enlarged(album.open(key))
        boxes, places = token_boxes(seen.image.layout, pair)
        boxes = scaled(boxes, picture)
        sentence = view.text.raw[0] if seen.text and view.text is not None else key
        cells = [Cell(draw_boxes(picture, boxes, width=1), [(sentence, INK)])]
        rows = self._rows(seen, pair, places)
        panels = self._panels(bundle, batch, seen, rows)
        if (left := self._left_out(bundle, batch, seen, rows)) > 0:
            cells[0].lines.append((f"(the last {left} words have no panel: words={self.words})", INK))
        top = max(float(weights.max(initial=0)) for _, weights in panels)
        for label, weights in panels:
            shown = draw_attention(picture, boxes, weights, top=top)
            cells.append(Cell(shown, [(f"{label}  (at most {weights.max(initial=0):.3f})", INK)]))
        return cells, top

    def _rows(self, seen: Seen, pair: int, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Probabilities (Tq, N) from every query to the tokens that have a place."""
        weights = seen.attention[pair]
        if self.head is not None and self.head >= len(weights):
            expected = f"0 to {len(weights) - 1}"
            raise UsageError("No such head.", where="drawing attention, head", got=str(self.head), expected=expected)
        chosen = weights.mean(0) if self.head is None else weights[self.head]
        before = chosen.shape[-1] - len(seen.image.layout)  # the sentence, in a joint sequence
        found: NDArray[np.float32] = chosen[:, before:].cpu().numpy()[:, places]
        return found

    def _left_out(self, bundle: Bundle, batch: Batch, seen: Seen, rows: NDArray[np.float32]) -> int:
        """How many words of the sentence get no panel."""
        if not seen.text or len(rows) not in (seen.text, seen.text + len(seen.image.layout)):
            return 0
        return sum(not off for off in _pieces(bundle, batch)[1]) - self.words

    def _panels(
        self, bundle: Bundle, batch: Batch, seen: Seen, rows: NDArray[np.float32]
    ) -> list[tuple[str, NDArray[np.float32]]]:
        """(label, weights) of the mean and of single queries: words, or the class tokens of a picture alone."""
        if seen.text and len(rows) in (seen.text, seen.text + len(seen.image.layout)):
            pieces, special = _pieces(bundle, batch)
            words = [place for place, off in enumerate(special) if not off]
            mean = rows[words].mean(0) if words else rows[: seen.text].mean(0)
            return [("all words", mean), *((pieces[p], rows[p]) for p in words[: self.words])]
        layout = seen.image.layout
        off = layout.special[0].nonzero()[:, 0].tolist() if len(rows) == len(layout) else []
        return [("mean", rows.mean(0)), *((f"special token {p}", rows[p]) for p in off)]


def _scale(seen: Seen, pair: int, top: float) -> tuple[Image.Image, str, str, str]:
    """The colour bar: its ends, whose attention it is, and what spreading it evenly would give every token."""
    even = 1 / max(int((seen.attention[pair].mean(0)[0] > 0).sum()), 1)
    what = f"attention of {seen.name}, one scale for all panels; evenly spread it would be {even:.3f}"
    return attention_bar(), "0", f"{top:.3f}", what


def _pieces(bundle: Bundle, batch: Batch) -> tuple[list[str], list[Any]]:
    text = batch.clean.text
    assert text is not None
    return bundle.tokenizer.tokens(text.ids[0].tolist()), text.special[0].tolist()
