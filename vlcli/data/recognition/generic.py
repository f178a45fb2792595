"""Tables of any columns: which are the parts of one data set, and what their columns hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vlcli.data.recognition.columns import Meaning, meaning_of
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.parts import parts_of
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.recognition.tables import TableFile


def recognise_tables(folder: Folder, reader: str) -> list[Recognised]:
    """The data sets in tables that a reader reads: ``csv``, ``jsonl``, ``json`` or ``parquet``."""
    groups: dict[tuple[str, ...], list[TableFile]] = {}
    for table in folder.tables():
        if table.reader == reader and table.rows:
            groups.setdefault((*sorted(table.columns), table.separator, table.encoding), []).append(table)
    return [_data_set(folder, group) for group in groups.values()]


def _data_set(folder: Folder, group: Sequence[TableFile]) -> Recognised:
    """The data set in tables of the same columns; a question where a column names pictures and no other is understood.

    A table without pictures is a record without kind and question: it says in ``unused`` why.
    """
    table, files = group[0], [folder.name(table.path) for table in group]
    meaning = meaning_of(table, folder.pictures)
    columns, shown = meaning.columns, ", ".join(table.columns[:12])
    kind = _kind(meaning) if meaning.pictures is not None else None
    found = Recognised(kind or "", {"name": table.reader}, files, columns, notes=_notes(table, meaning))
    if meaning.pictures is None:
        found.unused = [f"{found.where}: no column names pictures of the folder (columns: {shown or 'none'})"]
    elif kind is None:
        found.question = f"{found.where}: no column holds a sentence, a label or boxes (columns: {shown})"
    else:
        found.entry |= _entry(found, group, meaning)
    return found


def _entry(found: Recognised, group: Sequence[TableFile], meaning: Meaning) -> dict[str, Any]:
    """The options of the reader; notes parts and reasons in the record."""
    table = group[0]
    found.name_files()
    entry: dict[str, Any] = {}
    if table.separator != ",":
        entry["separator"] = "tab" if table.separator == "\t" else table.separator
    if table.encoding != "utf-8":
        entry["encoding"] = table.encoding
        found.reasons["encoding"] = "the file is not UTF-8"
    assert meaning.pictures is not None
    entry |= {"images": meaning.pictures.folder} if meaning.pictures.folder != "images" else {}
    entry |= _column_options(found.kind, found.columns)
    if len(group) == 1 and meaning.split is not None:
        words = list(dict.fromkeys(str(value) for value in table.values(meaning.split)))
        named = {part: one["split"] for part, one in parts_of(words).items()}
        found.parts = {part: {"only": {meaning.split: word}} for part, word in named.items() if isinstance(word, str)}
        found.reasons["parts"] = f"the column {meaning.split} names the parts"
    if found.kind in ("statements", "pairs") and meaning.label is not None:
        entry |= _label_words(group, meaning.label)
    return entry


def _kind(meaning: Meaning) -> str | None:
    if meaning.text is not None:
        if meaning.pictures is not None and len(meaning.pictures.sources) > 1:
            return "pairs" if meaning.label or meaning.answers else None
        if meaning.answers is not None:
            return "vqa"
        if meaning.one_box:  # a class beside it is that of the box
            return "referring"
        return "captions" if meaning.label is None else "statements"
    if meaning.boxes is not None:
        return "boxes"
    return "labels" if meaning.label is not None else None


def _column_options(kind: str, columns: dict[str, Any]) -> dict[str, Any]:
    """The options that name columns, as far as they are not the reader's defaults."""
    label = columns.get("label") or (columns.get("answers") if kind == "pairs" else None)
    wanted: dict[str, Any] = {
        "image": columns["image"],
        "text": columns.get("text"),
        "answers": columns.get("answers") if kind == "vqa" else None,
        "label": label if kind in ("statements", "pairs", "labels") else None,
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


def _label_words(group: Sequence[TableFile], column: str) -> dict[str, Any]:
    """The order of label words, so that every part numbers them alike."""
    values = {value for table in group for value in table.values(column)}
    words = sorted(str(value) for value in values if isinstance(value, str) and not value.lstrip("-").isdigit())
    return {"labels": words} if words and len(words) == len(values) and len(words) <= 20 else {}
