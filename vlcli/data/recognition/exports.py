"""Exports of annotation tools that no reader reads, and how the tool writes COCO's format instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vlcli.data.files import first_object
from vlcli.data.recognition.folder import Folder

HOW = {
    "LabelMe": "pip install labelme2coco, then labelme2coco FOLDER",
    "VIA": "Annotation > Export Annotations (COCO format)",
    "CVAT": "Export dataset > COCO 1.0",
    "Label Studio": "Export > COCO",
    "FiftyOne": "dataset.export(FOLDER, dataset_type=fiftyone.types.COCODetectionDataset)",
    "Roboflow": "Export Dataset > COCO",
}
"""The command or menu of each tool."""


def exports(folder: Folder) -> dict[str, list[str]]:
    """The files of a folder that annotation tools wrote in formats of their own, by tool; they are claimed."""
    found: dict[str, list[str]] = {}
    for name in folder.files("*.json", "*.csv", "*.xml", "*.txt"):
        tool = _tool_of(folder, name)
        if tool:
            found.setdefault(tool, []).append(name)
    folder.claim(name for names in found.values() for name in names)
    return found


def _tool_of(folder: Folder, name: str) -> str:
    last = name.rpartition("/")[2].lower()
    if last in ("_annotations.csv", "_annotations.txt", "_annotations.createml.json"):
        return "Roboflow"
    if last.endswith(".xml"):
        head = " ".join(folder.lines(name, 4))
        return "CVAT" if "<annotations>" in head and ("<version>" in head or "<meta>" in head) else ""
    table = folder.table(name) if last.endswith((".json", ".csv")) else None
    if table is None:
        return ""
    row = first_object(table.document) if isinstance(table.document, list) else table.document
    columns = set(table.columns) if table.document is None else set(row) if isinstance(row, dict) else set()
    return next((tool for tool, is_one in _SIGNS if is_one(columns, row)), "")


def _via(columns: set[str], row: Any) -> bool:
    """A project of VIA, an export (an object by picture), or its CSV."""
    first = next(iter(row.values()), None) if isinstance(row, dict) else None
    by_picture = isinstance(first, dict) and {"filename", "regions"} <= set(first)
    return by_picture or bool({"_via_img_metadata", "region_shape_attributes"} & columns)


_SIGNS: tuple[tuple[str, Callable[[set[str], Any], bool]], ...] = (
    ("LabelMe", lambda columns, _: {"shapes", "imagePath"} <= columns),
    ("VIA", _via),
    ("Label Studio", lambda columns, _: {"data", "annotations"} <= columns or {"annotator", "lead_time"} <= columns),
    ("FiftyOne", lambda columns, row: "samples" in columns and "filepath" in first_object(row.get("samples"))),
)
"""Whether the fields of a document or table, or its first object, are those of a tool's export."""
