"""Boxes, labels and attention drawn on a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from PIL import Image, ImageDraw, ImageFont

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#f032e6", "#000075", "#808000")
"""Boxes take them in turn; all are told apart on light and dark pictures."""


SHADE = 0.75
"""How much of a picture's brightness attention of 0 takes."""


def attention_bar(width: int = 160, height: int = 16, *, shade: float = SHADE) -> Image.Image:
    """The brightness of :func:`draw_attention` from 0 (left) to its top (right), on white."""
    light = 255 * (1 - shade * (1 - np.linspace(0, 1, width, dtype=np.float32)))
    return Image.fromarray(np.broadcast_to(light.round().astype(np.uint8), (height, width)).copy())


def draw_boxes(
    picture: Image.Image,
    boxes: ArrayLike,
    labels: Sequence[str] | None = None,
    *,
    width: int = 2,
    font_size: int = 12,
) -> Image.Image:
    """A copy of ``picture`` with ``boxes`` (N, 4) in pixels, x1 y1 x2 y2, and a label at each one's corner."""
    made = picture.convert("RGB")
    pen, font = ImageDraw.Draw(made), ImageFont.load_default(font_size)
    for place, box in enumerate(_boxes(boxes)):
        colour = COLOURS[place % len(COLOURS)]
        pen.rectangle(_drawable(box, made.size), outline=colour, width=width)
        if labels is not None:
            _write(pen, (box[0], box[1]), labels[place], colour, font)
    return made


def draw_attention(
    picture: Image.Image, boxes: ArrayLike, weights: ArrayLike, *, shade: float = SHADE, top: float | None = None
) -> Image.Image:
    """A copy of ``picture`` that is dark except where ``boxes`` (N, 4) with a high weight (N,) lie.

    A pixel is as bright as the heaviest box that covers it; a weight of ``top`` (None: the heaviest of all) is fully
    bright.
    """
    made = np.asarray(picture.convert("RGB"), dtype=np.float32)
    light = np.zeros(made.shape[:2], dtype=np.float32)
    strength = np.asarray(weights, dtype=np.float32)
    strength = (strength / max(float(strength.max(initial=0.0)) if top is None else top, 1e-12)).clip(0, 1)
    for box, weight in zip(_boxes(boxes), strength, strict=True):
        left, top, right, bottom = (round(float(value)) for value in box)
        area = light[max(top, 0) : max(bottom, top + 1), max(left, 0) : max(right, left + 1)]
        np.maximum(area, weight, out=area)
    dimmed = made * (1 - shade * (1 - light[..., None]))
    return Image.fromarray(dimmed.round().astype(np.uint8))


def _boxes(boxes: ArrayLike) -> NDArray[np.float32]:
    return np.asarray(boxes, dtype=np.float32).reshape(-1, 4)


def _drawable(box: NDArray[np.float32], size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Inside the picture, at least one pixel each way."""
    left, top = min(max(float(box[0]), 0), size[0] - 1), min(max(float(box[1]), 0), size[1] - 1)
    right, bottom = min(float(box[2]), size[0] - 1), min(float(box[3]), size[1] - 1)
    return left, top, max(right, left), max(bottom, top)


Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def _write(pen: ImageDraw.ImageDraw, corner: tuple[float, float], text: str, colour: str, font: Font) -> None:
    place = pen.textbbox(corner, text, font=font)
    pen.rectangle(place, fill=colour)
    pen.text(corner, text, fill="white", font=font)


def draw_heat(picture: Image.Image, heat: ArrayLike, *, share: float = 0.55) -> Image.Image:
    """A copy of ``picture`` under a heat map (height, width) of its size: from clear over yellow to red.

    What is not above 0 stays clear; the hottest place covers ``share`` of the picture.
    """
    made = np.asarray(picture.convert("RGB"), dtype=np.float32)
    given = np.asarray(heat, dtype=np.float32).clip(min=0)
    strength = (given / max(float(given.max(initial=0.0)), 1e-12))[..., None]
    colour = np.concatenate([np.full_like(strength, 255), 230 * (1 - strength), 40 * (1 - strength)], -1)
    cover = share * np.sqrt(strength)
    return Image.fromarray((made * (1 - cover) + colour * cover).round().astype(np.uint8))
