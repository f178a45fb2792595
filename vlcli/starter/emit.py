"""YAML as a person writes it: short mappings on one line, a comment beside what it explains."""

from __future__ import annotations

import json
import re
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_./][A-Za-z0-9_./ -]*[A-Za-z0-9_./-]\Z|[A-Za-z_]\Z")
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n", "~"}
WIDTH = 120


def flow(value: Any) -> str:
    """A value on one line."""
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
        """A comment above what follows, wrapped; nothing where there is no text."""
        line = " " * indent + "#"
        for word in text.split():
            if len(line) + 1 + len(word) > WIDTH:
                self.lines.append(line)
                line = " " * indent + "#"
            line += f" {word}"
        if line.strip() != "#":
            self.lines.append(line)

    def key(self, name: str, value: Any, indent: int = 0, why: str = "") -> None:
        """A key with a value on one line, and why; a long reason goes above, a long mapping into several lines."""
        text = f"{' ' * indent}{flow(name)}: {flow(value)}"
        if why and len(text) + len(why) + 4 <= WIDTH:
            text += f"  # {why}"
        elif why:
            self.comment(why, indent)
        if len(text) > WIDTH and isinstance(value, dict):
            self.open(name, indent)
            for inner, item in value.items():
                self.key(inner, item, indent + 2)
        else:
            self.lines.append(text)

    def entries(self, name: str, entries: list[dict[str, Any]], indent: int = 0, why: str = "") -> None:
        """A key with one entry, or a list of entries, one a line."""
        if len(entries) == 1:
            self.key(name, entries[0], indent, why)
            return
        self.comment(why, indent)
        self.open(name, indent)
        self.lines += [f"{' ' * indent}  - {flow(entry)}" for entry in entries]

    def open(self, name: str, indent: int = 0) -> None:
        """A key whose value follows on the next lines."""
        self.lines.append(f"{' ' * indent}{flow(name)}:")

    def blank(self) -> None:
        """An empty line."""
        self.lines.append("")

    def text(self) -> str:
        """All of it."""
        return "\n".join(self.lines) + "\n"
