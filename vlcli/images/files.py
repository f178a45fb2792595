"""Opens any image file of a data set; notes which were converted to RGB. Errors are one line each."""

import io
import os
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from vlcli.errors import DataError
from vlcli.images.remote import HEAD, read_bytes
from vlcli.images.shards import read_member, split_path

# Largest image decoded: twice Pillow's own warning limit, where it too speaks of a decompression bomb
MAX_PIXELS = 178_956_970
# Formats of files that strangers send: none whose decoder starts other programs.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
# An image file, a remote address, or a file's content.
Source = Path | str | bytes
# Environment variable with the range of a recipe, for child processes.
RANGE = "VLCLI_PIXEL_RANGE"
_ORIENTATION = 0x0112
_JPEG = b"\xff\xd8\xff"


class BadImageError(Exception):
    """An image that cannot be used; the message is the reason, one line."""


def read_size(source: Source, max_pixels: int = MAX_PIXELS, raw: tuple[int, int] | None = None) -> tuple[int, int]:
    """Read height and width of the upright image (see :func:`open_image`) from its header, of a remote JPEG alone."""
    if isinstance(source, str):
        try:
            head = read_bytes(source, HEAD)
        except FileNotFoundError:
            raise BadImageError("the file does not exist") from None
        if head.startswith(_JPEG):  # whose header has everything; others may say things at their end
            with suppress(BadImageError):
                return read_size(head, max_pixels, raw)
        source = head if len(head) < HEAD else source
    with opened(source, max_pixels) as image:
        width, height = image.size
        turned = _orientation(image) >= 5 and not _keeps(image, raw)
    return (width, height) if turned else (height, width)


def open_image(source: Source, max_pixels: int = MAX_PIXELS, raw: tuple[int, int] | None = None) -> Image.Image:
    """Decode an image, of an animation the first frame, to upright 8-bit RGB (see :func:`to_rgb`).

    Args:
        max_pixels: refuse larger ones.
        raw: height and width that annotations were measured in. Where they are those of the stored, not of the upright
            pixels, the annotator ignored the orientation tag and so does this function.

    Raises:
        BadImageError: missing, empty, truncated, no image, or too large.
        DataError: a remote file cannot be fetched.
    """
    with opened(source, max_pixels) as image:
        return _decoded(image, raw)


def check_image(source: Source) -> None:
    """Check that an image can be decoded; a JPEG at an eighth of its size, which reads all of it."""
    with opened(source) as image:
        image.draft(None, (max(1, image.width // 8), max(1, image.height // 8)))
        _loaded(image)


def read_content(path: Path) -> bytes:
    """Read the bytes of an image file, in a folder or in a shard."""
    try:
        source = _source(path)
        return source.read_bytes() if isinstance(source, Path) else source.read()
    except FileNotFoundError:
        raise BadImageError("the file does not exist") from None
    except OSError as error:
        raise BadImageError(f"cannot be opened: {error}") from None


def open_image_bytes(data: bytes, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Decode an image file that a stranger sent, in one of :data:`FORMATS`, as :func:`open_image` does."""
    with opened(data, max_pixels, FORMATS) as image:
        return _decoded(image, None)


def read_format(data: bytes, max_pixels: int = MAX_PIXELS) -> str:
    """Return the suffix for the content of an image file in one of :data:`FORMATS`, such as ``.jpg``.

    Raises BadImageError: empty, no image, of another format, or too large.
    """
    with opened(data, max_pixels, FORMATS) as image:
        kind = (image.format or "").lower()
    return ".jpg" if kind in ("jpeg", "mpo") else f".{kind}"


def _loaded(image: Image.Image) -> None:
    try:
        image.load()
    except Exception as error:  # decoders of damaged files raise whatever they meet
        raise BadImageError(f"cannot be decoded: {error}") from None


def _decoded(image: Image.Image, raw: tuple[int, int] | None) -> Image.Image:
    _loaded(image)
    try:
        turned = _orientation(image) != 1 and not _keeps(image, raw)
        return to_rgb(ImageOps.exif_transpose(image) if turned else image)
    except Exception as error:  # as above
        raise BadImageError(f"cannot be decoded: {error}") from None


def to_rgb(image: Image.Image) -> Image.Image:
    """Convert an image of any mode to 8-bit RGB.

    Values of more than 8 bits (modes I and F: PNG of 16 bits, TIFF) are scaled from :func:`deep_range` to 0..255, NaN
    to 0. CMYK, LAB and YCbCr are converted as Pillow does; indices of a palette become its colours; an alpha channel is
    dropped.
    """
    if is_deep(image.mode):
        values = np.asarray(image, dtype=np.float64)
        low, high = deep_range(values)
        values = np.nan_to_num((values - low) * (255.0 / (high - low)), nan=0.0)
        image = Image.fromarray(np.clip(values, 0, 255).round().astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return image if image.mode == "RGB" and image.format == "JPEG" else image.convert("RGB")


def is_deep(mode: str) -> bool:
    """Whether images of a mode have more than 8 bits a value."""
    return mode.startswith("I") or mode == "F"


def deep_range(values: NDArray[Any]) -> tuple[float, float]:
    """Return the values of an image of more than 8 bits that become black and white.

    They are the recipe's (:func:`pixel_range`); else 0 and the first of 1 (fractions), 255, 4095 (of 12 bits) and 65535
    that no value exceeds, else the largest value. With values below 0, the lower end is as far away as the upper.
    """
    if text := os.environ.get(RANGE):
        low, high = map(float, text.split(","))
        return low, high
    finite = values[np.isfinite(values)] if values.dtype.kind == "f" else values
    least, most = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    largest = max(most, -least)
    fractions = values.dtype.kind == "f" and not np.array_equal(finite, finite.round())
    ends = (*((1.0,) if fractions else ()), 255.0, 4095.0, 65535.0)
    high = next((end for end in ends if largest <= end), largest)
    return (-high if least < 0 else 0.0), high


@contextmanager
def pixel_range(ends: tuple[float, float] | None) -> Iterator[None]:
    """Set the values of images of more than 8 bits that become black and white, here and in child processes."""
    before = os.environ.pop(RANGE, None)
    if ends is not None:
        os.environ[RANGE] = f"{ends[0]!r},{ends[1]!r}"
    try:
        yield
    finally:
        os.environ.pop(RANGE, None)
        if before is not None:
            os.environ[RANGE] = before


def opened(source: Source, max_pixels: int = MAX_PIXELS, formats: tuple[str, ...] | None = None) -> Image.Image:
    """Open an image, in one of Pillow's ``formats`` (None: any), and read its header; errors as :func:`open_image`."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(_source(source), formats=formats)
    except FileNotFoundError:
        raise BadImageError("the file does not exist") from None
    except UnidentifiedImageError:
        raise BadImageError("not an image in a known format") from None
    except Image.DecompressionBombError as error:
        count = re.search(r"\d+", str(error))  # Pillow's words speak of an attack
        got = f"{int(count[0]):,} pixels" if count else str(error)
        raise BadImageError(f"too large: {got}, at most {min(max_pixels, MAX_PIXELS):,} are decoded") from None
    except (BadImageError, DataError):
        raise
    except Exception as error:  # as above
        raise BadImageError(f"cannot be opened: {error}") from None
    width, height = image.size
    if width * height > max_pixels:
        image.close()
        raise BadImageError(f"too large: {width:,} x {height:,} pixels, at most {max_pixels:,} are decoded")
    return image


def _source(source: Source) -> Path | BinaryIO:
    data = b""
    if isinstance(source, Path):
        try:
            if source.stat().st_size:
                return source
        except NotADirectoryError:
            inner = split_path(source)
            if inner is None:
                raise FileNotFoundError(source) from None
            data = read_member(*inner)
    else:
        data = read_bytes(source) if isinstance(source, str) else source
    if not data:
        raise BadImageError("the file is empty")
    return io.BytesIO(data)


def _keeps(image: Image.Image, raw: tuple[int, int] | None) -> bool:
    width, height = image.size
    return raw is not None and _orientation(image) >= 5 and width != height and tuple(raw) == (height, width)


def _orientation(image: Image.Image) -> int:
    try:
        value = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # a damaged tag turns nothing
        return 1
    return value if isinstance(value, int) else 1


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
    """Return a line for each sort of conversion, and for pictures of one shade, among some pictures, spread evenly.

    Remote and unreadable pictures are passed over.
    """
    files = [path for path in pictures if isinstance(path, Path)]
    headers = [files[row] for row in spread(len(files))]
    modes = [_seen(_mode, path) for path in headers]
    deep = [path for path, mode in zip(headers, modes, strict=True) if is_deep(mode)]
    texts = [_CONVERSIONS[mode] for mode in modes if mode in _CONVERSIONS]
    for row in spread(len(deep), DECODED):
        ends = _seen(_range, deep[row]) or "a range that cannot be read"
        texts.append(f"more than 8 bits: {ends} becomes 0 to 255 (images.range=[LOW,HIGH] changes it)")
    lines = [f"pictures with {text}" for text in dict.fromkeys(texts)]
    shades = Counter(_seen(_shade, headers[row]) for row in spread(len(headers), DECODED))
    for shade in filter(None, shades):
        hint = ": images.range=[LOW,HIGH] says which values are black and white" if deep or shade == "black" else ""
        lines.append(f"{shades[shade]} of {min(len(headers), DECODED)} pictures looked at are (nearly) {shade}{hint}")
    return lines


def spread(count: int, most: int = LOOKED_AT) -> Sequence[int]:
    """Return at most ``most`` of ``count`` rows, evenly spread."""
    return range(count) if count <= most else [count * number // most for number in range(most)]


def _seen(look: Callable[[Image.Image], str], path: Path) -> str:
    try:
        with opened(path) as image:
            return look(image)
    except (BadImageError, DataError, OSError, ValueError, SyntaxError):
        return ""


def _mode(image: Image.Image) -> str:
    return "PA" if image.mode == "P" and "transparency" in image.info else image.mode


def _range(image: Image.Image) -> str:
    return "{:g} to {:g}".format(*deep_range(np.asarray(image)))


def _shade(image: Image.Image) -> str:
    values = np.asarray(_decoded(image, None).resize((64, 64), Image.Resampling.BOX))
    return "black" if np.quantile(values, 0.99) < DARK else "white" if np.quantile(values, 0.01) > LIGHT else ""
