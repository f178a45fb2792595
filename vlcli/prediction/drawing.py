"""Draws predictions on their pictures: boxes with labels, answers with probabilities below."""

from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from vlcli.drawings.base import save_picture, scaled
from vlcli.errors import VlcliError
from vlcli.prediction.pictures import open_picture
from vlcli.prediction.records import Picture, Prediction, RegionFeatures
from vlcli.report.drawing import draw_attention, draw_boxes
from vlcli.report.sheet import INK, Cell, contact_sheet

SIDE = 480  # pixels of a drawn picture's width
ANSWER = "#1f5fbf"


def draw(prediction: Prediction, images: Sequence[Picture], file: Path | None = None) -> Image.Image:
    """Draw the pictures of a prediction side by side, with boxes, the text above and the answers below."""
    return draw_all([(prediction, images)], file)


def draw_all(predictions: Sequence[tuple[Prediction, Sequence[Picture]]], file: Path | None = None) -> Image.Image:
    """Draw predictions in one sheet, a cell per picture, and write it to ``file`` if there is one."""
    cells = [
        Cell(_picture(prediction, image, number), _lines(prediction, number, len(images)))
        for prediction, images in predictions
        for number, image in enumerate(images)
    ]
    first, *others = {prediction.text for prediction, _ in predictions}
    heading = (first, INK) if first and not others else None
    columns = min(len(cells), max(2, len(predictions[0][1])) if len(predictions) == 1 else 3)
    sheet = contact_sheet(cells, columns=columns, width=SIDE, heading=heading)
    if file is not None:
        save_picture(sheet, file)
    return sheet


def png(prediction: Prediction, images: Sequence[Picture], look: Callable[[], dict[str, Any] | None]) -> bytes | None:
    """Draw a prediction as PNG for a notebook, with the attention of ``look`` beside; None if a picture is no file."""
    try:
        cells = []
        looks = (look() or {}).get("pictures") or [None] * len(images)
        for number, (image, seen) in enumerate(zip(images, looks, strict=True)):
            picture = _picture(prediction, image, number)
            cells.append(Cell(picture, _lines(prediction, number, len(images))))
            if seen is not None:
                weights = np.asarray(seen["weights"][0]).mean(0)  # of all layers, heads and words: (N,)
                dark = draw_attention(picture, scaled(np.asarray(seen["boxes"]), picture), weights)
                cells.append(Cell(dark, [("attention of the words, bright: high", INK)]))
    except VlcliError:  # an id in a store is no file to show
        return None
    heading = (prediction.text, INK) if prediction.text else None
    file = BytesIO()
    contact_sheet(cells, columns=2, width=SIDE // 2, heading=heading).save(file, "PNG")
    return file.getvalue()


def _picture(prediction: Prediction, image: Picture, number: int) -> Image.Image:
    if isinstance(image, RegionFeatures):
        return Image.new("RGB", (SIDE, SIDE), "#eeeeee")
    picture = open_picture(image)
    factor = SIDE / picture.width
    small = picture.resize((SIDE, max(1, round(picture.height * factor))), Image.Resampling.BICUBIC)
    boxes = [box for box in prediction.boxes if box.image == number]
    labels = [f"{box.label} {box.score:.2f}" if prediction.use.kind == "boxes" else box.label for box in boxes]
    return draw_boxes(small, [[factor * value for value in box.box] for box in boxes], labels, width=3, font_size=15)


def _lines(prediction: Prediction, number: int, count: int) -> list[tuple[str, str]]:
    name = (Path(prediction.images[number]).name, INK)
    if number < count - 1:
        return [name]
    answer = [] if prediction.use.kind in ("box", "boxes") else [(prediction.words(), ANSWER)]
    return [name, *answer, *((f"{choice.probability:.3f}  {choice.label}", INK) for choice in prediction.choices)]
