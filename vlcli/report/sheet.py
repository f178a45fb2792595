"""Draws contact sheets: pictures in a grid, with lines of text below each."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from PIL import Image, ImageDraw, ImageFont

INK = "#202020"
"""The colour of captions."""
PAPER, GAP, LEADING = "white", 8, 15
BAR, BAR_WIDTH = 16, 160
"""Height and width of a colour bar."""
_FONT_SIZE, _HEAD_SIZE, _HEAD_LEADING, _MOST_LINES, _MORE = 12, 15, 19, 6, "\N{HORIZONTAL ELLIPSIS}"
_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


@dataclass
class Cell:
    """A picture, scaled to the cell's width; (text, colour) of lines below, wrapped and cut after six lines."""

    picture: Image.Image
    lines: list[tuple[str, str]] = field(default_factory=list)


def contact_sheet(
    cells: Sequence[Cell],
    *,
    columns: int = 4,
    width: int = 240,
    heading: tuple[str, str] | None = None,
    scale: tuple[Image.Image, str, str, str] | None = None,
) -> Image.Image:
    """Draws the cells in rows of ``columns``, each ``width`` pixels wide.

    Args:
        heading: a line above all cells, and its colour.
        scale: a colour bar below them (any size), the labels of its left and right ends, and what it measures.
    """
    font, large = ImageFont.load_default(_FONT_SIZE), ImageFont.load_default(_HEAD_SIZE)
    drawn = [_drawn(cell, width, font) for cell in cells]
    rows = [drawn[start : start + columns] for start in range(0, len(drawn), columns)]
    heights = [max(cell.height for cell in row) + GAP for row in rows]
    across = GAP + min(columns, len(drawn)) * (width + GAP)
    title, colour = heading or ("", INK)
    above = wrap(title, across - 2 * GAP, large) if heading else []
    top = GAP + _HEAD_LEADING * len(above) + (GAP if above else 0)
    sheet = Image.new("RGB", (across, top + sum(heights) + (BAR + 2 * GAP if scale else 0)), PAPER)
    pen = ImageDraw.Draw(sheet)
    for number, text in enumerate(above):
        pen.text((GAP, GAP + _HEAD_LEADING * number), text, fill=colour, font=large)
    for row, height in zip(rows, heights, strict=True):
        for column, cell in enumerate(row):
            sheet.paste(cell, (GAP + column * (width + GAP), top))
        top += height
    if scale is not None:
        bar, low, high, what = scale
        left = 2 * GAP + round(font.getlength(low))
        pen.text((GAP, top), low, fill=INK, font=font)
        sheet.paste(bar.convert("RGB").resize((BAR_WIDTH, BAR)), (left, top))
        pen.rectangle((left, top, left + BAR_WIDTH - 1, top + BAR - 1), outline="#808080")
        pen.text((left + BAR_WIDTH + GAP, top), f"{high}   {what}", fill=INK, font=font)
    return sheet


def _drawn(cell: Cell, width: int, font: _Font) -> Image.Image:
    height = max(1, round(cell.picture.height * width / cell.picture.width))
    lines = [(part, colour) for text, colour in cell.lines for part in wrap(text, width, font, _MOST_LINES)]
    drawn = Image.new("RGB", (width, height + LEADING * len(lines) + (4 if lines else 0)), PAPER)
    drawn.paste(cell.picture.convert("RGB").resize((width, height), Image.Resampling.LANCZOS))
    pen = ImageDraw.Draw(drawn)
    for number, (text, colour) in enumerate(lines):
        pen.text((0, height + 3 + LEADING * number), text, fill=colour, font=font)
    return drawn


def wrap(text: str, width: int, font: _Font, most: int | None = None) -> list[str]:
    """Breaks ``text`` into ``most`` lines (None: all) of ``width`` pixels; what does not fit ends in an ellipsis."""
    lines: list[str] = []
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines else word
        if lines and font.getlength(longer) <= width:
            lines[-1] = longer
        else:
            lines.append(word)
    kept = lines[:most]
    if kept and len(kept) < len(lines):
        kept[-1] += _MORE
    for number, line in enumerate(kept):
        if font.getlength(line) > width:
            bare = line.removesuffix(_MORE)
            while bare and font.getlength(bare + _MORE) > width:
                bare = bare[:-1].rstrip()
            kept[number] = bare + _MORE
    return kept or [""]
