"""Tables of any columns: which are the parts of one data set, and what their columns hold."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vlcli.data.english import is_english
from vlcli.data.files import IMAGE_SUFFIXES
from vlcli.data.recognition.columns import Meaning, as_number, is_hinted, meaning_of
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.parts import parts_of, split_names
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.recognition.tables import TableFile
from vlcli.images.boxes import image_id


def recognise_tables(folder: Folder, reader: str) -> list[Recognised]:
    """The data sets in tables that a reader reads: ``csv``, ``jsonl``, ``json`` or ``parquet``.

    Tables of the same columns are the parts of one data set. Where the user names columns, tables that lack them are
    left aside.
    """
    groups: dict[tuple[str, ...], list[TableFile]] = {}
    aside = []
    for table in folder.tables():
        if table.reader != reader or not table.rows:
            continue
        if re.search(r"submission", table.path.name.lower()):
            name = folder.name(table.path)
            aside.append(Recognised("", {}, [name], unused=[f"{name}: a submission, whose labels are no truth"]))
        else:
            groups.setdefault((*sorted(table.columns), table.separator, table.encoding), []).append(table)
    return aside + [_data_set(folder, group) for group in groups.values()]


def _data_set(folder: Folder, group: Sequence[TableFile]) -> Recognised:
    """The data set in tables of the same columns; a question where a column names pictures and no other is understood.

    A table without pictures is a record without kind and question: it says in ``unused`` why.
    """
    files = [folder.name(table.path) for table in group]
    table = group[0] if len(group) == 1 else replace(group[0], rows=[row for one in group for row in one.rows])
    found = Recognised("", {"name": table.reader}, files)
    shown = ", ".join(map(repr, table.columns[:12])) or "none"
    if lacking := [column for column in folder.columns.values() if column not in table.columns]:
        found.unused = [f"{found.where}: it lacks the column {lacking[0]} (columns: {shown})"]
        return found
    meaning = meaning_of(table, folder.pictures, folder.columns)
    found.columns = meaning.columns
    if meaning.pictures is None:
        found.unused = [f"{found.where}: no column names pictures of the folder (columns: {shown})"]
        found.question = _unnamed(folder, table, found.unused[0])
    elif kind := ("" if meaning.unclear else _kind(meaning)):
        found.kind = kind
        in_parts = _split_images(folder, found, group)
        found.entry |= _entry(found, table, meaning) | _class_names(folder, found, table, meaning) | in_parts
        if meaning.unused:
            unused = ", ".join(map(str, meaning.unused[:12]))
            found.notes.append(f"columns of {found.where} that are not used: {unused}")
        if meaning.pictures.also and not in_parts:
            place, also = meaning.pictures.folder, ", ".join(meaning.pictures.also)
            found.notes.append(f"pictures of the same names are in {also}: those in {place} are read (images: FOLDER)")
        found.notes += _notes(table, meaning)
    else:
        why = meaning.unclear or "no column holds sentences, labels that occur more than once, or boxes"
        if len(table.columns) == len(meaning.pictures.sources):
            why = "it lists pictures and says nothing of them; write one table with a column of their classes"
        line = f"{found.where}: {why} (columns: {shown})"
        if not meaning.unclear and _is_numbers(table):
            found.unused = [line]
        else:
            found.question = line
    return found


def _entry(found: Recognised, table: TableFile, meaning: Meaning) -> dict[str, Any]:
    """The options of the reader; notes parts and reasons in the record."""
    assert meaning.pictures is not None
    found.name_files()
    entry: dict[str, Any] = {}
    if table.separator != ",":
        entry["separator"] = "tab" if table.separator == "\t" else table.separator
    if table.header:
        entry["header"] = table.header
        found.reasons["header"] = "the first line is data"
    if table.encoding != "utf-8":
        entry["encoding"] = table.encoding
        found.reasons["encoding"] = "the file is not UTF-8"
    entry |= {"images": meaning.pictures.folder} if meaning.pictures.folder != "images" else {}
    entry |= _column_options(found.kind, found.columns)
    entry |= {"several": meaning.several} if meaning.several not in ("", ";") else {}
    entry |= {"sentences": meaning.separator} if found.kind == "captions" and meaning.separator else {}
    if not found.parts and meaning.split is not None:
        words = list(dict.fromkeys(str(value) for value in table.values(meaning.split)))
        named = {part: one["split"] for part, one in parts_of(words).items()}
        found.parts = {part: {"only": {meaning.split: word}} for part, word in named.items() if isinstance(word, str)}
        found.reasons["parts"] = f"the column {meaning.split} names the parts"
    if found.kind == "vqa" and not is_english(str(text) for text in table.values(str(meaning.text))[:2000]):
        entry["language"] = "other"
        found.notes.append("the questions are not English: answers are compared in lower case, by no rules of English")
    if found.kind in ("statements", "pairs") and meaning.label is not None:
        entry |= _label_words(table, meaning.label)
    return entry


def _class_names(folder: Folder, found: Recognised, table: TableFile, meaning: Meaning) -> dict[str, Any]:
    """The option ``labels`` for class numbers of a list, where a file beside it has a line for each."""
    numbers = [str(value) for value in table.values(meaning.label or "")] if table.header and meaning.label else []
    if not numbers or not all(number.isdecimal() for number in numbers):
        return {}
    most = max(map(int, numbers))
    for name in folder.files("*class*.txt", "*names*.txt", "*.names", "synset*.txt", "labels.txt"):
        if most < len(folder.lines(name)) + (min(map(int, numbers)) > 0):
            found.files.append(name)
            return {"labels": name}
    return {}


def _split_images(folder: Folder, found: Recognised, group: Sequence[TableFile]) -> dict[str, Any]:
    """The option ``image`` for tables whose pictures lie in folders of the parts, and share names."""
    column = found.columns["image"]
    if len(group) == 1 or not isinstance(column, str) or column not in group[0].columns:
        return {}
    places = set()
    for table, split in zip(group, split_names(found.files)[1], strict=True):
        names = [str(value) for value in table.values(column)]
        if not any(len(folder.pictures.by_id.get(image_id(name), ())) > 1 for name in names[:200]):
            return {}
        places.add(folder.pictures.place_of(names, split))
    if len(places) > 1 or "" in places:
        return {}
    place, _, ending = places.pop().partition("*")
    return {"images": ".", "image": f"{place}{{{column}}}{ending}"}


def _kind(meaning: Meaning) -> str:
    if meaning.text is not None:
        if meaning.pictures is not None and len(meaning.pictures.sources) > 1:
            return "pairs" if meaning.label or meaning.answers else ""
        if meaning.answers is not None:
            return "vqa"
        if meaning.one_box:  # a class beside it is that of the box
            return "referring"
        return "captions" if meaning.label is None else "statements"
    if meaning.boxes is not None:
        return "boxes"
    return "multilabel" if meaning.labels else "labels" if meaning.label is not None else ""


def _column_options(kind: str, columns: dict[str, Any]) -> dict[str, Any]:
    """The options that name columns, as far as they are not the reader's defaults."""
    label = columns.get("label") or (columns.get("answers") if kind == "pairs" else None)
    wanted: dict[str, Any] = {
        "image": columns["image"],
        "text": columns.get("text"),
        "answers": columns.get("answers") if kind == "vqa" else None,
        "label": label if kind in ("statements", "pairs", "labels", "multilabel") else None,
        "box": columns.get("boxes") if kind == "referring" else None,
        "boxes": columns.get("boxes") if kind == "boxes" else None,
        "box_labels": columns.get("box_labels") if kind == "boxes" else None,
    }
    return {
        option: column
        for option, column in wanted.items()
        if column is not None and (column != option or option == "box")
    }


def _notes(table: TableFile, meaning: Meaning) -> list[str]:
    """What of the answers is worth saying."""
    if meaning.answers is None:
        return []
    plain = [str(value) for value in table.values(meaning.answers) if isinstance(value, str)]
    scored, several = sum("_" in answer for answer in plain), sum("," in answer for answer in plain)
    found = [f"{scored:,} answers have underscores, which count as spaces"] if scored else []
    if several:
        found.append(f"{several:,} answers are lists with commas; a whole list counts as one answer")
    return found


def _label_words(table: TableFile, column: str) -> dict[str, Any]:
    """The order of label words, so that every part numbers them alike."""
    values = set(table.values(column))
    words = sorted(str(value) for value in values if isinstance(value, str) and not value.lstrip("-").isdigit())
    return {"labels": words} if words and len(words) == len(values) and len(words) <= 20 else {}


def _unnamed(folder: Folder, table: TableFile, why: str) -> str:
    """What is unclear in a table that should name pictures and does not; empty where it need not.

    It should where a column holds names like those of pictures, where the user names the column, and where it is the
    only table.
    """
    named = folder.columns.get("image")
    columns = [named] if named else table.columns
    like = {name: [value for value in table.values(name) if _is_file_name(value)] for name in columns}
    column = max(like, key=lambda name: len(like[name]), default="")
    if column and (named or len(like[column]) > len(table.rows) / 2):
        value = ascii(str(table.values(column)[0])) if table.values(column) else "nothing"
        close = ascii(min(folder.pictures.paths, default=""))
        return (
            f"{folder.name(table.path)}: the column {column} names pictures such as {value}, and fewer than half of "
            f"them are in the folder, which has {close}"
        )
    only = sum(bool(one.rows) for one in folder.tables()) == 1
    return why if only and not _is_numbers(table) else ""


def _is_numbers(table: TableFile) -> bool:
    """Whether a table holds numbers alone, and no column is called like pictures: results, measurements."""
    named = any(is_hinted("picture", name) for name in table.columns)
    return not named and all(as_number(value) is not None for name in table.columns for value in table.values(name))


def _is_file_name(value: Any) -> bool:
    return isinstance(value, str) and value.lower().endswith(tuple(IMAGE_SUFFIXES))
