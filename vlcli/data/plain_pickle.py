"""Reads pickled files of plain data, in which nothing can run.

Before a file is unpickled, its instructions are looked at: those that build lists, tuples, dictionaries, sets, strings,
bytes, numbers and None are let through; any other (naming a class, calling, setting a state) ends the reading. Where
arrays are asked for, the few names by which NumPy pickles arrays of numbers are known too; what stands behind them are
the classes and functions of this module.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vlcli.errors import DataError

_NUMBERS = "INT BININT BININT1 BININT2 LONG LONG1 LONG4 FLOAT BINFLOAT NONE NEWTRUE NEWFALSE"
_TEXTS = "UNICODE BINUNICODE SHORT_BINUNICODE BINUNICODE8 STRING BINSTRING SHORT_BINSTRING"
_BYTES = "BINBYTES SHORT_BINBYTES BINBYTES8 BYTEARRAY8"
_GROUPS = "EMPTY_LIST EMPTY_DICT EMPTY_TUPLE EMPTY_SET LIST TUPLE DICT FROZENSET TUPLE1 TUPLE2 TUPLE3"
_ADDITIONS = "MARK APPEND APPENDS SETITEM SETITEMS ADDITEMS POP POP_MARK DUP PROTO FRAME STOP"
_PUT = frozenset(("PUT", "BINPUT", "LONG_BINPUT"))
_PLAIN = _PUT.union(("MEMOIZE", "GET", "BINGET", "LONG_BINGET"))
_PLAIN = _PLAIN.union(*map(str.split, (_NUMBERS, _TEXTS, _BYTES, _GROUPS, _ADDITIONS)))
_OF_ARRAYS = _PLAIN | {"GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"}
_DTYPE = re.compile(r"[|<>=]?[biuf][1248]")
LARGEST = 1 << 31


def load_plain(path: Path, arrays: bool = False) -> Any:
    """Read the one value in a pickled file of plain data.

    Args:
        arrays: whether it may be a dictionary that holds NumPy's arrays of numbers.

    Raises:
        DataError: it cannot be read, or holds anything else.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError(f"{path.stat().st_size} bytes")
        content = path.read_bytes()
        _refuse_others(content, _OF_ARRAYS if arrays else _PLAIN)
        value = _Unpickler(io.BytesIO(content), encoding="latin-1").load()
    except OSError as error:
        raise DataError("The file cannot be read.", where=str(path), got=error.strerror or str(error)) from None
    except (
        pickle.UnpicklingError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        EOFError,
        OverflowError,
    ) as error:
        got = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            "This pickled file is not plain data, and was not opened further.",
            where=str(path),
            got=got,
            expected="lists, dictionaries, tuples, strings and numbers alone",
            hint="convert it to JSON where you trust it",
        ) from None
    if arrays and isinstance(value, dict):
        return {key: one.array if isinstance(one, _Array) else one for key, one in value.items()}
    return value


def _refuse_others(content: bytes, known: frozenset[str]) -> None:
    for code, argument, _ in pickletools.genops(content):
        if code.name not in known:
            raise ValueError(f"the instruction {code.name}")
        if code.name in _PUT and int(argument or 0) > len(content):  # the unpickler makes room for so many values
            raise ValueError(f"a place {argument} for a value")


class _Dtype:
    def __init__(self, name: str, *_: object) -> None:
        if not _DTYPE.fullmatch(name):
            raise ValueError(f"an array of {name}")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.dtype = self.dtype.newbyteorder(state[1]) if state[1] in ("<", ">") else self.dtype


class _Array:
    def __init__(self, *_: object) -> None:
        self.array = np.empty(0)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, kind, by_columns, content = state
        content = content.encode("latin-1") if isinstance(content, str) else content  # of Python 2
        self.array = np.frombuffer(content, kind.dtype).reshape(shape, order="F" if by_columns else "C")


_NAMES: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray _reconstruct": _Array,
    "numpy._core.multiarray _reconstruct": _Array,
    "numpy ndarray": _Array,
    "numpy dtype": _Dtype,
    "_codecs encode": lambda text, _: text.encode("latin-1"),
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Callable[..., Any]:
        if f"{module} {name}" not in _NAMES:
            raise ValueError(f"the name {module} {name}")
        return _NAMES[f"{module} {name}"]
