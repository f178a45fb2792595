"""Writes YAML as a person does: short mappings on one line, a comment beside what it explains."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ -]*[A-Za-z0-9_./-]\Z|[A-Za-z_]\Z")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"}
WIDTH = 120


class Noted(NamedTuple):
    """A value with the comment that explains it."""

    value: Any
    why: str


def flow(value: Any) -> str:
    """Return a value in YAML's flow style, on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.match(value) and value.lower() not in _WORDS and "  " not in value
        return value if plain else json.dumps(value, ensure_ascii=False)
    return "~" if value is None else json.dumps(value)


class Writer:
    """Collects the lines of a recipe."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def comment(self, text: str, indent: int = 0) -> None:
        """Add a comment, wrapped; nothing where the text is empty."""
        start, words = f"{' ' * indent}# ", " ".join(text.split())
        options: dict[str, Any] = {"break_long_words": False, "break_on_hyphens": False}
        self.lines += textwrap.wrap(words, WIDTH, initial_indent=start, subsequent_indent=start, **options)

    def key(self, name: str, value: Any, indent: int = 0, why: str = "") -> None:
        """Add a key with its value on one line; a long reason goes above it, a long mapping into several lines."""
        text = f"{' ' * indent}{flow(name)}: {flow(value)}"
        if why and len(text) + len(why) + 4 <= WIDTH:
            text += f"  # {why}"
        else:
            self.comment(why, indent)
        if len(text) > WIDTH and isinstance(value, dict):
            self.open(name, indent)
            self.keys(value, indent + 2)
        else:
            self.lines.append(text)

    def keys(self, section: Mapping[str, Any], indent: int) -> None:
        """Add the keys of a mapping, whose values may be :class:`Noted`."""
        for name, value in section.items():
            self.key(name, *((value.value, indent, value.why) if isinstance(value, Noted) else (value, indent)))

    def stage(self, name: str, section: Mapping[str, Any]) -> None:
        """Add a stage, one key a line."""
        self.open(name, 2)
        self.keys(section, 4)

    def entries(self, name: str, entries: list[dict[str, Any]], indent: int, why: str = "") -> None:
        """Add a key with one entry, or with a list of entries, one a line."""
        if len(entries) == 1:
            self.key(name, entries[0], indent, why)
            return
        self.comment(why, indent)
        self.open(name, indent)
        self.lines += [f"{' ' * indent}  - {flow(entry)}" for entry in entries]

    def open(self, name: str, indent: int = 0) -> None:
        """Add a key whose value follows on the next lines."""
        self.lines.append(f"{' ' * indent}{flow(name)}:")
