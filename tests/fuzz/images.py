"""Bad pictures: cut, empty, bombs, of formats that are none."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator

from PIL import Image

from tests.fuzz.harness import Content, Trial

RECIPE = (
    "stages: {regions: {kind: extract, root: ., images: pictures, strict: STRICT, "
    "extractor: {name: backbone, arch: tiny-conv, short: 0, resolution: 1, boxes: grid, grid: [2, 2], limit: 0}}}"
)


def _encoded(kind: str, size: tuple[int, int] = (24, 24), mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, size, 90).save(stream, kind)
    return stream.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG whose header says anything."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", head) + _chunk(b"IDAT", zlib.compress(data)) + _chunk(b"IEND", b"")


def _tiff(value: float) -> bytes:
    """A picture of 32-bit fractions, all alike."""
    stream = io.BytesIO()
    Image.new("F", (24, 24), value).save(stream, "TIFF")
    return stream.getvalue()


DEEP: dict[str, bytes] = {f"{value}.tif": _tiff(value) for value in (float("nan"), float("-inf"), 3e38, -2.5, 0.0)}
"""Pictures of other modes, in which nothing is wrong."""
DEEP |= {f"{mode}.tif": _encoded("TIFF", mode=mode) for mode in ("I;16", "I", "1", "CMYK", "LAB", "RGBA", "LA", "P")}
PICTURES: dict[str, bytes] = {
    "empty.png": b"",
    "text.jpg": b"no picture",
    "cut.jpg": _encoded("JPEG", (200, 200))[:300],
    "cut.png": _encoded("PNG", (200, 200))[:60],
    "header.png": _encoded("PNG")[:30],
    "header.jpg": _encoded("JPEG")[:4],
    "bomb.png": _png(60_000, 60_000),
    "wide.png": _png(2**31 - 1, 1),
    "flat.png": _png(0, 0),
    "short.png": _png(64, 64, b"\x00" * 10),
    "crc.png": _encoded("PNG").replace(b"IDAT", b"IDAX"),
    "html.png": b"<html><body>404</body></html>",
    "gzip.jpg": b"\x1f\x8b" + b"\x00" * 50,
    "zeros.jpg": b"\x00" * 5000,
    "gif.gif": b"GIF89a" + b"\xff" * 20,
    "tiff.tif": b"II*\x00" + b"\xff" * 40,
    "bmp.bmp": b"BM" + b"\xff" * 60,
    "webp.webp": b"RIFF\xff\xff\xff\xffWEBPVP8 " + b"\x00" * 20,
    "exif.jpg": _encoded("JPEG")[:2] + b"\xff\xe1\x00\x10Exif\x00\x00" + b"\xff" * 8 + _encoded("JPEG")[2:],
}


def trials() -> Iterator[Trial]:
    """Every bad picture, alone and beside a good one."""
    good: Content = _encoded("PNG")
    for number, (name, data) in enumerate((PICTURES | DEEP).items()):
        files = {"r.yaml": RECIPE.replace("STRICT", "true"), f"pictures/{name}": data, "pictures/good.png": good}
        words = ("run", "r.yaml", "--quiet", "--output", "out")
        codes = (0,) if name in DEEP else (0, 5) if name == "exif.jpg" else (5,)
        yield Trial("image", f"strict-{name}", words, files, codes, quick=number % 5 == 0)
        loose = {**files, "r.yaml": RECIPE.replace("STRICT", "false")}
        yield Trial("image", f"listed-{name}", words, loose, (0,))
    none = {"r.yaml": RECIPE.replace("STRICT", "false"), "pictures/readme.txt": b"none"}
    yield Trial("image", "none", ("run", "r.yaml", "--quiet", "--output", "out"), none, (5,), quick=True)
