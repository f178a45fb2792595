"""Where Visual Genome's files lie, and which of its images are COCO's."""

from __future__ import annotations

from pathlib import Path

from vlcli.data.files import read_json, value

FOLDERS = ("vg", "visual_genome", "VG", ".")


def places(*names: str) -> tuple[str, ...]:
    """Where a file of Visual Genome may lie under the root."""
    return tuple(f"{folder}/{name}" for folder in FOLDERS for name in names)


def coco_numbers(file: Path) -> dict[str, int]:
    """COCO's number of every Visual Genome image that has one, from ``image_data.json``."""
    found = {}
    for place, row in enumerate(read_json(file, list)):
        name = value(row, "image_id" if "image_id" in row else "id", (int, str), f"{file}[{place}]")
        if row.get("coco_id") is not None:
            found[str(name)] = int(row["coco_id"])
    return found
