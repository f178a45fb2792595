"""Recognises exports of annotation tools that no reader reads."""

from __future__ import annotations

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
"""The command or menu by which each tool writes COCO's format instead."""


def exports(folder: Folder) -> dict[str, list[str]]:
    """Claim and return the files of a folder that annotation tools wrote in formats of their own, by tool."""
    files: dict[str, list[str]] = {}
    for name in folder.files("*.json", "*.csv", "*.xml", "*.txt"):
        if tool := _tool_of(folder, name):
            files.setdefault(tool, []).append(name)
    folder.claim(name for names in files.values() for name in names)
    return files


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
    inner = row if isinstance(row, dict) else {}
    first = next(iter(inner.values()), None)
    by_picture = isinstance(first, dict) and {"filename", "regions"} <= set(first)
    signs = {
        "LabelMe": {"shapes", "imagePath"} <= columns,
        "VIA": by_picture or {"_via_img_metadata", "region_shape_attributes"} & columns,
        "Label Studio": {"data", "annotations"} <= columns or {"annotator", "lead_time"} <= columns,
        "FiftyOne": "samples" in columns and "filepath" in first_object(inner.get("samples")),
    }
    return next((tool for tool, is_one in signs.items() if is_one), "")
