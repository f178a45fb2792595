"""Finds Visual Genome's files and COCO's numbers of its images."""

from __future__ import annotations

from pathlib import Path

from vlcli.data.files import read_json
from vlcli.data.unique import by_id

FOLDERS = ("vg", "visual_genome", "VG", ".")


def usual_paths(*names: str) -> tuple[str, ...]:
    """Return the usual paths under the data root of a file of Visual Genome."""
    return tuple(f"{folder}/{name}" for folder in FOLDERS for name in names)


def coco_numbers(file: Path) -> dict[str, int]:
    """Read COCO's number of every Visual Genome image that has one from ``image_data.json``."""
    rows = read_json(file, list)
    name = "image_id" if rows and isinstance(rows[0], dict) and "image_id" in rows[0] else "id"
    numbered = by_id(rows, name, str(file))
    return {str(key): int(row["coco_id"]) for key, row in numbered.items() if row.get("coco_id") is not None}
