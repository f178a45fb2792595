"""JSON documents in the formats of published data sets: COCO, VQA v2, Karpathy's splits, lists of captions, boxes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlcli.images.boxes import image_id
from vlcli.tools.starter.pictures import Pictures
from vlcli.tools.starter.tables import TableFile

Known = tuple[str, dict[str, Any], str, list[str]]
"""Kind, reader's entry, file and notes of a data set."""


def known(root: Path, tables: Sequence[TableFile], pictures: Pictures) -> tuple[list[Known], list[TableFile]]:
    """The data sets among JSON documents that have readers of their own, and the tables that are left."""
    found: list[Known] = []
    left, questions, answers = [], [], []
    for table in tables:
        name = table.path.relative_to(root).as_posix()
        kind = _format(table)
        if kind == "questions":
            questions.append(table)
        elif kind == "answers":
            answers.append(table)
        elif kind in _ENTRIES:
            images = _folder(table, pictures)
            what, reader = _ENTRIES[kind]
            options = {"images": images} if images != "images" else {}
            if images is None:
                left.append(table)
                continue
            found.append((what, {"name": reader, "file": name, **options}, name, []))
        elif kind != "boxes":
            left.append(table)
    return found + _vqa(root, questions, answers, pictures), left


_ENTRIES = {
    "coco-captions": ("captions", "coco-captions"),
    "coco-instances": ("boxes", "coco-instances"),
    "captions": ("captions", "captions"),
}


def box_files(root: Path, tables: Sequence[TableFile], pictures: Pictures) -> list[str]:
    """Files with boxes that say nothing else: detections of a picture's regions."""
    found = []
    for table in tables:
        if _format(table) == "boxes":
            names = [image_id(str(row.get("file_name", row.get("image_id", "")))) for row in table.rows[:200]]
            if sum(name in pictures.by_id for name in names) > len(names) / 4:
                found.append(table.path.relative_to(root).as_posix())
    return found


def _format(table: TableFile) -> str:
    """The format of a JSON document; empty where it is none of these."""
    content = table.document
    if isinstance(content, list):
        return _list_format(content)
    if not isinstance(content, dict):
        return ""
    notes, asked = _first(content.get("annotations")), _first(content.get("questions"))
    forms = {
        "questions": "question" in asked and "image_id" in asked,
        "answers": "answers" in notes and "question_id" in notes,
        "coco-captions": "caption" in notes and isinstance(content.get("images"), list),
        "coco-instances": "bbox" in notes and isinstance(content.get("categories"), list),
    }
    if any(forms.values()):
        return next(name for name, fits in forms.items() if fits)
    lists = list(content.values())[:20]
    texts = lists and all(isinstance(value, list) and all(isinstance(text, str) for text in value) for value in lists)
    return "captions" if texts else ""


def _list_format(content: list[Any]) -> str:
    row = _first(content)
    if isinstance(row.get("captions"), list) and isinstance(row.get("image"), str):
        return "captions"
    if isinstance(row.get("boxes"), list) and isinstance(row.get("file_name"), str):
        return "boxes"
    return "boxes" if {"image_id", "bbox", "score"} <= set(row) else ""


def _first(value: Any) -> dict[str, Any]:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], dict) else {}


def _folder(table: TableFile, pictures: Pictures) -> str | None:
    """The folder that a document's file names are relative to; None where fewer than half are there."""
    content = table.document
    rows = content.get("images") if isinstance(content, dict) else content
    if isinstance(rows, list):
        names = [row.get("file_name", row.get("image", "")) for row in rows[:500] if isinstance(row, dict)]
    else:
        names = list(content)[:500]
    naming = pictures.named_by("file_name", names, table.path.parent)
    return None if naming is None else naming.folder


def _vqa(root: Path, questions: Sequence[TableFile], answers: Sequence[TableFile], pictures: Pictures) -> list[Known]:
    """Questions of VQA v2 with the annotations that answer them."""
    found: list[Known] = []
    for table in questions:
        ids = {row.get("question_id") for row in table.document["questions"]}
        fits = [one for one in answers if ids & {row.get("question_id") for row in one.document["annotations"]}]
        numbers = [row["image_id"] for row in table.document["questions"][:500] if "image_id" in row]
        form, folder, share = _image_name(numbers, pictures)
        if not fits or share < 0.5:
            continue
        file, answered = (one.path.relative_to(root).as_posix() for one in (table, fits[0]))
        entry = {"name": "vqa", "questions": file, "annotations": answered, "images": folder, "image_name": form}
        found.append(("vqa", entry, f"{file}, {answered}", []))
    return found


def _image_name(numbers: Sequence[Any], pictures: Pictures) -> tuple[str, str, float]:
    """The form that makes image ids of numbers, the pictures' folder, and the share of ids that are there."""
    forms = {"{}": 0}
    for name in pictures.by_id:
        hit = re.fullmatch(r"(.*?)([0-9]{4,})", name)
        if hit:
            forms[f"{hit[1].replace('{', '').replace('}', '')}{{:0{len(hit[2])}d}}"] = 0
        if len(forms) > 20:
            break
    plain = [number for number in numbers if isinstance(number, int)]
    for form in forms:
        forms[form] = sum(form.format(number) in pictures.by_id for number in plain)
    best = max(forms, key=lambda form: forms[form])
    return best, pictures.folder, forms[best] / max(1, len(numbers))
