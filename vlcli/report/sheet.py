"""A contact sheet: pictures in a grid, lines of text below each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image, ImageDraw, ImageFont

INK, PAPER, GAP, LEADING = "#202020", "white", 8, 15
_FONT_SIZE = 12


@dataclass
class Cell:
    """One picture of a sheet.

    Attributes:
        picture: of any size; scaled to the cell's width.
        lines: what stands below, one (text, colour) each; long ones are wrapped.
    """

    picture: Image.Image
    lines: list[tuple[str, str]] = field(default_factory=list)


def contact_sheet(cells: Sequence[Cell], *, columns: int = 4, width: int = 240) -> Image.Image:
    """The cells in rows of ``columns``, each ``width`` pixels wide."""
    font = ImageFont.load_default(_FONT_SIZE)
    made = [_drawn(cell, width, font) for cell in cells]
    rows = [made[start : start + columns] for start in range(0, len(made), columns)]
    heights = [max(cell.height for cell in row) for row in rows]
    size = (GAP + min(columns, len(made)) * (width + GAP), GAP + sum(heights) + GAP * len(rows))
    sheet = Image.new("RGB", size, PAPER)
    top = GAP
    for row, height in zip(rows, heights, strict=True):
        for place, cell in enumerate(row):
            sheet.paste(cell, (GAP + place * (width + GAP), top))
        top += height + GAP
    return sheet


def _drawn(cell: Cell, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> Image.Image:
    height = max(1, round(cell.picture.height * width / cell.picture.width))
    lines = [(part, colour) for text, colour in cell.lines for part in wrap(text, width, font)]
    made = Image.new("RGB", (width, height + LEADING * len(lines) + (4 if lines else 0)), PAPER)
    made.paste(cell.picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS))
    pen = ImageDraw.Draw(made)
    for number, (text, colour) in enumerate(lines):
        pen.text((0, height + 3 + LEADING * number), text, fill=colour, font=font)
    return made


def wrap(text: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> list[str]:
    """``text`` in lines of at most ``width`` pixels, broken between words; a longer word has a line of its own."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines or [""]
