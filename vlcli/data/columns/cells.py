"""Converts Python values to bytes and back with their exact types; nothing is ever unpickled."""

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PosixPath, WindowsPath
from typing import Any

import numpy as np

from vlcli.images.boxes import BoxList

_PLAIN = frozenset((str, int, float, bool, type(None)))
# Key of the objects that hold what JSON lacks: `{_TAG: [kind, content]}`.
_TAG = "\0"
_BOX_FIELDS = ("boxes", "scores", "classes", "attributes", "box_ids", "size")


class UnwritableError(Exception):
    """A value of a kind that is not written; the message names it."""


def dumps(value: Any) -> bytes:
    """Convert ``value`` to UTF-8 JSON (lone surrogates kept). Raises UnwritableError: it would come back another."""
    try:
        return json.dumps(_encoded(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError) as error:
        raise UnwritableError(str(error)) from None


def loads(content: bytes) -> Any:
    """Return the value that :func:`dumps` wrote."""
    return json.loads(content.decode("utf-8", "surrogatepass"), object_hook=_decoded)


def _encoded(value: Any) -> Any:
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [_encoded(item) for item in value]
    if kind is dict and all(type(key) is str for key in value) and _TAG not in value:
        return {key: _encoded(item) for key, item in value.items()}
    if kind not in _CODECS:
        raise UnwritableError(f"{kind.__module__}.{kind.__qualname__}")
    name, encode, _ = _CODECS[kind]
    return {_TAG: [name, *encode(value)]}


def _array(value: Any) -> list[Any]:
    value = np.asarray(value)
    if value.dtype.hasobject or value.dtype.names:
        raise UnwritableError(f"an array of {value.dtype}")
    return [value.dtype.str, list(value.shape), base64.b64encode(value.tobytes()).decode()]


def _items(value: Any) -> list[Any]:
    return [[_encoded(item) for item in value]]


def _pairs(value: Any) -> list[Any]:
    return [[[_encoded(key), _encoded(item)] for key, item in value.items()]]


def _array_of(kind: str, shape: list[int], content: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(content), np.dtype(kind)).reshape(shape).copy()


# By type: the name of its encoding, what encodes a value into parts, and what decodes these.
_CODECS: dict[type, tuple[str, Callable[[Any], list[Any]], Callable[..., Any]]] = {
    tuple: ("tuple", _items, tuple),
    set: ("set", _items, set),
    frozenset: ("frozenset", _items, frozenset),
    dict: ("dict", _pairs, dict),
    Counter: ("counter", _pairs, lambda pairs: Counter(dict(pairs))),
    **dict.fromkeys((PosixPath, WindowsPath), ("path", lambda value: [str(value)], Path)),
    bytes: ("bytes", lambda value: [base64.b64encode(value).decode()], base64.b64decode),
    np.ndarray: ("array", _array, _array_of),
    BoxList: (
        "boxes",
        lambda value: [[_encoded(getattr(value, name)) for name in _BOX_FIELDS]],
        lambda parts: BoxList(**dict(zip(_BOX_FIELDS, parts, strict=True))),
    ),
    **dict.fromkeys(
        (np.float64, np.float32, np.int64, np.int32, np.bool_, np.str_),
        ("scalar", lambda value: [_array(value)], lambda parts: _array_of(*parts)[()]),
    ),
}
_DECODERS = {name: decode for name, _, decode in _CODECS.values()}


def _decoded(content: dict[str, Any]) -> Any:
    if _TAG not in content:
        return content
    name, *parts = content[_TAG]
    return _DECODERS[name](*parts)
