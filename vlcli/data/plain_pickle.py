"""Files that their authors pickled, read without unpickling.

The instructions of the file are gone through here, one by one; those that build lists, tuples, dictionaries, sets,
strings, bytes, numbers and None are carried out, and any other (naming a class, calling, setting a state) ends the
reading. Nothing in the file can run.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from vlcli.errors import DataError

_MARK = object()
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
    "EMPTY_SET": set,
}
_NUMBERS = frozenset(["INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"])
_TEXTS = frozenset(["UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"])
_BYTES = frozenset(["BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"])
_OLD_STRINGS = frozenset(["STRING", "BINSTRING", "SHORT_BINSTRING"])
_PUTS = frozenset(["PUT", "BINPUT", "LONG_BINPUT"])
_GETS = frozenset(["GET", "BINGET", "LONG_BINGET"])
_IGNORED = frozenset(["PROTO", "FRAME"])
LARGEST = 1 << 31


class _RefusedError(ValueError):
    """An instruction that plain data do not need, or that does not fit."""


def load_plain(path: Path) -> Any:
    """The one value in a pickled file of plain data.

    Raises:
        DataError: it is missing, cut short, or holds anything but plain data.
    """
    expected = "lists, dictionaries, tuples, strings and numbers alone"
    try:
        if path.stat().st_size > LARGEST:
            raise _RefusedError(f"{path.stat().st_size} bytes")
        return _Reader().read(path.read_bytes())
    except OSError as error:
        raise DataError("The file cannot be read.", where=str(path), got=error.strerror or str(error)) from None
    except (_RefusedError, ValueError, IndexError, KeyError, TypeError, UnicodeDecodeError, OverflowError) as error:
        got = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            "This pickled file is not plain data, and was not opened further.",
            where=str(path),
            got=got,
            expected=expected,
            hint="convert it to JSON where you trust it",
        ) from None


class _Reader:
    """A stack, and what was marked to be used again."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def read(self, content: bytes) -> Any:
        for code, argument, _ in pickletools.genops(content):
            if code.name == "STOP":
                if len(self.stack) != 1 or self.stack[0] is _MARK:
                    raise _RefusedError("no single value at the end")
                return self.stack[0]
            self._do(code.name, argument)
        raise _RefusedError("no end")

    def _do(self, name: str, argument: Any) -> None:
        if name in _IGNORED:
            return
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self.stack.append(_EMPTY[name]())
        elif name in _NUMBERS or name in _TEXTS:
            self.stack.append(argument)
        elif name in _BYTES:
            self.stack.append(bytes(argument))
        elif name in _OLD_STRINGS:
            self.stack.append(_text(argument))
        elif name in _PUTS:
            self.memo[int(argument)] = self._top()
        elif name == "MEMOIZE":
            self.memo[len(self.memo)] = self._top()
        elif name in _GETS:
            self.stack.append(self.memo[int(argument)])
        elif name == "MARK":
            self.stack.append(_MARK)
        else:
            self._build(name)

    def _build(self, name: str) -> None:
        builders: dict[str, Callable[[], object]] = {
            "LIST": lambda: self.stack.append(self._marked()),
            "TUPLE": lambda: self.stack.append(tuple(self._marked())),
            "DICT": lambda: self.stack.append(_pairs(self._marked())),
            "FROZENSET": lambda: self.stack.append(frozenset(self._marked())),
            "TUPLE1": lambda: self.stack.append(self._last(1)),
            "TUPLE2": lambda: self.stack.append(self._last(2)),
            "TUPLE3": lambda: self.stack.append(self._last(3)),
            "APPEND": lambda: self._extend(list(self._last(1))),
            "APPENDS": lambda: self._extend(self._marked()),
            "SETITEM": lambda: self._update(list(self._last(2))),
            "SETITEMS": lambda: self._update(self._marked()),
            "ADDITEMS": lambda: self._add(self._marked()),
            "POP": lambda: self._last(1),
            "POP_MARK": self._marked,
            "DUP": lambda: self.stack.append(self._top()),
        }
        if name not in builders:
            raise _RefusedError(f"the instruction {name}")
        builders[name]()

    def _top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise _RefusedError("an instruction without a value")
        return self.stack[-1]

    def _last(self, count: int) -> tuple[Any, ...]:
        values = tuple(self.stack[-count:])
        if len(values) < count or any(value is _MARK for value in values):
            raise _RefusedError("an instruction without a value")
        del self.stack[-count:]
        return values

    def _marked(self) -> list[Any]:
        values: list[Any] = []
        while True:
            value = self.stack.pop()
            if value is _MARK:
                return values[::-1]
            values.append(value)

    def _extend(self, values: list[Any]) -> None:
        self._of(list).extend(values)

    def _update(self, values: list[Any]) -> None:
        self._of(dict).update(_pairs(values))

    def _add(self, values: list[Any]) -> None:
        self._of(set).update(values)

    def _of(self, kind: type) -> Any:
        top = self._top()
        if type(top) is not kind:
            raise _RefusedError(f"an addition to a {type(top).__name__}")
        return top


def _pairs(values: list[Any]) -> dict[Any, Any]:
    if len(values) % 2:
        raise _RefusedError("a key without a value")
    return dict(zip(values[::2], values[1::2], strict=True))


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return str(value)
