"""Writes small tables and folders of pictures for rehearsals, whatever columns a recipe names."""

from typing import Any

from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.readers.cells import fields_of, filled, is_template


def small_table(reader: Any, miniature: Miniature) -> None:
    """Write the tables of a reader of JSON or JSON lines, with a question, an answer and a class in every row."""
    for split, file in zip(reader.split_names, reader.first_file(reader.file, reader.usual), strict=True):
        rows = [_row(reader, miniature, split, number) for number in miniature.numbers(str(file), 4 * PICTURES)]
        miniature.write(file, iter(rows) if reader.format == "jsonl" else rows)


def _row(reader: Any, miniature: Miniature, split: str, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {reader.columns["text"]: miniature.question(number), reader.columns["label"]: number % 2}
    row[reader.columns["answers"]] = miniature.answer(number)
    for source in reader.sources:
        fields = dict.fromkeys(fields_of(source), number)
        name = filled(source, fields | {"split": split}, "") if is_template(source) else f"{number}.png"
        miniature.picture(reader.image_folder / name)
        row |= {field: number for field in fields if field != "split"} if is_template(source) else {source: name}
    return row


def small_folder(reader: Any, miniature: Miniature) -> None:
    """Write pictures into the folders of a reader, in two classes where it numbers subfolders."""
    for folder in reader.folders:
        for kind in ("one", "two") if reader.with_label else ("",):
            miniature.pictures(f"{folder}/{kind}", folder / kind, count=6 * PICTURES)
