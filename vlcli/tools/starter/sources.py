"""Data sets in a folder: what each holds, and the reader's entry that a recipe needs for it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcli.errors import DataError
from vlcli.tools.starter import documents
from vlcli.tools.starter.columns import PARTS, Meaning, meaning_of
from vlcli.tools.starter.pictures import Pictures
from vlcli.tools.starter.tables import TableFile

KINDS = {
    "vqa": "questions with answers",
    "pairs": "statements about two pictures, with labels",
    "statements": "sentences with labels",
    "captions": "captions",
    "referring": "expressions, each with a box",
    "labels": "pictures with classes",
    "boxes": "labelled boxes",
}
"""What a data set can hold."""
_WORD = re.compile(rf"(?<![A-Za-z])({'|'.join(sorted(PARTS, key=len, reverse=True))})(?![A-Za-z])")
_TRAIN, _HELD, _TEST = ("train", "training"), ("val", "valid", "validation", "dev", "minival"), ("test", "testing")


@dataclass
class Source:
    """One data set.

    Attributes:
        kind: one of :data:`KINDS`.
        entry: name and options of the reader that reads all of it.
        where: its file, for people.
        parts: options that choose each part (``train``, ``validation``, ``test``) where the data name their parts.
        reasons: why the options are what they are, by option.
        notes: what a person should know.
        missing: share of the rows whose picture is not there.
    """

    kind: str
    entry: dict[str, Any]
    where: str
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missing: float = 0.0


def find_sources(root: Path, tables: Sequence[TableFile], pictures: Pictures) -> tuple[list[Source], list[str]]:
    """The data sets of a folder, and why tables were passed over, a line each."""
    found, passed = [], []
    known, left = documents.known(root, tables, pictures)
    found += [Source(kind, entry, where, notes=notes) for kind, entry, where, notes in known]
    for group in _grouped(left):
        meaning = meaning_of(group[0], pictures)
        source = _source(root, group, meaning)
        if isinstance(source, str):
            passed.append(f"{_name(root, group)}: {source}")
        else:
            found.append(source)
    if not found:
        found += _class_folders(pictures)
    return found, passed


def _grouped(tables: Iterable[TableFile]) -> list[list[TableFile]]:
    """Tables that are parts of one data set: names that differ in a word for the part, with equal columns."""
    groups: dict[tuple[Any, ...], list[TableFile]] = {}
    for table in tables:
        key = _WORD.sub("{split}", table.path.name)
        columns = tuple(sorted(table.columns)) if key != table.path.name else id(table)
        groups.setdefault((table.path.parent, key, table.reader, columns), []).append(table)
    return list(groups.values())


def _name(root: Path, group: list[TableFile]) -> str:
    return ", ".join(table.path.relative_to(root).as_posix() for table in group)


def _source(root: Path, group: list[TableFile], meaning: Meaning) -> Source | str:
    """The data set in a group of tables; else why there is none, in words."""
    table, naming = group[0], meaning.pictures
    if naming is None:
        return f"no column names pictures of the folder (columns: {', '.join(table.columns[:12]) or 'none'})"
    kind = _kind(meaning, len(naming.sources))
    if kind is None:
        return f"no column holds a sentence, a label or boxes (columns: {', '.join(table.columns[:12])})"
    sources = list(naming.sources)
    entry: dict[str, Any] = {"name": table.reader, "file": table.path.relative_to(root).as_posix()}
    reasons: dict[str, str] = {}
    if table.separator != ",":
        entry["separator"] = "tab" if table.separator == "\t" else table.separator
    if table.encoding != "utf-8":
        entry["encoding"] = table.encoding
        reasons["encoding"] = "the file is not UTF-8"
    entry |= {"images": naming.folder} if naming.folder != "images" else {}
    entry |= _columns(kind, meaning, sources)
    made = Source(
        kind, entry, _name(root, group), reasons=reasons, notes=_notes(table, meaning), missing=1 - naming.share
    )
    _divide(made, group, meaning.split)
    if kind in ("statements", "pairs") and meaning.label is not None:
        _fix_labels(made, group, meaning.label)
    return made


def _kind(meaning: Meaning, pictures: int) -> str | None:
    if meaning.text is not None:
        if pictures > 1:
            return "pairs" if meaning.label or meaning.answers else None
        if meaning.answers is not None:
            return "vqa"
        if meaning.one_box:  # a class beside it is that of the box
            return "referring"
        return "captions" if meaning.label is None else "statements"
    if meaning.boxes is not None:
        return "boxes"
    return "labels" if meaning.label is not None else None


def _columns(kind: str, meaning: Meaning, sources: list[str]) -> dict[str, Any]:
    """The options that name columns, as far as they are not the reader's defaults."""
    label = meaning.label or (meaning.answers if kind == "pairs" else None)
    wanted: dict[str, Any] = {
        "image": sources[0] if len(sources) == 1 else sources,
        "text": meaning.text,
        "answers": meaning.answers if kind == "vqa" else None,
        "label": label if kind in ("statements", "pairs", "labels") else None,
        "box": meaning.boxes if kind == "referring" else None,
        "boxes": meaning.boxes if kind == "boxes" else None,
        "box_labels": meaning.box_labels if kind == "boxes" else None,
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


def _divide(source: Source, group: list[TableFile], column: str | None) -> None:
    """Parts that the data name: by file, or by a column."""
    if len(group) > 1:
        words = {found[1]: table for table in group if (found := _WORD.search(table.path.name))}
        source.entry["file"] = _WORD.sub("{split}", source.entry["file"])
        source.parts = {part: {"split": word} for part, word in _by_part(words).items()}
        source.reasons["parts"] = "the files are named after the parts"
    elif column is not None:
        named = dict.fromkeys(str(value) for value in group[0].values(column))
        source.parts = {part: {"only": {column: word}} for part, word in _by_part(named).items()}
        source.reasons["parts"] = f"the column {column} names the parts"


def _by_part(words: Iterable[str]) -> dict[str, str]:
    """Which word stands for training, validation and testing; nothing unless there are two parts or more."""
    found: dict[str, str] = {}
    for word in words:
        for part, known in (("train", _TRAIN), ("validation", _HELD), ("test", _TEST)):
            if word.lower() in known:
                found.setdefault(part, word)
    return found if "train" in found and len(found) > 1 else {}


def _fix_labels(source: Source, group: list[TableFile], column: str) -> None:
    """The order of label words, so that every part numbers them alike."""
    values = {value for table in group for value in table.values(column)}
    words = sorted(str(value) for value in values if isinstance(value, str) and not value.lstrip("-").isdigit())
    if words and len(words) == len(values) and len(words) <= 20:
        source.entry["labels"] = words


def _class_folders(pictures: Pictures) -> list[Source]:
    """Pictures in a folder for each class, where there is no table."""
    folders = [folder for folder in pictures.folders if folder != "."]
    base = pictures.folder
    names = {Path(folder).relative_to(base).parts[0] for folder in folders if folder != base}
    if len(names) < 2 or "." in pictures.folders or base in pictures.folders:
        return []
    if _by_part(names):
        return [_parted_folders(base, names)]
    entry = {"name": "folder", "images": base, "label": True}
    return [Source("labels", entry, f"{len(names)} folders of pictures in {base}")]


def _parted_folders(base: str, names: set[str]) -> Source:
    images = f"{base}/{{split}}" if base != "." else "{split}"
    made = Source("labels", {"name": "folder", "images": images, "label": True}, f"folders of pictures in {base}")
    made.parts = {part: {"split": word} for part, word in _by_part(sorted(names)).items()}
    made.reasons["parts"] = "the folders are named after the parts"
    return made


def nothing_found(root: Path, pictures: Pictures, passed: Sequence[str], unread: Sequence[str]) -> DataError:
    """The message for a folder from which nothing can be learnt."""
    got = f"{len(pictures):,} pictures"
    if passed or unread:
        got += "; " + "; ".join([*passed, *unread][:6])
    return DataError(
        "Nothing in this folder says what its pictures show.",
        where=str(root),
        got=got,
        expected="a table (CSV, TSV, JSON, JSON lines, Parquet) with a column of picture names and one of sentences, "
        "of labels, or questions and answers; or a folder of pictures for each class",
        hint="write e.g. captions.csv with the columns image,text, and call init again",
    )
