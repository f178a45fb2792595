"""Draws boxes, labels, attention and heat on a picture."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from PIL import Image, ImageDraw, ImageFont

COLOURS = ("#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#f032e6", "#000075", "#808000")
"""Colours of boxes, in turn; all are told apart on light and dark pictures."""


_SHADE = 0.75  # the part of a picture's brightness that attention of 0 takes


def attention_bar(width: int = 160) -> Image.Image:
    """Draws the brightness of :func:`draw_attention` from 0 (left) to its top (right), on white."""
    light = 255 * (1 - _SHADE * (1 - np.linspace(0, 1, width, dtype=np.float32)))
    return Image.fromarray(np.tile(light.round().astype(np.uint8), (16, 1)))


def draw_boxes(
    picture: Image.Image, boxes: ArrayLike, labels: Sequence[str] | None = None, *, width: int = 2, font_size: int = 12
) -> Image.Image:
    """Draws ``boxes`` (N, 4) in pixels, x1 y1 x2 y2, with a label at each corner, on a copy of ``picture``."""
    drawn = picture.convert("RGB")
    pen, font = ImageDraw.Draw(drawn), ImageFont.load_default(font_size)
    corners = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
    inside = corners.clip(0, [drawn.width - 1, drawn.height - 1] * 2)
    inside[:, 2:] = np.maximum(inside[:, :2], inside[:, 2:])  # at least one pixel
    for index, box in enumerate(inside.tolist()):
        pen.rectangle(box, outline=COLOURS[index % len(COLOURS)], width=width)
    sizes = [pen.textbbox((0, 0), label, font=font)[2:] for label in labels or ()]  # (width, height)
    places = label_places(corners, sizes, *drawn.size)
    for index, (label, place) in enumerate(zip(labels or (), places, strict=False)):
        if place is not None:
            pen.rectangle(pen.textbbox(place, label, font=font), fill=COLOURS[index % len(COLOURS)])
            pen.text(place, label, fill="white", font=font)
    return drawn


def label_places(
    boxes: ArrayLike, sizes: Sequence[tuple[float, float]], across: float, height: float
) -> list[tuple[float, float] | None]:
    """Finds for the label of each box a place (left, top) where it covers no earlier label; None where there is none.

    Tried are the corners of the box inside, above and below it, all moved into the picture.

    Args:
        boxes: (N, 4) in pixels, x1 y1 x2 y2.
        sizes: width and height of each label; of fewer boxes where only the first have one.
    """
    taken: list[tuple[float, float, float, float]] = []
    places: list[tuple[float, float] | None] = []
    for (x1, y1, x2, y2), (wide, high) in zip(np.asarray(boxes, dtype=np.float32).tolist(), sizes, strict=False):
        tried = [(x, y) for y in (y1, y1 - high, y2, y2 - high) for x in (x1, x2 - wide)]
        inside = [(min(max(x, 0), max(across - wide, 0)), min(max(y, 0), max(height - high, 0))) for x, y in tried]
        free = [
            (x, y)
            for x, y in inside
            if not any(x < a + w and a < x + wide and y < b + h and b < y + high for a, b, w, h in taken)
        ]
        places.append(free[0] if free else None)
        taken += [(*place, wide, high) for place in free[:1]]
    return places


def draw_attention(
    picture: Image.Image, boxes: ArrayLike, weights: ArrayLike, *, shade: float = _SHADE, top: float | None = None
) -> Image.Image:
    """Darkens a copy of ``picture`` except where ``boxes`` (N, 4) with a high weight (N,) lie.

    A pixel is as bright as the heaviest box over it; a weight of ``top`` (None: the heaviest of all) is fully bright.
    """
    pixels = np.asarray(picture.convert("RGB"), dtype=np.float32)  # (height, width, 3)
    light = np.zeros(pixels.shape[:2], dtype=np.float32)  # (height, width)
    strength = np.asarray(weights, dtype=np.float32)
    strength = (strength / max(float(strength.max(initial=0.0)) if top is None else top, 1e-12)).clip(0, 1)
    corners = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
    for (x1, y1, x2, y2), weight in zip(corners.round().astype(int), strength, strict=True):
        area = light[max(y1, 0) : max(y2, y1 + 1), max(x1, 0) : max(x2, x1 + 1)]
        np.maximum(area, weight, out=area)
    return Image.fromarray((pixels * (1 - shade * (1 - light[..., None]))).round().astype(np.uint8))


def draw_heat(picture: Image.Image, heat: ArrayLike, *, share: float = 0.55) -> Image.Image:
    """Draws a heat map (height, width) over a copy of ``picture`` of its size: from clear over yellow to red.

    What is not above 0 stays clear; the hottest place covers ``share`` of the picture.
    """
    pixels = np.asarray(picture.convert("RGB"), dtype=np.float32)  # (height, width, 3)
    positive = np.asarray(heat, dtype=np.float32).clip(min=0)
    strength = (positive / max(float(positive.max(initial=0.0)), 1e-12))[..., None]  # (height, width, 1)
    colour = np.concatenate([np.full_like(strength, 255), 230 * (1 - strength), 40 * (1 - strength)], -1)
    cover = share * np.sqrt(strength)
    return Image.fromarray((pixels * (1 - cover) + colour * cover).round().astype(np.uint8))
