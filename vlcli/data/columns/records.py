"""One example as one string of bytes and back: whoever draws it reads its place and this, nothing else."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from vlcli.data.columns.cells import UnwritableError, dumps, loads
from vlcli.data.sample import Example

NO_TEXT, KEY_IS_TEXT_KEY, HAS_REST = 1, 2, 4
MOST_IMAGES = 255
_HEAD = struct.Struct("<BBIII")
"""Flags, number of images, bytes of the key, of the sentence and of the images' names; the rest stands behind them."""


def record_of(example: Example) -> bytes:
    """An example as bytes.

    Raises:
        UnwritableError: something in it cannot be written.
    """
    key, text, images = example.key, example.text, example.images
    if type(key) is not str or len(images) > MOST_IMAGES or (text is not None and type(text) is not str):
        raise UnwritableError(f"the example {key!r}")
    rest = _rest(example)
    flags = (NO_TEXT if text is None else 0) | (HAS_REST if rest else 0)
    flags |= KEY_IS_TEXT_KEY if example.text_key and example.text_key == key else 0
    parts = key.encode("utf-8", "surrogatepass"), (text or "").encode("utf-8", "surrogatepass"), _names(images)
    return b"".join((_HEAD.pack(flags, len(images), *map(len, parts)), *parts, dumps(rest) if rest else b""))


def flags_of(record: bytes) -> int:
    """What is special about an example."""
    return record[0]


def count_of(record: bytes) -> int:
    """How many images an example has."""
    return record[1]


def example_of(record: bytes) -> Example:
    """What :func:`record_of` was given."""
    flags, count, first, second, third = _HEAD.unpack_from(record)
    first += _HEAD.size
    second += first
    third += second
    key = _text(record[_HEAD.size : first])
    text = None if flags & NO_TEXT else _text(record[first:second])
    images = _text(record[second:third]).split("\0") if count else []
    text_key = key if flags & KEY_IS_TEXT_KEY else ""
    if not flags & HAS_REST:
        return Example(key, text, images, text_key)
    rest = loads(record[third:])
    return Example(key, text, images, rest.get("k", text_key), rest.get("t", {}), rest.get("c", []))


def text_of(record: bytes) -> str | None:
    """An example's sentence, without the rest of it."""
    flags, _, first, second, _ = _HEAD.unpack_from(record)
    start = _HEAD.size + first
    return None if flags & NO_TEXT else _text(record[start : start + second])


def images_of(record: bytes) -> list[str]:
    """An example's images, without the rest of it."""
    _, count, first, second, third = _HEAD.unpack_from(record)
    start = _HEAD.size + first + second
    return _text(record[start : start + third]).split("\0") if count else []


def _rest(example: Example) -> dict[str, Any]:
    """What few examples have."""
    rest: dict[str, Any] = {}
    if example.text_key and example.text_key != example.key:
        rest["k"] = example.text_key
    if example.targets:
        rest["t"] = example.targets
    if example.choices:
        rest["c"] = example.choices
    return rest


def _names(images: Sequence[str]) -> bytes:
    """Image ids as one string."""
    joined = "\0".join(images)
    if joined.count("\0") != max(len(images) - 1, 0):
        raise UnwritableError("an image id with a zero byte")
    return joined.encode("utf-8", "surrogatepass")


def _text(content: bytes) -> str:
    return content.decode() if content.isascii() else content.decode("utf-8", "surrogatepass")
