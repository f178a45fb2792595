"""Recognises the files of VQA v2 and of LXMERT's lists in a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from vlcli.data.files import first_object
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.parts import split_names
from vlcli.data.recognition.recognised import Recognised

_SUBTYPE = re.compile(r"^(train|val|test)(?:-dev)?(20\d\d)$")


def image_form(subtype: str) -> str:
    """The form of image ids by the ``data_subtype`` of a question file."""
    found = _SUBTYPE.match(subtype)
    return f"COCO_{found[1]}{found[2]}_{{:012d}}" if found else "{:012d}"


def recognise_vqa(folder: Folder) -> list[Recognised]:
    """The data sets of questions with annotations, and of LXMERT's lists."""
    documents = dict(folder.documents())
    lists = [name for name, rows in documents.items() if {"question_id", "sent", "img_id"} <= first_object(rows).keys()]
    asked = dict(_lists(documents, "questions", {"question", "question_id", "image_id"}))
    answered = dict(_lists(documents, "annotations", {"answers", "question_id"}))
    return [*_joined(folder, lists, documents), *_official(folder, asked, answered, documents)]


def _lists(documents: dict[str, Any], key: str, fields: set[str]) -> Iterable[tuple[str, list[dict[str, Any]]]]:
    for name, content in documents.items():
        rows = content.get(key) if isinstance(content, dict) else None
        if fields <= first_object(rows).keys():
            yield name, [row for row in rows or [] if isinstance(row, dict)]


def _joined(folder: Folder, files: list[str], documents: dict[str, Any]) -> list[Recognised]:
    if not files:
        return []
    columns = {"image": "img_id", "text": "sent", "answers": "label"}
    found = Recognised("vqa", {"name": "vqa", "annotations": ""}, files, columns).name_files("questions")
    return [folder.with_images(found, [row.get("img_id") for name in files for row in documents[name]])]


def _official(
    folder: Folder, asked: dict[str, Any], answered: dict[str, Any], documents: dict[str, Any]
) -> list[Recognised]:
    """One data set of all question files that have annotations; questions without are named as unused."""
    ids = {name: {row.get("question_id") for row in rows} for name, rows in answered.items()}
    pairs: dict[str, str] = {}
    for name, rows in asked.items():
        numbers = {row.get("question_id") for row in rows}
        fits = max(ids, key=lambda one: len(ids[one] & numbers), default="")
        if fits and ids[fits] & numbers:
            pairs[name] = fits
    if not pairs:
        return []
    columns = {"image": "image_id", "text": "question", "answers": "answers[].answer"}
    found = Recognised("vqa", {"name": "vqa"}, list(pairs), columns).name_files("questions")
    pattern, splits = split_names(list(pairs.values()))
    one = len(pairs) == 1
    if not one and splits != split_names(list(pairs))[1]:
        found.question = f"the names of {found.where} and of their annotations do not name the parts alike: rename them"
    found.entry["annotations"] = next(iter(pairs.values())) if one else pattern
    found.files += pairs.values()
    found.unused += [f"{name}: questions without annotations" for name in asked if name not in pairs]
    found.unused += [f"{name}: annotations without questions" for name in answered if name not in pairs.values()]
    return [_with_images(folder, found, {name: asked[name] for name in pairs}, documents)]


def _with_images(folder: Folder, found: Recognised, asked: dict[str, Any], documents: dict[str, Any]) -> Recognised:
    """Add the pictures' folder, and the form of their names where the files do not say it."""
    forms = {name: image_form(str(documents[name].get("data_subtype", ""))) for name in asked}
    numbers = [(forms[name], row.get("image_id")) for name, rows in asked.items() for row in rows]
    said = [form.format(number) if isinstance(number, int) else str(number) for form, number in numbers]
    form, share = folder.pictures.number_form([number for _, number in numbers])
    there = sum(name in folder.pictures.by_id for name in said) / max(1, len(said))
    if share > there:
        found.entry["image_name"] = form
        said = [form.format(number) for _, number in numbers if isinstance(number, int)]
    return folder.with_images(found, said)
