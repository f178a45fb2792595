"""Reads pickled files of plain data without unpickling.

Instructions that build lists, tuples, dictionaries, sets, strings, bytes, numbers and None are carried out here (and
those of NumPy's arrays of numbers, where asked for); any other ends the reading: nothing in the file can run.
"""

import pickletools
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.errors import DataError

_MARK = object()
_NUMBERS = ("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT")
_TEXTS = ("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8")
# Instructions that push a value, made of their argument.
_VALUES: dict[str, Callable[[Any], Any]] = {
    "NONE": lambda _: None,
    "NEWTRUE": lambda _: True,
    "NEWFALSE": lambda _: False,
    "EMPTY_LIST": lambda _: [],
    "EMPTY_DICT": lambda _: {},
    "EMPTY_TUPLE": lambda _: (),
    "EMPTY_SET": lambda _: set(),
    **dict.fromkeys((*_NUMBERS, *_TEXTS), lambda argument: argument),
    **dict.fromkeys(("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"), bytes),
    # Strings of Python 2 are bytes in an unknown code, nearly always ASCII.
    **dict.fromkeys(
        ("STRING", "BINSTRING", "SHORT_BINSTRING"),
        lambda argument: argument.decode("utf-8", "surrogateescape") if isinstance(argument, bytes) else str(argument),
    ),
}
LARGEST = 1 << 31


def load_plain(path: Path, arrays: bool = False) -> Any:
    """Read the one value in a pickled file of plain data; with ``arrays``, also NumPy's arrays of numbers.

    Raises DataError: it cannot be read, or holds anything else.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path.stat().st_size} bytes")
        return (_ArrayReader() if arrays else _Reader()).read(path.read_bytes())
    except OSError as error:
        raise DataError("The file cannot be read.", where=str(path), got=error.strerror or str(error)) from None
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        got = str(error).splitlines()[0] if str(error) else type(error).__name__
        what = "This pickled file is not plain data, and was not opened further."
        expected = "lists, dictionaries, tuples, strings and numbers alone"
        hint = "convert it to JSON where you trust it"
        raise DataError(what, where=str(path), got=got, expected=expected, hint=hint) from None


class _Reader:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.builders: dict[str, Callable[[], object]] = {
            "MARK": lambda: self.stack.append(_MARK),
            "LIST": lambda: self.stack.append(self._marked()),
            "TUPLE": lambda: self.stack.append(tuple(self._marked())),
            "DICT": lambda: self.stack.append(_pairs(self._marked())),
            "FROZENSET": lambda: self.stack.append(frozenset(self._marked())),
            "TUPLE1": lambda: self.stack.append(self._last(1)),
            "TUPLE2": lambda: self.stack.append(self._last(2)),
            "TUPLE3": lambda: self.stack.append(self._last(3)),
            "APPEND": lambda: self._add(list, self._last(1)),
            "APPENDS": lambda: self._add(list, self._marked()),
            "SETITEM": lambda: self._add(dict, self._last(2)),
            "SETITEMS": lambda: self._add(dict, self._marked()),
            "ADDITEMS": lambda: self._add(set, self._marked()),
            "POP": lambda: self._last(1),
            "POP_MARK": self._marked,
            "DUP": lambda: self.stack.append(self._top()),
        }

    def read(self, content: bytes) -> Any:
        for code, argument, _ in pickletools.genops(content):
            if code.name == "STOP":
                if len(self.stack) != 1 or self.stack[0] is _MARK:
                    raise ValueError("the pickle holds no single value")
                return self.stack[0]
            self._do(code.name, argument)
        raise ValueError("no end")

    def _do(self, name: str, argument: Any) -> None:
        if name in _VALUES:
            self.stack.append(_VALUES[name](argument))
        elif name in ("PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"):
            self.memo[len(self.memo) if argument is None else int(argument)] = self._top()
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[int(argument)])
        elif name in self.builders:
            self.builders[name]()
        elif name not in ("PROTO", "FRAME"):
            raise ValueError(f"the instruction {name}")

    def _top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise ValueError("an instruction without a value")
        return self.stack[-1]

    def _last(self, count: int) -> tuple[Any, ...]:
        values = tuple(self.stack[-count:])
        if len(values) < count or any(value is _MARK for value in values):
            raise ValueError("an instruction without a value")
        del self.stack[-count:]
        return values

    def _marked(self) -> list[Any]:
        values = []
        while (value := self.stack.pop()) is not _MARK:
            values.append(value)
        return values[::-1]

    def _add(self, kind: type, values: Sequence[Any]) -> None:
        top = self._top()
        if type(top) is not kind:
            raise ValueError(f"an addition to a {type(top).__name__}")
        add = getattr(top, "extend" if kind is list else "update")
        add(_pairs(values) if kind is dict else values)


def _pairs(values: Sequence[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise ValueError("a key without a value")
    return dict(zip(values[::2], values[1::2], strict=True))


class _Name(str):
    """A name in a file: data, nothing that could be called."""


class _Unfilled:
    """An array whose content follows."""


_DTYPE = re.compile(r"[|<>=]?[biuf][1248]")
_ARRAYS = ("numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct")
_NAMES = (*_ARRAYS, "numpy ndarray", "numpy dtype", "_codecs encode")


class _ArrayReader(_Reader):
    def _do(self, name: str, argument: Any) -> None:
        if name in ("GLOBAL", "STACK_GLOBAL"):
            called = argument if name == "GLOBAL" else " ".join(map(str, self._last(2)))
            if called not in _NAMES:
                raise ValueError(f"the name {called}")
            self.stack.append(_Name(called))
        elif name == "REDUCE":
            self.stack.append(_reduced(*self._last(2)))
        elif name == "BUILD":
            (state,) = self._last(1)
            unfilled, self.stack[-1] = self._top(), _filled(self._top(), state)
            if (key := next((key for key in reversed(self.memo) if self.memo[key] is unfilled), None)) is not None:
                self.memo[key] = self.stack[-1]
        else:
            super()._do(name, argument)


def _reduced(name: Any, arguments: Any) -> Any:
    if not isinstance(name, _Name) or not isinstance(arguments, tuple):
        raise ValueError("the instruction REDUCE")
    if name == "numpy dtype" and isinstance(arguments[0], str) and _DTYPE.fullmatch(arguments[0]):
        return np.dtype(arguments[0])
    if name == "_codecs encode" and arguments[1:] == ("latin1",):
        return arguments[0].encode("latin-1")
    if name in _ARRAYS:
        return _Unfilled()
    raise ValueError(f"{name} of {str(arguments)[:40]}")


def _filled(value: Any, state: Any) -> Any:
    if isinstance(value, np.dtype):
        return value.newbyteorder(state[1]) if state[1] in ("<", ">") else value
    if not isinstance(value, _Unfilled):
        raise ValueError("the instruction BUILD")
    _, shape, dtype, by_columns, content = state
    content = content.encode("latin-1") if isinstance(content, str) else content  # of Python 2
    if not isinstance(dtype, np.dtype) or not isinstance(content, bytes):
        raise ValueError("an array of objects")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")
