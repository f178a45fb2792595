"""SNLI-VE: whether a picture entails a sentence, leaves it open or contradicts it, in its published layouts."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import read_json, read_lines, read_text
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.recognition.tables import TableFile
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id

LABELS = ("contradiction", "neutral", "entailment")
"""In the order that ALBEF's head numbers them."""
NO_LABEL = "-"
"""What SNLI writes where its annotators did not agree."""
UNSETTLED = "without an agreed label"
FIELDS = {
    "image": ("Flickr30K_ID", "Flickr30kID", "image"),
    "text": ("sentence2", "hypothesis", "sentence"),
    "label": ("gold_label", "label"),
    "key": ("pairID",),
    "kind": ("family", "kind"),
}
"""Names of one field in SNLI-VE's JSON lines, in e-SNLI-VE's CSV and in ALBEF's lists."""


class SNLIVE(Reader):
    """A picture, a hypothesis and one of three labels an example.

    SNLI-VE's JSON lines (``snli_ve_dev.jsonl``), e-SNLI-VE's CSV (``esnlive_dev.csv``) and ALBEF's lists
    (``ve_dev.json``) are told apart by their content. Pairs without an agreed label (``-``) are left out and counted in
    ``left_out``. The key is ``pairID``. Targets: ``label`` (0 contradiction, 1 neutral, 2 entailment), and ``kind``
    where the file names one.

    Args:
        root: data root.
        split: train, dev or test.
        file: annotation file under the root; None: the usual places.
        images: folder of Flickr30k's pictures; they are found in it and in its subfolders.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "SNLI-VE, Xie et al. 2019, arXiv:1901.06706; e-SNLI-VE, Do et al. 2020; Kayser et al. 2021"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    usual: ClassVar[tuple[str, ...]] = tuple(
        folder + name
        for name in ("snli_ve_{split}.jsonl", "esnlive_{split}.csv", "ve_{split}.json")
        for folder in ("snli_ve/", "data/", "")
    )

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "images",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file = file

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Tables of hypotheses whose labels are the three words."""
        tables = {folder.name(table.path): table.rows for table in folder.tables() if _is_entailment(table)}
        if not tables:
            return []
        first = next(iter(tables.values()))[0]
        columns = {role: _name(first, role) for role in ("image", "text", "label")}
        found = Recognised("statements", {"name": "snli-ve"}, list(tables), columns).name_files()
        return [folder.with_images(found, [_field(row, "image", "") for rows in tables.values() for row in rows])]

    def files(self) -> list[Path]:
        """One file a split."""
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def label_names(self) -> list[str]:
        """The three labels, in the order of their numbers."""
        return list(LABELS)

    def read(self) -> list[Example]:
        """Every pair with a label (or, in a file without labels, every pair)."""
        found: list[Example] = []
        self.left_out.clear()
        for file in self.files():
            for number, (where, row) in enumerate(_rows(file)):
                if str(_field(row, "label", "")).strip() == NO_LABEL:
                    self.left_out[UNSETTLED] += 1
                else:
                    found.append(_example(row, where, f"{file.stem}:{number}"))
        return found


def _rows(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, whichever layout it has, each with its place."""
    text = read_text(file)
    start = text.lstrip()[:1]
    if start == "[":
        for place, row in enumerate(read_json(file, list)):
            yield f"{file}[{place}]", row
    elif start == "{":
        yield from read_lines(file)
    elif start:
        yield from _table(file, text)


def _table(file: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    table = csv.DictReader(io.StringIO(text), strict=True)
    names = table.fieldnames or []
    if not set(FIELDS["text"]) & set(names) or not set(FIELDS["image"]) & set(names):
        raise DataError(
            "The table lacks a column.",
            where=str(file),
            got=", ".join(names)[:200],
            expected=f"{FIELDS['image'][1]}, {FIELDS['text'][1]}, {FIELDS['label'][0]}",
        )
    try:
        for row in table:
            where = f"{file}:{table.line_num}"
            if None in row or any(cell is None for cell in row.values()):
                raise DataError("The row does not fit the header.", where=where, expected=f"{len(names)} cells")
            yield where, row
    except csv.Error as error:
        raise DataError("The CSV is malformed.", where=f"{file}:{table.line_num}", got=str(error)) from None


def _example(row: dict[str, Any], where: str, place: str) -> Example:
    image, text = _field(row, "image", None), _field(row, "text", None)
    if image in (None, "") or not isinstance(text, str) or not text.strip():
        got = ", ".join(map(str, row))[:200] if isinstance(row, dict) else type(row).__name__
        expected = f"{FIELDS['image'][0]} and {FIELDS['text'][0]}, not empty"
        raise DataError("A pair lacks its picture or its hypothesis.", where=where, got=got, expected=expected)
    targets: dict[str, Any] = {}
    given = _field(row, "label", None)
    if given not in (None, ""):
        targets["label"] = _number(str(given).strip().lower(), where)
    kind = _field(row, "kind", None)
    if kind not in (None, ""):
        targets["kind"] = str(kind)
    return Example(str(_field(row, "key", place)), text.strip(), [image_id(str(image))], targets=targets)


def _is_entailment(table: TableFile) -> bool:
    """Whether the rows have the fields, and labels of which the first are among the three."""
    known = table.reader in ("json", "jsonl", "csv") and table.separator == "," and table.encoding == "utf-8"
    if not known or not table.rows or not all(_name(table.rows[0], role) for role in ("image", "text", "label")):
        return False
    return all(str(_field(row, "label", "")).strip().lower() in (*LABELS, NO_LABEL) for row in table.rows)


def _name(row: dict[str, Any], role: str) -> str:
    """The name under which a row has a field; empty where it lacks it."""
    return next((key for key in FIELDS[role] if key in row), "")


def _field(row: Any, name: str, otherwise: Any) -> Any:
    """A field under whichever of its names the row has."""
    if not isinstance(row, dict):
        return otherwise
    return next((row[key] for key in FIELDS[name] if key in row), otherwise)


def _number(label: str, where: str) -> int:
    if label not in LABELS:
        raise DataError("The label is none of the three.", where=where, got=label, expected=", ".join(LABELS))
    return LABELS.index(label)
