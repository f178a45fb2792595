"""Small writers that every part uses: JSON documents, JSON lines, text."""

import json
from collections.abc import Iterable
from pathlib import Path

INFO = {"description": "shapes: a generated world", "version": "1", "year": 2026, "contributor": "vlcli", "url": ""}


def write_json(path: Path, document: object) -> None:
    """Write one compact JSON document."""
    write_text(path, json.dumps(document, separators=(",", ":")))


def write_lines(path: Path, rows: Iterable[object]) -> None:
    """Write one JSON document a line."""
    write_text(path, "".join(f"{json.dumps(row)}\n" for row in rows))


def write_text(path: Path, text: str) -> None:
    """Write UTF-8 with bare newlines on every platform."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
