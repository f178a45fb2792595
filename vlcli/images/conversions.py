"""Notes how pictures that are not 8-bit RGB are converted, and which come out black or white."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from vlcli.errors import DataError
from vlcli.images.files import BadImageError, deep_range, is_deep, open_image, opened

# Pictures whose header is read, and whose pixels are decoded.
LOOKED_AT, DECODED = 1000, 24
# Nearly every value of a picture called black is below, of one called white above.
DARK, LIGHT = 20, 235
_CONVERSIONS = {
    "CMYK": "CMYK: converted as Pillow does, without a colour profile",
    "P": "palette: each index becomes its colour",
    "PA": "palette with transparency: the transparency is dropped",
    "RGBA": "transparency: dropped, the colours below it are seen",
    "LA": "transparency: dropped, the grey below it is seen",
    "LAB": "LAB: converted to RGB",
    "YCbCr": "YCbCr: converted to RGB",
}


def conversion_notes(pictures: Sequence[Path | str]) -> list[str]:
    """Look at some pictures of a data set, spread evenly, and describe conversions and pictures of one shade.

    Args:
        pictures: files, in shards too; remote ones are not looked at.

    Returns:
        A line for each sort of conversion, and for pictures of one shade; none for unreadable pictures.
    """
    files = [path for path in pictures if isinstance(path, Path)]
    headers = [files[row] for row in spread(len(files))]
    modes = [(path, _mode(path)) for path in headers]
    deep = [path for path, mode in modes if is_deep(mode)]
    texts = [_CONVERSIONS[mode] for _, mode in modes if mode in _CONVERSIONS]
    texts += [
        f"more than 8 bits: {_range(deep[row])} becomes 0 to 255 (images.range=[LOW,HIGH] changes it)"
        for row in spread(len(deep), DECODED)
    ]
    lines = [f"pictures with {text}" for text in dict.fromkeys(texts)]
    shades = filter(None, (_shade(headers[row]) for row in spread(len(headers), DECODED)))
    for shade, count in Counter(shades).items():
        hint = ": images.range=[LOW,HIGH] says which values are black and white" if deep or shade == "black" else ""
        lines.append(f"{count} of {min(len(headers), DECODED)} pictures looked at are (nearly) {shade}{hint}")
    return lines


def spread(count: int, most: int = LOOKED_AT) -> Sequence[int]:
    """Return at most ``most`` of ``count`` rows, evenly spread."""
    return range(count) if count <= most else [count * number // most for number in range(most)]


def _mode(path: Path) -> str:
    try:
        with opened(path) as image:
            return "PA" if image.mode == "P" and "transparency" in image.info else image.mode
    except (BadImageError, DataError, OSError):
        return ""


def _range(path: Path) -> str:
    try:
        with opened(path) as image:
            low, high = deep_range(np.asarray(image))
    except (BadImageError, DataError, OSError, ValueError, SyntaxError):
        return "a range that cannot be read"
    return f"{low:g} to {high:g}"


def _shade(path: Path) -> str:
    try:
        values = np.asarray(open_image(path).resize((64, 64), Image.Resampling.BOX))
    except (BadImageError, DataError, OSError):
        return ""
    return "black" if np.quantile(values, 0.99) < DARK else "white" if np.quantile(values, 0.01) > LIGHT else ""
