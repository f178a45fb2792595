"""Recognises data sets in tables of any columns."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vlcli.data.english import is_english
from vlcli.data.files import grouped, is_picture_file
from vlcli.data.recognition.columns import Meaning, is_hinted, meaning_of
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised, part_of, parts_by, parts_of, split_names
from vlcli.data.recognition.tables import TableFile
from vlcli.data.recognition.values import FEW, are_word_lists, as_number, columns_in, count_words, is_label_like
from vlcli.images.boxes import image_id
from vlcli.plain import as_list, comma_list

_YES = ("1", "1.0", "True", "true", "yes")


def recognise_tables(folder: Folder, reader: str) -> list[Recognised]:
    """Return the data sets in the tables of a reader: ``csv``, ``jsonl``, ``json``, ``parquet`` ..."""
    aside, tables = [], []
    for table in folder.tables():
        name, last = folder.name(table.path), table.path.name.lower()
        if table.reader != reader or not table.rows or folder.part_lists(name):
            continue
        if "submission" in last:
            aside.append(_unused([name], f"{name}: a submission, whose labels are no truth"))
        elif table.header and re.search(r"split|partition|fold", last):
            why = "a list of parts, which no reader reads: write a table with a column of the parts"
            aside.append(_unused([name], f"{name}: {why}"))
        else:
            tables.append(table)
    return aside + as_data_sets(folder, tables)


def _unused(files: list[str], line: str) -> Recognised:
    return Recognised("", {}, files, unused=[line])


def as_data_sets(folder: Folder, tables: Sequence[TableFile]) -> list[Recognised]:
    """Return the data sets in tables: those of the same columns are the parts of one data set."""
    said = [count_words(one.values(one.header[-1])) >= 3 if len(one.header) == 2 else None for one in tables]
    forms = ((*sorted(one.columns), one.each, one.separator, one.encoding) for one in tables)
    merged: list[list[TableFile]] = []
    for group in grouped(zip(zip(said, forms, strict=True), tables, strict=True)).values():
        home = next((other for other in merged if _is_one(folder, other, group) or _is_one(folder, group, other)), None)
        if home is None:
            merged.append(group)
        else:
            home[:] = [*home, *group] if len(home[0].columns) < len(group[0].columns) else [*group, *home]
    return [record for group in merged for record in _data_sets(folder, group)]


def _is_one(folder: Folder, first: Sequence[TableFile], more: Sequence[TableFile]) -> bool:
    """Return whether ``more``, tables with further columns, are other parts of a data set (TallyQA's test)."""
    few, many = first[0], more[0]
    if (few.reader, few.each, few.separator, few.encoding) != (many.reader, many.each, many.separator, many.encoding):
        return False
    if few.header or many.header or not set(few.columns) < set(many.columns):
        return False
    splits = split_names([folder.name(one.path) for one in (*first, *more)])[1]
    if not all(map(part_of, splits)) or len(set(splits)) < len(splits):
        return False
    # a label may be what test lacks
    one, other = (meaning_of(table, folder.pictures, folder.columns) for table in (few, many))
    return one.pictures is not None and not one.unclear and bool(_kind(one)) and one.columns == other.columns


def _data_sets(folder: Folder, group: Sequence[TableFile]) -> list[Recognised]:
    (record, *beside), *more = [_of_one_kind(folder, tables) for tables in _by_classes(folder, group)]
    for other, *rest in more:
        way = f"{{file: {other.entry['file']}}} in the recipe reads them instead" if other.kind else "not read"
        files = [name for one in (other, *rest) for name in one.files]
        beside.append(_unused(files, f"{other.where}: other classes of the same pictures; {way}"))
    return [record, *beside]


def _by_classes(folder: Folder, group: Sequence[TableFile]) -> list[Sequence[TableFile]]:
    """Divide lists of other classes for the same pictures (FGVC-Aircraft); the kind with most classes comes first."""
    kinds = grouped((split_names([folder.name(table.path)])[0], table) for table in group)
    if len(kinds) < 2 or len(group[0].header) != 2:
        return [group]
    of_kind = {
        name: [{str(row[column]) for table in tables for row in table.rows} for column in tables[0].header]
        for name, tables in kinds.items()
    }
    (pictures, classes), *others = of_kind.values()
    same = all(len(pictures & those) > len(those) / 2 for those, _ in others)
    differ = all(len(classes & these) < len(classes | these) / 2 for _, these in others)
    most_first = sorted(kinds, key=lambda name: -len(of_kind[name][1]))
    return [kinds[name] for name in most_first] if same and differ else [group]


def _of_one_kind(folder: Folder, group: Sequence[TableFile]) -> list[Recognised]:
    names = [folder.name(table.path) for table in group]
    splits = split_names(names)[1] if len(names) > 1 else []
    chosen = {word for one in parts_of(splits).values() for word in as_list(one["split"])}
    others = [name for name, split in zip(names, splits, strict=False) if chosen and split not in chosen]
    record = _data_set(folder, [table for table, name in zip(group, names, strict=True) if name not in others])
    if not others:
        return [record]
    repeat = all("trainval" in one.lower() for one in others)
    why = "they repeat rows of the parts" if repeat else f"the columns of {record.where}, and no part of their own"
    return [record, _unused(others, f"{comma_list(others, 4)}: {why}: not read")]


def _data_set(folder: Folder, group: Sequence[TableFile]) -> Recognised:
    """Return the data set in tables of the same columns: a question where only the column of pictures is understood."""
    table = group[0] if len(group) == 1 else replace(group[0], rows=[row for one in group for row in one.rows])
    record = Recognised("", {"name": table.reader}, [folder.name(one.path) for one in group])
    shown = ", ".join(map(repr, table.columns[:12])) or "none"
    named = columns_in(folder.columns.values(), table.columns)
    if lacking := [column for column in named if column not in table.columns]:
        record.unused = [f"{record.where}: it lacks the column {lacking[0]} (columns: {shown})"]
        return record
    meaning = meaning_of(table, folder.pictures, folder.columns)
    record.columns, record.has_sentences = meaning.columns, meaning.text is not None
    if meaning.pictures is None:
        record.unused = [f"{record.where}: no column names pictures of the folder (columns: {shown})"]
        record.question = _unnamed(folder, table, record.unused[0], record.has_sentences)
    elif kind := ("" if meaning.unclear else _kind(meaning)):
        record.kind = kind
        in_parts = _split_images(folder, record, group)
        record.entry |= _entry(record, table, meaning) | _class_names(folder, record, table, meaning) | in_parts
        record.notes += _notes(record.where, table, meaning, in_parts=bool(in_parts))
        if not record.parts:
            column = re.sub(r"\{([^{}:]+).*", r"\1", meaning.pictures.sources[0])  # none where a name begins otherwise
            folder.with_lists(record, map(str, table.values(column)))
    else:
        why = meaning.unclear or "no column holds sentences, labels that occur more than once, or boxes"
        if meaning.text is not None and len(meaning.pictures.sources) > 1 and not meaning.unclear:
            why = f"a sentence about two pictures ({' and '.join(meaning.pictures.sources)}) needs a column of labels"
        elif len(table.columns) == len(meaning.pictures.sources):
            why = "it lists pictures and says nothing of them; write one table with a column of their classes"
        line = f"{record.where}: {why} (columns: {shown})"
        if not meaning.unclear and _is_numbers(table):
            record.unused = [line]
        else:
            record.question = line
    return record


def _entry(record: Recognised, table: TableFile, meaning: Meaning) -> dict[str, Any]:
    """Return the reader's options; add parts and reasons to the record."""
    assert meaning.pictures is not None
    record.name_files()
    entry: dict[str, Any] = {}
    if table.separator != ",":
        entry["separator"] = "tab" if table.separator == "\t" else table.separator
    if table.header:
        why = f"the first {table.skip} lines are headings" if table.skip else "the first line is data"
        entry["header"], record.reasons["header"] = table.header, why
    each = table.each if isinstance(table.each, str) else list(table.each)
    entry |= {name: option for name, option in (("skip", table.skip), ("each", each)) if option}
    if table.encoding != "utf-8":
        entry["encoding"], record.reasons["encoding"] = table.encoding, "the file is not UTF-8"
    entry |= {"images": meaning.pictures.folder} if meaning.pictures.folder != "images" else {}
    entry |= _column_options(record.kind, record.columns)
    entry |= {"box_format": meaning.box_format} if meaning.box_format not in ("", "xyxy") else {}
    if "id" in table.columns and len(set(map(str, table.values("id")))) < len(table.rows):
        entry["id"] = ""  # they begin anew in each part, or are not there: rows are numbered
    entry |= {"several": meaning.several} if meaning.several not in ("", ";") else {}
    entry |= {"sentences": meaning.separator} if record.kind == "captions" and meaning.separator else {}
    if not record.parts and meaning.split is not None:
        words = list(map(str, table.values(meaning.split)))
        named = {part: one["split"] for part, one in parts_of(list(dict.fromkeys(words))).items()}
        named = named or parts_by(words, meaning.split)
        record.parts = {part: {"only": {meaning.split: word}} for part, word in named.items()}
        if record.parts and (rest := sorted({*words}.difference(*map(as_list, named.values())))):
            record.notes.append(f"rows whose {meaning.split} is {comma_list(rest, 4)} are in none of the parts")
        record.reasons["parts"] = f"the column {meaning.split} names the parts"
    if record.kind == "vqa" and not is_english(str(text) for text in table.values(str(meaning.text))[:2000]):
        entry["language"] = "other"
        record.notes.append("the questions are not English: answers are compared in lower case, by no rules of English")
    if record.kind in ("statements", "pairs") and meaning.label is not None:
        values = set(table.values(meaning.label))
        words = sorted(str(value) for value in values if isinstance(value, str) and not value.lstrip("-").isdigit())
        if words and len(words) == len(values) and len(words) <= 20:
            entry["labels"] = words  # so that every part numbers them alike
    return entry


def _class_names(folder: Folder, record: Recognised, table: TableFile, meaning: Meaning) -> dict[str, Any]:
    """Return the option ``labels`` of a list of class numbers, if a file has a line for each class."""
    numbers = [str(value) for value in table.values(meaning.label or "")] if table.header and meaning.label else []
    if not numbers or not all(number.isdecimal() for number in numbers):
        return {}
    least, most = min(map(int, numbers)), max(map(int, numbers))
    for name in folder.files("*class*.txt", "*categor*.txt", "*names*.txt", "*.names", "synset*.txt", "labels.txt"):
        lines = folder.lines(name)
        if name not in record.files and _are_names(lines) and most < len(lines) + (least > 0):
            record.files.append(name)
            return {"labels": name}
    return {}


def _are_names(lines: Sequence[str]) -> bool:
    # names of pictures are no classes, nor are lists with a count before them (DeepFashion)
    counted = bool(lines) and lines[0].strip() in (str(len(lines) - 1), str(len(lines) - 2))
    return not counted and not any(is_picture_file(word) for line in lines[:100] for word in line.split()[:1])


def _split_images(folder: Folder, record: Recognised, group: Sequence[TableFile]) -> dict[str, Any]:
    """Return the options for tables whose pictures lie in folders of the parts, or beside, and have the same names."""
    column = record.columns["image"]
    if len(group) == 1 or not isinstance(column, str) or column not in group[0].columns:
        return {}
    named = {table.path: [str(value) for value in table.values(column)] for table in group}
    if not any(len(folder.pictures.by_id.get(image_id(n), ())) > 1 for names in named.values() for n in names[:200]):
        return {}
    splits = zip(named.values(), split_names(record.files)[1], strict=True)
    patterns = {folder.pictures.place_of(names, split) for names, split in splits}
    if len(patterns) > 1 or "" in patterns:
        beside = (folder.name(path.parent / name) for path, names in named.items() for name in names)
        return {"beside": True, "images": "."} if folder.pictures.paths.issuperset(beside) else {}
    start, _, ending = patterns.pop().partition("*")
    return {"images": ".", "image": f"{start}{{{column}}}{ending}"}


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
    """Return the options that name columns, without the reader's defaults."""
    options: dict[str, Any] = {"image": columns["image"], "text": columns.get("text")}
    if kind == "vqa" and "choices" not in columns:
        options["answers"] = columns.get("answers")
    elif kind in ("statements", "pairs", "labels", "multilabel"):
        options["label"] = columns.get("label") or (columns.get("answers") if kind == "pairs" else None)
    elif kind == "boxes":
        options |= {"boxes": columns.get("boxes"), "box_labels": columns.get("box_labels")}
    options = {key: column for key, column in options.items() if column not in (None, key)}
    if kind == "referring":
        options["box"] = columns["boxes"]
    elif kind == "vqa" and "choices" in columns:
        options |= {"choices": columns["choices"], "correct": columns["answers"]}
    return options


def _notes(where: str, table: TableFile, meaning: Meaning, *, in_parts: bool) -> list[str]:
    assert meaning.pictures is not None
    unused = ", ".join(map(str, meaning.unused[:12]))
    notes = [f"columns of {where} that are not used: {unused}"] if unused else []
    cells = {name: table.values(name) for name in meaning.unused}
    classes = [name for name, column in cells.items() if are_word_lists(column) and is_hinted("tags", name)]
    classes += [name for name, column in cells.items() if meaning.label is None and _are_words(column)][:5]
    if len(classes) > 1:
        notes.append(f"{comma_list(classes, 6)} hold classes of the pictures: --label {classes[0]} learns one instead")
    elif classes:
        notes.append(f"{classes[0]} holds classes of the pictures: --label {classes[0]} learns them instead")
    if meaning.pictures.also and not in_parts:
        folder, also = meaning.pictures.folder, ", ".join(meaning.pictures.also)
        notes.append(f"pictures of the same names are in {also}: those in {folder} are read (images: FOLDER)")
    if len(meaning.labels) > 1 and all(sum(str(row.get(n)) in _YES for n in meaning.labels) == 1 for row in table.rows):
        notes.append("each row has one of the classes: a column with its name (--label) makes it image-classification")
    plain = [value for value in table.values(meaning.answers or "") if isinstance(value, str)]
    scored, several = sum("_" in answer for answer in plain), sum("," in answer for answer in plain)
    notes += [f"{scored:,} answers have underscores, which count as spaces"] if scored else []
    notes += [f"{several:,} answers are lists with commas; a whole list counts as one answer"] if several else []
    return notes


def _are_words(values: Sequence[Any]) -> bool:
    return is_label_like(values) and all(isinstance(value, str) and as_number(value) is None for value in values)


def _unnamed(folder: Folder, table: TableFile, why: str, has_sentences: bool) -> str:
    """Return the question about a table without pictures; empty where it need not name any."""
    named = folder.columns.get("image")
    values = {name: table.values(name) for name in ([named] if named else table.columns)}
    like = {name: sum(map(is_picture_file, map(str, column))) for name, column in values.items()}
    column = max(like, key=lambda name: like[name], default="")
    if column and (named or like[column] > len(table.rows) / 2):
        value = ascii(str(values[column][0])) if values[column] else "nothing"
        what = f"{folder.name(table.path)}: the column {column} names pictures such as {value}, and fewer than half"
        return f"{what} of them are in the folder, which has {min(folder.pictures.paths, default='')!a}"
    if has_sentences and (key := _shared_key(folder, table)):
        return f"{why[:-1]}; {key}: write one table that joins them)"
    return why if sum(bool(one.rows) for one in folder.tables()) == 1 and not _is_numbers(table) else ""


def _shared_key(folder: Folder, table: TableFile) -> str:
    for other in folder.tables():
        same = set(table.columns) & set(other.columns)
        for name in same if len(same) < len(table.columns) else ():
            keys, others = (set(map(str, one.values(name))) for one in (table, other))
            if FEW <= len(keys) == len(table.rows) and len(keys & others) > len(keys) / 2:
                return f"its column {name} holds the keys of {folder.name(other.path)}"
    return ""


def _is_numbers(table: TableFile) -> bool:
    # such as results or measurements
    named = any(is_hinted("picture", name) for name in table.columns)
    return not named and all(as_number(value) is not None for name in table.columns for value in table.values(name))
