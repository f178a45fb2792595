"""Grad-CAM: what a sentence's match with a picture rests on, as a heat map for the sentence and for each word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from PIL import Image

from vlcli.drawings.base import Drawing, Scene, save_picture
from vlcli.drawings.pictures import Album, enlarged, scaled
from vlcli.engine.bundle import Bundle
from vlcli.engine.evaluation import TaskRunner, evaluating
from vlcli.nn.batch import Batch
from vlcli.nn.model import Recorder
from vlcli.nn.saliency import WordMaps, word_maps
from vlcli.report.drawing import draw_boxes, draw_heat
from vlcli.report.sheet import INK, Cell, contact_sheet
from vlcli.tasks.heat import heat_map
from vlcli.tasks.outputs import logits_of, target

Panel = tuple[str, torch.Tensor]


class GradCam(Drawing):
    """Grad-CAM of the matching score over the picture: for the whole sentence, then for each of its words.

    Attention from words to the picture, times its positive gradient. Where the data know the box that is meant, the
    first panel shows it.

    Args:
        count: examples drawn, the first of the data.
        objective: whose score for a match is differentiated.
        layer: which attention, as a pattern (``cross.5.text_to_image``); None: the middle one.
        head: one head; None: their mean.
        words: so many words of the sentence get a panel.
        columns: panels in a row.
    """

    paper = "Grad-CAM, Selvaraju et al. 2017; ALBEF, Li et al. 2021, Figure 4; ACE-RPE, Figure 4"
    reads_data = True

    def __init__(
        self,
        *,
        count: int = 4,
        objective: str = "matching",
        layer: str | None = None,
        head: int | None = None,
        words: int = 12,
        columns: int = 5,
    ) -> None:
        self.count, self.objective, self.layer, self.head = count, objective, layer, head
        self.words, self.columns = words, columns

    def draw(self, scene: Scene) -> list[Path]:
        """One sheet an example: ``grad-cam-1.png`` ..."""
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.count)
        album, made = Album(runner.data), []
        chosen = range(min(self.count, runner.data.total))
        with evaluating(runner.learner), scene.progress.task("draw", len(chosen), "ex") as bar:
            for code in chosen:
                batch = runner.data.batch([code]).to(scene.device)
                maps = matching_maps(runner, batch, self.objective, self.layer, self.head)
                sheet = contact_sheet(self._cells(bundle, batch, maps, album), columns=self.columns)
                made.append(save_picture(sheet, scene.folder / f"grad-cam-{len(made) + 1}.png"))
                bar.advance()
        return made

    def _cells(self, bundle: Bundle, batch: Batch, maps: WordMaps, album: Album) -> list[Cell]:
        picture, sentence = opened(batch, album)
        cells = [Cell(with_truth(picture, batch), [(sentence, INK)])]
        panels: list[Panel] = [(f"{maps.name}, all words", maps.whole()[0])]
        panels += [(piece, maps.maps[0, place]) for place, piece in pieces(bundle, batch)[: self.words]]
        return cells + [Cell(heated(picture, values, maps), [(label, INK)]) for label, values in panels]


def matching_maps(
    runner: TaskRunner, batch: Batch, objective: str, layer: str | None, head: int | None, where: str = "drawing"
) -> WordMaps:
    """Grad-CAM of the score for a match, by word."""
    with torch.enable_grad():
        step = runner.step(batch, Recorder(gradients=True))
        logits = logits_of(runner.predict(step), objective)
        return word_maps(step, logits.flatten(1)[:, -1], layer=layer, head=head, where=where)


def opened(batch: Batch, album: Album) -> tuple[Image.Image, str]:
    """The first example's picture, enlarged where it is small, and its sentence."""
    view = batch.clean
    assert view.images is not None
    assert view.text is not None
    picture = album.open(view.images.keys[int(view.image_rows[0, 0])])
    return enlarged(picture), view.text.raw[int(view.text_rows[0])]


def with_truth(picture: Image.Image, batch: Batch) -> Image.Image:
    """The picture with the box that is meant, where the data know it."""
    box = target(batch, "box")[0]
    if box is None:
        return picture
    return draw_boxes(picture, scaled(torch.tensor([list(box)], dtype=torch.float32).numpy(), picture))


def heated(picture: Image.Image, values: torch.Tensor, maps: WordMaps, row: int = 0) -> Image.Image:
    """The picture under the heat map of one number an image token."""
    return draw_heat(picture, heat_map(values, maps.image, row, (picture.height, picture.width)))


def pieces(bundle: Bundle, batch: Batch) -> list[tuple[int, str]]:
    """Place and spelling of the first sentence's pieces, without class token and separators."""
    text: Any = batch.clean.text
    names, special = bundle.tokenizer.tokens(text.ids[0].tolist()), text.special[0].tolist()
    return [(place, name) for place, (name, off) in enumerate(zip(names, special, strict=True)) if not off]
