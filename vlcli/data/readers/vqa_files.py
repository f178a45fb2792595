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
    """Return the form of image ids by the ``data_subtype`` of a question file."""
    match = _SUBTYPE.match(subtype)
    return f"COCO_{match[1]}{match[2]}_{{:012d}}" if match else "{:012d}"


def recognise_vqa(folder: Folder) -> list[Recognised]:
    """Return the data sets of questions with annotations, and of LXMERT's lists."""
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
    data = Recognised("vqa", {"name": "vqa", "annotations": ""}, files, columns).name_files("questions")
    return [folder.with_images(data, [row.get("img_id") for name in files for row in documents[name]])]


def _official(
    folder: Folder, asked: dict[str, Any], answered: dict[str, Any], documents: dict[str, Any]
) -> list[Recognised]:
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
    data = Recognised("vqa", {"name": "vqa"}, list(pairs), columns).name_files("questions")
    pattern, splits = split_names(list(pairs.values()))
    one = len(pairs) == 1
    if not one and splits != split_names(list(pairs))[1]:
        data.question = f"the names of {data.where} and of their annotations do not name the parts alike: rename them"
    data.entry["annotations"] = next(iter(pairs.values())) if one else pattern
    data.files += pairs.values()
    data.unused += [f"{name}: questions without annotations" for name in asked if name not in pairs]
    data.unused += [f"{name}: annotations without questions" for name in answered if name not in pairs.values()]
    return [_with_images(folder, data, {name: asked[name] for name in pairs}, documents)]


def _with_images(folder: Folder, data: Recognised, asked: dict[str, Any], documents: dict[str, Any]) -> Recognised:
    forms = {name: image_form(str(documents[name].get("data_subtype", ""))) for name in asked}
    numbers = [(forms[name], row.get("image_id")) for name, rows in asked.items() for row in rows]
    said = [form.format(number) if isinstance(number, int) else str(number) for form, number in numbers]
    form, share = folder.pictures.number_form([number for _, number in numbers])
    there = sum(name in folder.pictures.by_id for name in said) / max(1, len(said))
    if share > there:
        data.entry["image_name"] = form
        said = [form.format(number) for _, number in numbers if isinstance(number, int)]
    return folder.with_images(data, said)
