"""YAML 1.2 (core schema) with the line of every key; safe: a document can only make plain values.

``on`` and ``no`` are strings, ``1e-4`` is a float, ``1:2:8`` is a string. Tags other than the core ones are refused,
and so is a document beyond the limits below: its size, its nesting, the digits of a number, what its aliases unfold to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from vlcli.errors import Problem, RecipeError

Path_ = tuple[str | int, ...]
"""Where a value stands: keys and list positions from the root."""

_INT = re.compile(r"[-+]?[0-9]+\Z|0o[0-7]+\Z|0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"([-+]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}
_TAG = "tag:yaml.org,2002:"
_TAGS = {_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq", "merge", "value")}
_UNUSUAL = re.compile(
    r"[\t%!|>?\r\x85\u2028\u2029\ufeff]|---|\.\.\."
    r"|[&*](?![A-Za-z0-9_-]+(?:[ \n,\]}]|$))"  # an anchor's name and what ends it
    r"|(?<![0-9])\.[0-9]+[eE][0-9]"
    r"|['\"]:[],}]"
)
"""What YAML 1.1 and 1.2, or libyaml and ruamel.yaml, may read differently outside of quotes and comments."""
_BREAKS = re.compile(r"[\t\r\x85\u2028\u2029\ufeff]|\n +(?:\n|\Z)")
"""What they may read differently anywhere."""
_HARMLESS = re.compile(
    r"(\n[ ]*|[\[{]|[,:-] |[,:-] &[A-Za-z0-9_-]+ )"  # where a quoted scalar can begin
    r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\n]|'')*')"""
    r"(?=[,\]}]|:[ \n]|[ ]*(?:\n|$)|[ ]+\#)"  # where it can end
    r"|(?:(?<=\n)|(?<=[ ]))\#[^\n]*"
    r"|(?<=: )[>|]-?(?=\n[ ]+[^ \n])"
)
"""A quoted scalar of one line, a comment, or the usual header of a scalar of several lines."""
_STRAY_QUOTE = re.compile(r"""(?<!\w)['"]|['"](?!\w)""")
"""A quote that is not an apostrophe inside a word."""
MOST_BYTES = 2_000_000
"""The longest document."""
MOST_KEPT = 100_000
"""The longest document, in characters, that is kept after it was read."""
MOST_NODES = 100_000
"""The most values, each alias counted as all that it stands for."""
MOST_LEVELS = 100
"""The deepest nesting."""
MOST_DIGITS = 100
"""The longest whole number; the keys of a recipe have narrower bounds of their own."""


@dataclass
class Document:
    """A value and where each part of it was written.

    Attributes:
        value: plain Python data.
        places: ``file:line`` (or ``command line``) by path.
    """

    value: Any
    places: dict[Path_, str] = field(default_factory=dict)

    def place(self, path: Path_) -> str:
        """Where ``path`` was written; the nearest part above it where it was not written itself."""
        keys = tuple(part for part in path if not isinstance(part, int))  # a list may be written as its only item
        path = keys if path not in self.places and keys in self.places else path
        while path not in self.places and path:
            path = path[:-1]
        return self.places.get(path, "")


class _YamlError(Exception):
    """A fault and its line (1-based)."""

    def __init__(self, what: str, line: int) -> None:
        super().__init__(what)
        self.what, self.line = what, line


def read(file: Path) -> Document:
    """The document in ``file``.

    Raises:
        RecipeError: it cannot be read, is not YAML, repeats a key, or uses a tag that makes objects.
    """
    try:
        with file.open("rb") as stream:  # no further than the limit: it may be an endless device
            return parse(stream.read(MOST_BYTES + 1).decode("utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        problem = Problem("", "the file cannot be read", where=str(file), got=str(error))
        raise RecipeError([problem], str(file)) from error
    except _YamlError as fault:
        problem = Problem("", fault.what, where=f"{file}:{fault.line}", hint="see the YAML near this line")
        raise RecipeError([problem], str(file)) from fault


def parse(text: str, name: str = "") -> Document:
    """``text`` as a document whose places are ``name:line`` (``name`` alone without lines where it holds a space)."""
    if len(text) > MOST_BYTES:
        raise _YamlError(f"the document is too large: a recipe has at most {MOST_BYTES:,} bytes", 1)
    kept = _parsed(text, name) if len(text) <= MOST_KEPT else _built(text, name)
    return Document(_copied(kept.value), dict(kept.places))


def _built(text: str, name: str) -> Document:
    builder = _Builder(name)
    return Document(builder.value(_compose(text), ()), builder.places)


_parsed = lru_cache(maxsize=64)(_built)
"""Rows of a table and its heirs read the same few documents again and again."""


def _copied(value: Any) -> Any:
    """Another copy of plain data: whoever changes one leaves the documents that are kept as they are."""
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def scalar(text: str) -> Any:
    """The value of an override: YAML 1.2, one line; ValueError where it is not YAML."""
    try:
        return parse(text).value
    except _YamlError as fault:
        raise ValueError(fault.what) from fault


def plain_scalar(text: str) -> Any:
    """An unquoted scalar by the core schema's rules."""
    lowered = text.lower()
    if lowered in _WORDS and text in (lowered, lowered.capitalize(), lowered.upper()):
        return _WORDS[lowered]
    if _INT.match(text):
        return int(text, {"0o": 8, "0x": 16}.get(text[:2], 10))
    if _FLOAT.match(text) or _SPECIAL.match(text):
        return float(
            text.replace(".inf", "inf").replace(".Inf", "inf").replace(".INF", "inf").lower().lstrip(".")
            if _SPECIAL.match(text)
            else text
        )
    return text


def _compose(text: str) -> Any:
    """The document's nodes: libyaml's where both parsers agree on every document, else those of ruamel.yaml."""
    node = None if _is_unusual(text) else _compose_fast(text)
    return _compose_exactly(text) if node is None else node


def _is_unusual(text: str) -> bool:
    """Whether the two parsers may read ``text`` differently.

    Quoted scalars, comments and the headers of block scalars are left out of the search. Where a quote is left after
    that, as in a scalar of several lines, what stands inside of quotes is not certain, and the whole text is searched.
    """
    if _BREAKS.search(text):
        return True
    bare = _HARMLESS.sub(r'\1""', "\n" + text)
    return bool(_UNUSUAL.search(text if _STRAY_QUOTE.search(bare.replace('""', "")) else bare))


def _compose_fast(text: str) -> Any:
    """Libyaml's nodes, in a fifteenth of ruamel's time; None where there are none, or where libyaml finds a fault.

    libyaml reads YAML 1.1 and ends the process on deep nesting. So it is given only text without what the two versions
    read differently, its levels are counted first, and ruamel.yaml words every fault.
    """
    import yaml

    loader: Any = getattr(yaml, "CSafeLoader", None)
    if loader is None:  # PyYAML was built without libyaml
        return None
    try:
        depth = 0
        for event in yaml.parse(text, Loader=loader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MOST_LEVELS:
                return None
        return yaml.compose(text, Loader=_plain(loader))
    except yaml.YAMLError:
        return None


@cache
def _plain(loader: Any) -> Any:
    """A loader that gives every unquoted scalar one tag, so that :func:`plain_scalar` decides what it is."""
    resolvers = {None: [(_TAG + "value", re.compile(""))]}
    return type("PlainLoader", (loader,), {"yaml_implicit_resolvers": resolvers})


def _compose_exactly(text: str) -> Any:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        return YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise _YamlError(f"not YAML: {error.problem or error}", mark.line + 1 if mark else 1) from error
    except YAMLError as error:
        raise _YamlError(f"not YAML: {str(error).splitlines()[0]}", 1) from error
    except RecursionError:
        raise _YamlError(_TOO_DEEP, 1) from None
    except (ValueError, OverflowError) as error:  # an escape that names no character, a directive that is no number
        raise _YamlError(f"not YAML: {str(error).splitlines()[0]}", 1) from error


_TOO_DEEP = f"the document is nested deeper than {MOST_LEVELS} levels"


class _Builder:
    """Turns composed nodes into values, noting places; counts nodes, since aliases can blow a document up."""

    def __init__(self, name: str) -> None:
        self.name, self.nodes = name, 0
        self.open: list[Any] = []
        self.places: dict[Path_, str] = {}

    def value(self, node: Any, path: Path_) -> Any:
        """The plain value of ``node``."""
        if node is None:
            return None
        self.nodes += 1
        line = node.start_mark.line + 1
        if self.nodes > MOST_NODES:
            raise _YamlError("the document is too large once its aliases are expanded", line)
        if node.tag not in _TAGS:
            raise _YamlError(f"the tag {node.tag.removeprefix(_TAG)!r} is not allowed: only plain values are", line)
        self.places.setdefault(path, self._place(line))
        if node.id in ("mapping", "sequence"):
            return self._nested(node, path, line)
        return self._scalar(node, line)

    def _nested(self, node: Any, path: Path_, line: int) -> Any:
        if any(node is outer for outer in self.open):
            raise _YamlError("an alias stands inside what it is an alias of", line)
        if len(self.open) >= MOST_LEVELS:
            raise _YamlError(_TOO_DEEP, line)
        self.open.append(node)
        if node.id == "mapping":
            found: Any = self._mapping(node, path)
        else:
            found = [self.value(item, (*path, i)) for i, item in enumerate(node.value)]
        self.open.pop()
        return found

    def _scalar(self, node: Any, line: int) -> Any:
        quoted = bool(node.style) or node.tag == _TAG + "str"
        if not quoted and len(node.value) > MOST_DIGITS and _INT.match(node.value):
            most = f"at most {MOST_DIGITS} are read (text goes in quotes)"
            raise _YamlError(f"a number of {len(node.value):,} digits: {most}", line)
        return _characters(node.value, line) if quoted else plain_scalar(node.value)

    def _mapping(self, node: Any, path: Path_) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.id != "scalar":
                raise _YamlError("a key must be a plain word", line)
            key = _characters(str(key_node.value), line)
            if key in found:
                raise _YamlError(f"the key {key!r} stands here twice", line)
            self.places[(*path, key)] = self._place(line)
            found[key] = self.value(value_node, (*path, key))
        return found

    def _place(self, line: int) -> str:
        return f"{self.name}:{line}" if self.name and " " not in self.name.rsplit("/", 1)[-1] else self.name


def _characters(text: str, line: int) -> str:
    r"""``text`` without escapes such as ``"\ud800"``, which no file and no terminal can hold."""
    if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
        raise _YamlError("half of a surrogate pair is no character", line)
    return text
