"""Python values as bytes and back, exactly or not at all; nothing is ever unpickled.

JSON turns tuples into lists and numbered keys into words. Here a value comes back equal and of the same types, or
:class:`UnwritableError` says that it cannot be written, and its reader's examples stay in memory.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path, PosixPath, WindowsPath
from typing import Any

import numpy as np

from vlcli.images.boxes import BoxList

_PLAIN = frozenset((str, int, float, bool, type(None)))
_TAG = "\0"
"""Key of the objects that stand for what JSON lacks: ``{_TAG: [kind, content]}``."""
_BOX_FIELDS = ("boxes", "scores", "classes", "attributes", "box_ids", "size")


class UnwritableError(Exception):
    """A value of a kind that is not written; the message names it."""


def dumps(value: Any) -> bytes:
    """``value`` as UTF-8 (lone surrogates kept).

    Raises:
        UnwritableError: its type, or that of something in it, is none of those that come back as they were.
    """
    try:
        return json.dumps(_coded(value), ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    except (RecursionError, ValueError) as error:
        raise UnwritableError(str(error)) from None


def loads(content: bytes) -> Any:
    """What :func:`dumps` wrote."""
    return json.loads(content.decode("utf-8", "surrogatepass"), object_hook=_decoded)


def _coded(value: Any) -> Any:
    """``value`` in what JSON holds."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list:
        return [_coded(item) for item in value]
    if kind is dict and all(type(key) is str for key in value) and _TAG not in value:
        return {key: _coded(item) for key, item in value.items()}
    coder = _CODERS.get(kind)
    if coder is None:
        raise UnwritableError(f"{kind.__module__}.{kind.__qualname__}")
    return {_TAG: coder(value)}


def _array(value: np.ndarray) -> list[Any]:
    """Type, shape and bytes of an array.

    Raises:
        UnwritableError: it holds Python objects.
    """
    if value.dtype.hasobject or value.dtype.names:
        raise UnwritableError(f"an array of {value.dtype}")
    content = np.ascontiguousarray(value).tobytes()
    return ["array", value.dtype.str, list(value.shape), base64.b64encode(content).decode()]


def _pairs(name: str) -> Callable[[Any], list[Any]]:
    return lambda value: [name, [[_coded(key), _coded(item)] for key, item in value.items()]]


def _items(name: str) -> Callable[[Any], list[Any]]:
    return lambda value: [name, [_coded(item) for item in value]]


_CODERS: dict[type, Callable[[Any], list[Any]]] = {
    tuple: _items("tuple"),
    set: _items("set"),
    frozenset: _items("frozenset"),
    dict: _pairs("dict"),
    Counter: _pairs("counter"),
    PosixPath: lambda value: ["path", str(value)],
    WindowsPath: lambda value: ["path", str(value)],
    bytes: lambda value: ["bytes", base64.b64encode(value).decode()],
    np.ndarray: _array,
    BoxList: lambda value: ["boxes", [_coded(getattr(value, name)) for name in _BOX_FIELDS]],
}
for _scalar in (np.float64, np.float32, np.int64, np.int32, np.bool_, np.str_):
    _CODERS[_scalar] = lambda value: ["scalar", _array(np.asarray(value))[1:]]


def _array_of(kind: str, shape: list[int], content: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(content), np.dtype(kind)).reshape(shape).copy()


_DECODERS: dict[str, Callable[..., Any]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "dict": lambda pairs: {key: item for key, item in pairs},  # noqa: C416  # lists are no tuples for dict() to mypy
    "counter": lambda pairs: Counter({key: item for key, item in pairs}),  # noqa: C416
    "path": Path,
    "bytes": base64.b64decode,
    "array": _array_of,
    "scalar": lambda parts: _array_of(*parts)[()],
    "boxes": lambda parts: BoxList(**dict(zip(_BOX_FIELDS, parts, strict=True))),
}


def _decoded(found: dict[str, Any]) -> Any:
    if _TAG not in found:
        return found
    name, *parts = found[_TAG]
    return _DECODERS[name](*parts)
