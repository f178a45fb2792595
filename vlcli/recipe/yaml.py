"""Reads YAML with the line of every key, as plain values by the core schema of YAML 1.2, and writes it.

``on`` and ``no`` are strings, ``1e-4`` is a float, ``1:2:8`` is a string. Tags other than the core ones are refused.
"""

import copy
import re
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from vlcli.errors import Problem, RecipeError

Path_ = tuple[str | int, ...]
"""Keys and list positions from the root to a value."""

_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"[-+]?\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_TAG = "tag:yaml.org,2002:"
_TEXT = (_TAG + "str", "!")
_PLAIN = ("int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")
_TAGS = {None, *_TEXT, *(_TAG + name for name in _PLAIN)}
_MOST_BYTES = 2_000_000  # the longest document
_MOST_KEPT = 100_000  # the longest document, in characters, that is kept after it was read
_MOST_NODES = 100_000  # the most values, those of an alias counted anew
_MOST_LEVELS = 100  # the deepest nesting
_MOST_DIGITS = 100  # the longest whole number; the keys of a recipe have narrower bounds of their own


@dataclass
class Document:
    """Plain Python data, and ``file:line`` (or ``command line``) of each part by its path."""

    value: Any
    places: dict[Path_, str] = field(default_factory=dict)

    def place(self, path: Path_) -> str:
        """Returns where ``path`` was written; the nearest part above it if it was not written itself."""
        keys = tuple(part for part in path if not isinstance(part, int))  # a list may be written as its only item
        path = keys if path not in self.places and keys in self.places else path
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, "")

    def fault(
        self, path: Path_, what: str, got: str = "", expected: str = "", hint: str = "", code: int = 3
    ) -> Problem:
        return Problem(dotted(path), what, self.place(path), got, expected, hint, code)


def dotted(path: Path_) -> str:
    """Returns ``("stages", "a", "data", 0)`` as ``stages.a.data[0]``."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def section(value: Any, *keys: str) -> dict[str, Any]:
    """Returns the mapping below ``keys`` of nested mappings; an empty one if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


class _YamlError(Exception):
    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.what, self.line = what, line


def read(file: Path) -> Document:
    """Reads a file. Raises RecipeError: it is unreadable, no YAML, repeats a key, or has a tag that makes objects."""
    try:
        with file.open("rb") as stream:  # no further than the limit: it may be an endless device
            return parse(stream.read(_MOST_BYTES + 1).decode("utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        hint = "save it as UTF-8" if isinstance(error, UnicodeDecodeError) else "see the file: ls -l"
        problem = Problem("", "the file cannot be read", str(file), str(error), "YAML in UTF-8", hint)
        raise RecipeError([problem], str(file)) from error
    except _YamlError as fault:
        problem = Problem("", fault.what, where=f"{file}:{fault.line}", hint="see the YAML near this line")
        raise RecipeError([problem], str(file)) from fault


def parse(text: str, name: str = "") -> Document:
    """Reads ``text``; its places are ``name:line`` (``name`` alone, without lines, if it holds a space)."""
    if len(text) > _MOST_BYTES:
        raise _YamlError(f"the document is too large: a recipe has at most {_MOST_BYTES:,} bytes", 1)
    kept = _parsed(text, name) if len(text) <= _MOST_KEPT else _Builder(text, name).document
    return Document(copy.deepcopy(kept.value), dict(kept.places))


@lru_cache(maxsize=64)
def _parsed(text: str, name: str) -> Document:
    # Rows of a table and its heirs read the same few documents again and again.
    return _Builder(text, name).document


def scalar(text: str) -> Any:
    """Returns the value of an override; ValueError if it is not YAML."""
    try:
        return parse(text).value
    except _YamlError as fault:
        raise ValueError(fault.what) from fault


def plain_scalar(text: str) -> Any:
    """Returns the value of an unquoted scalar by the core schema."""
    lowered = text.lower()
    if lowered in _WORDS and text in (lowered, lowered.capitalize(), lowered.upper()):
        return _WORDS[lowered]
    if _INT.match(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _SPECIAL.match(text):
        return float(lowered.replace(".", ""))
    return float(text) if _FLOAT.match(text) else text


def _events(text: str) -> list[Any]:
    import yaml

    try:
        return list(yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = f"not YAML: {error.problem or error}"
        what = _TOO_DEEP if "nesting depth" in what else what  # libyaml reads ahead, and has a limit too
        raise _YamlError(what, getattr(mark, "line", 0) + 1) from error
    except (yaml.YAMLError, ValueError, OverflowError) as error:  # ValueError: an escape that names no character
        raise _YamlError(f"not YAML: {str(error).splitlines()[0]}", 1) from error


_TOO_DEEP = f"the document is nested deeper than {_MOST_LEVELS} levels"


class _Builder:
    # Makes values from the parser's events, and keeps their lines. An alias reads the events of its anchor again; the
    # values are counted, because aliases can make a small document large.

    def __init__(self, text: str, name: str) -> None:
        self.name, self.lines = name, bool(name) and " " not in name.rsplit("/", 1)[-1]
        self.nodes, self.open = 0, list[int]()
        self.document = Document(None)
        self.events, self.targets = _events(text), dict[int, int]()
        anchors: dict[str, int] = {}
        for index, event in enumerate(self.events):
            anchor = getattr(event, "anchor", None)
            if anchor and hasattr(event, "tag"):
                anchors[anchor] = index
            elif anchor and anchor not in anchors:
                raise _YamlError(f"not YAML: found undefined alias {anchor!r}", _line(event))
            elif anchor:
                self.targets[index] = anchors[anchor]
        if len(self.events) > 2:  # starts and ends of the stream and of its documents, and what is between
            self.document.value, end = self._value(2, ())
            if len(self.events) > end + 2:
                raise _YamlError("not YAML: expected a single document in the stream", _line(self.events[end + 1]))

    def _value(self, index: int, path: Path_) -> tuple[Any, int]:
        # The value whose events begin at index, and the index behind them.
        if index in self.targets:
            return self._value(self.targets[index], path)[0], index + 1
        event = self.events[index]
        line, tag = _line(event), event.tag
        self.nodes += 1
        if self.nodes > _MOST_NODES:
            raise _YamlError("the document is too large once its aliases are expanded", line)
        if tag not in _TAGS:
            raise _YamlError(f"the tag {tag.removeprefix(_TAG)!r} is not allowed: only plain values are", line)
        self.document.places.setdefault(path, self._place(line))
        if hasattr(event, "value"):
            return _scalar(event, line), index + 1
        if index in self.open:
            raise _YamlError("an alias refers to the value that contains it", line)
        if len(self.open) >= _MOST_LEVELS:
            raise _YamlError(_TOO_DEEP, line)
        self.open.append(index)
        mapping = type(event).__name__ == "MappingStartEvent"
        value, index = self._mapping(index + 1, path) if mapping else self._sequence(index + 1, path)
        self.open.pop()
        return value, index

    def _sequence(self, index: int, path: Path_) -> tuple[list[Any], int]:
        items: list[Any] = []
        while type(self.events[index]).__name__ != "SequenceEndEvent":
            item, index = self._value(index, (*path, len(items)))
            items.append(item)
        return items, index + 1

    def _mapping(self, index: int, path: Path_) -> tuple[dict[str, Any], int]:
        items: dict[str, Any] = {}
        while type(self.events[index]).__name__ != "MappingEndEvent":
            event = self.events[self.targets.get(index, index)]
            line = _line(event)
            if not hasattr(event, "value"):
                raise _YamlError("a key must be a plain word", line)
            key = _characters(event.value, line)
            if key in items:
                raise _YamlError(f"the key {key!r} is given twice", line)
            if key == "<<":
                raise _YamlError("YAML 1.2 has no merge keys: `extends` and `defaults` share keys", line)
            self.document.places[(*path, key)] = self._place(line)
            items[key], index = self._value(index + 1, (*path, key))
        return items, index + 1

    def _place(self, line: int) -> str:
        return f"{self.name}:{line}" if self.lines else self.name


def _line(event: Any) -> int:
    return int(event.start_mark.line) + 1


def _scalar(event: Any, line: int) -> Any:
    if event.style or event.tag in _TEXT:
        return _characters(event.value, line)
    if len(event.value) > _MOST_DIGITS and _INT.match(event.value):
        most = f"at most {_MOST_DIGITS} are read (text goes in quotes)"
        raise _YamlError(f"a number of {len(event.value):,} digits: {most}", line)
    return plain_scalar(event.value)


def _characters(text: str, line: int) -> str:
    # No file and no terminal can hold one. PyYAML without libyaml reads it.
    if "\0" in text or (not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text)):
        raise _YamlError("not YAML: found invalid Unicode character escape code", line)
    return text


def to_yaml(value: Any) -> str:
    """Returns block style, keys in order."""
    import yaml

    class Writer(yaml.SafeDumper):
        def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
            # Strings that the core schema reads as another type are quoted; the words of YAML 1.1 alone are not.
            if kind is yaml.ScalarNode and implicit[0]:
                return super().represent_data(plain_scalar(value)).tag
            return super().resolve(kind, value, implicit)  # type: ignore[no-untyped-call]

        def represent_float(self, data: float) -> Any:
            node = super().represent_float(data)
            node.value = node.value.replace(".0e", "e")
            return node

    Writer.add_representer(float, Writer.represent_float)
    return str(yaml.dump(value, Dumper=Writer, sort_keys=False, allow_unicode=True, width=120))
