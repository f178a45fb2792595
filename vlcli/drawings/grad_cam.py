"""Draws Grad-CAM: a heat map of a sentence's match with a picture, for the sentence and for each word."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from PIL import Image

from vlcli.drawings.base import Album, Drawing, DrawingContext, enlarged, pieces, save_picture, scaled
from vlcli.engine import Bundle, TaskRunner, evaluating
from vlcli.nn import Batch, Layout
from vlcli.report.drawing import draw_boxes, draw_heat
from vlcli.report.sheet import INK, Cell, contact_sheet
from vlcli.tasks.heat import contrast_maps, heat_map, matching_maps
from vlcli.tasks.outputs import target

Panel = tuple[str, torch.Tensor]


@dataclass(kw_only=True)
class GradCam(Drawing):
    """Grad-CAM of the matching score over the picture: for the whole sentence, then for each of its words.

    Attention from words to the picture, times its positive gradient. Where the data know the box that is meant, the
    first panel shows it.

    Args:
        count: examples drawn, the first of the data.
        objective: whose score for a match is differentiated.
        of: ``words``: attention from words to the picture; ``image``: from the picture's class token to its patches, by
            the cosine of a contrast, one panel for the sentence (see the task ``grounding``).
        layer: which attention, as a pattern (``cross.5.text_to_image``); None: the middle one.
        head: one head; None: their mean.
        words: so many words of the sentence get a panel.
        columns: panels in a row.
    """

    paper = "Grad-CAM, Selvaraju et al. 2017; ALBEF, Li et al. 2021, Figure 4; ACE-RPE, Figure 4"
    reads_data = True

    count: int = 4
    objective: str = "matching"
    of: Literal["words", "image"] = "words"
    layer: str | None = None
    head: int | None = None
    words: int = 12
    columns: int = 5

    def draw(self, scene: DrawingContext) -> list[Path]:
        bundle = scene.bundle()
        runner = scene.runner(bundle, limit=self.count)
        album = Album(runner.data)
        paths: list[Path] = []
        chosen = range(min(self.count, runner.data.total))
        with evaluating(runner.module), scene.progress.task("draw", len(chosen), "ex") as bar:
            for code in chosen:
                batch = runner.data.batch([code]).to(scene.device)
                panels, layout = self._panels(runner, bundle, batch)
                picture, sentence = opened(batch, album)
                cells = [Cell(with_truth(picture, batch), [(sentence, INK)])]
                cells += [Cell(heated(picture, values, layout), [(label, INK)]) for label, values in panels]
                sheet = contact_sheet(cells, columns=self.columns)
                paths.append(save_picture(sheet, scene.folder / f"grad-cam-{len(paths) + 1}.png"))
                bar.advance()
        return paths

    def _panels(self, runner: TaskRunner, bundle: Bundle, batch: Batch) -> tuple[list[Panel], Layout]:
        how = (self.objective, self.layer, self.head, "drawing grad-cam")
        if self.of == "image":
            values, layout = contrast_maps(runner, batch, *how)
            return [("what the picture's class token attends to", values[0])], layout
        maps = matching_maps(runner, batch, *how)
        panels: list[Panel] = [(f"{maps.name}, all words", maps.whole()[0])]
        panels += [(piece, maps.maps[0, place]) for place, piece in pieces(bundle, batch)[: self.words]]
        return panels, maps.image


def opened(batch: Batch, album: Album) -> tuple[Image.Image, str]:
    """Returns the first example's picture, enlarged where it is small, and its sentence."""
    view = batch.clean
    assert view.images is not None
    assert view.text is not None
    picture = album.open(view.images.keys[int(view.image_rows[0, 0])])
    return enlarged(picture), view.text.raw[int(view.text_rows[0])]


def with_truth(picture: Image.Image, batch: Batch) -> Image.Image:
    """Draws the box that is meant, where the data know it."""
    box = target(batch, "box")[0]
    return picture if box is None else draw_boxes(picture, scaled(np.array([list(box)], np.float32), picture))


def heated(picture: Image.Image, values: torch.Tensor, layout: Layout, row: int = 0) -> Image.Image:
    """Draws a heat map of one number an image token over the picture."""
    return draw_heat(picture, heat_map(values, layout, row, (picture.height, picture.width)))
