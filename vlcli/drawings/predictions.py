"""Draws pictures with a trained model's predictions beside the references."""

from collections.abc import Mapping
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vlcli.data import Example, Pipeline
from vlcli.drawings.base import Album, Drawing, DrawingContext, save_picture
from vlcli.engine.evaluation import evaluating
from vlcli.errors import UsageError
from vlcli.report import INK, Cell, contact_sheet, draw_boxes

RIGHT, WRONG = "#1a7f37", "#c62828"
# Where references are found, in a prediction's row first, then among the example's targets.
_ANSWERS = ("label", "answer", "references", "captions", "raw_answers", "answers", "target")


class Predictions(Drawing):
    """A sheet of pictures, each with the model's prediction beside the reference.

    Args:
        count: examples drawn, the first of the data.
        columns: pictures in a row.
        width: of one picture, in pixels.
        score: boxes with a lower score are not drawn.
    """

    reads_data = True

    def __init__(self, *, count: int = 12, columns: int = 4, width: int = 240, score: float = 0.3) -> None:
        self.count, self.columns, self.width, self.score = count, columns, width, score

    def draw(self, scene: DrawingContext) -> list[Path]:
        bundle = scene.bundle()
        task = scene.task(bundle)
        if task is None:
            hint = "name one: task=NAME (vlcli ls tasks)"
            raise UsageError("The model was trained on no task.", where=str(bundle.folder), hint=hint)
        runner = scene.runner(bundle, limit=self.count)
        with evaluating(runner.module):
            rows = task.evaluate(runner).predictions
        album = Album(runner.data)
        cells = [self._cell(example, row, album) for example, row in paired(runner.data, rows)[: self.count]]
        sheet = contact_sheet(cells, columns=self.columns, width=self.width)
        return [save_picture(sheet, scene.folder / "predictions.png")]

    def _cell(self, example: Example, row: Mapping[str, Any], album: Album) -> Cell:
        pictures = [album.open(name) for name in example.images]
        if "boxes" in row and pictures:
            scores = np.asarray(row.get("scores", np.ones(len(row["boxes"]))), np.float32)
            kept = np.flatnonzero(scores >= self.score)
            names = row.get("classes", [""] * len(scores))
            labels = [f"{names[index]} {scores[index]:.2f}" for index in kept]
            pictures[0] = draw_boxes(pictures[0], np.asarray(row["boxes"], np.float32).reshape(-1, 4)[kept], labels)
        asked = example.text and example.text not in row.get("references", ())  # a caption is no question
        lines = [(str(example.text), INK)] if asked else []
        return Cell(side_by_side(pictures), lines + self._lines(example, row))

    def _lines(self, example: Example, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        if "boxes" in row:
            return []
        right = row.get("correct", row.get("accuracy"))
        colour = INK if right is None else RIGHT if float(right) >= 0.5 else WRONG
        said = row.get("prediction", row.get("caption"))
        lines = [] if said is None else [(f"predicted: {_text(said)}", colour)]
        references = (row.get(name, example.targets.get(name)) for name in _ANSWERS)
        reference = next((value for value in references if value not in (None, "", [], {})), None)
        return lines if reference is None else [*lines, (f"reference: {_text(reference)}", INK)]


def paired(data: Pipeline, rows: list[dict[str, Any]]) -> list[tuple[Example, dict[str, Any]]]:
    """Pairs every example with its prediction: by key, by picture, or by order where rows are named otherwise."""
    by_key = {str(row.get("key")): row for row in rows}
    in_order = rows if len(rows) == len(data.examples) else repeat(None)
    pairs = []
    for example, same in zip(data.examples, in_order, strict=False):
        row = next((by_key[name] for name in (example.key, *example.images) if name in by_key), same)
        pairs += [] if row is None else [(example, row)]
    return pairs


def side_by_side(pictures: list[Image.Image]) -> Image.Image:
    """Joins pictures in a row, all of one height."""
    if len(pictures) == 1:
        return pictures[0]
    height = min((picture.height for picture in pictures), default=40)
    scaled = [picture.resize((max(1, round(picture.width * height / picture.height)), height)) for picture in pictures]
    row = Image.new("RGB", (sum(p.width for p in scaled) + 4 * max(len(scaled) - 1, 0) or 40, height), "white")
    left = 0
    for picture in scaled:
        row.paste(picture, (left, 0))
        left += picture.width + 4
    return row


def _text(value: Any) -> str:
    if isinstance(value, Mapping):  # answers with their scores, best first
        return ", ".join(sorted(map(str, value), key=lambda name: -float(value[name])))
    if isinstance(value, list | tuple):
        return " / ".join(dict.fromkeys(map(str, value)))
    return str(value)
