"""SNLI-VE: whether a picture entails a sentence, leaves it open or contradicts it, in its published layouts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Folder, Miniature, Recognised
from vlcli.data.files import read_lines, read_text
from vlcli.data.readers.split_file import SplitFileReader, list_rows
from vlcli.data.recognition.lists import cell_lines
from vlcli.data.recognition.tables import TableFile
from vlcli.errors import DataError
from vlcli.images.boxes import image_id

LABELS = ("contradiction", "neutral", "entailment")
"""In the order that ALBEF's head numbers them."""
NO_LABEL = "-"
"""SNLI's label of a pair whose annotators did not agree."""
UNSETTLED = "without an agreed label"
FIELDS = {
    "image": ("Flickr30K_ID", "Flickr30kID", "image"),
    "text": ("sentence2", "hypothesis", "sentence"),
    "label": ("gold_label", "label"),
    "key": ("pairID",),
    "kind": ("family", "kind"),
}
"""Names of one field in SNLI-VE's JSON lines, in e-SNLI-VE's CSV and in ALBEF's lists."""


class SNLIVE(SplitFileReader):
    """Pictures with hypotheses, each with one of three labels.

    SNLI-VE's JSON lines (``snli_ve_dev.jsonl``), e-SNLI-VE's CSV (``esnlive_dev.csv``) and ALBEF's lists
    (``ve_dev.json``) are told apart by their content. Pairs without an agreed label (``-``) are left out and counted in
    ``left_out``. The key is ``pairID``. Targets: ``label`` (0 contradiction, 1 neutral, 2 entailment), and ``kind``
    where the file names one.

    Args:
        split: train, dev or test.
        images: folder of Flickr30k's pictures; they are found in it and in its subfolders.
    """

    paper: ClassVar[str] = "SNLI-VE, Xie et al. 2019, arXiv:1901.06706; e-SNLI-VE, Do et al. 2020; Kayser et al. 2021"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    usual: ClassVar[tuple[str, ...]] = tuple(
        folder + name
        for name in ("snli_ve_{split}.jsonl", "esnlive_{split}.csv", "ve_{split}.json")
        for folder in ("snli_ve/", "data/", "")
    )

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        tables = {folder.name(table.path): table.rows for table in folder.tables() if _is_entailment(table)}
        if not tables:
            return []
        first = next(iter(tables.values()))[0]
        columns = {role: next(name for name in FIELDS[role] if name in first) for role in ("image", "text", "label")}
        data = Recognised("statements", {"name": "snli-ve"}, list(tables), columns).name_files()
        return [folder.with_images(data, [_field(row, "image", "") for rows in tables.values() for row in rows])]

    def label_names(self) -> list[str]:
        return list(LABELS)

    def read(self) -> list[Example]:
        self.left_out.clear()
        return super().read()

    def write_miniature(self, miniature: Miniature) -> None:
        for split, file in zip(self.split_names, self.files(), strict=True):
            rows = []
            for n in miniature.pictures(f"flickr30k-{'val' if split == 'dev' else split}", self.image_folder):
                for i, label in enumerate((*LABELS, NO_LABEL)):
                    pair = {"Flickr30K_ID": str(n), "pairID": f"{n}.jpg#0r{i}", "gold_label": label}
                    rows.append({**pair, "sentence2": miniature.sentence(n, i)})
            miniature.write(file, iter(rows))

    def read_file(self, file: Path) -> Iterator[Example]:
        text = read_text(file)
        start = text.lstrip()[:1]
        if not start:
            return
        rows = list_rows(file) if start == "[" else read_lines(file) if start == "{" else _table(file, text)
        for number, (where, row) in enumerate(rows):
            if str(_field(row, "label")).strip() == NO_LABEL:
                self.left_out[UNSETTLED] += 1
            else:
                yield _example(row, where, f"{file.stem}:{number}")


def _table(file: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = cell_lines(text, ",", 0, str(file))
    _, names = next(lines, (1, []))
    if not set(FIELDS["text"]) & set(names) or not set(FIELDS["image"]) & set(names):
        expected = f"{FIELDS['image'][1]}, {FIELDS['text'][1]}, {FIELDS['label'][0]}"
        raise DataError("The table lacks a column.", where=str(file), got=", ".join(names)[:200], expected=expected)
    for number, cells in lines:
        where = f"{file}:{number}"
        if len(cells) != len(names):
            raise DataError("The row does not fit the header.", where=where, expected=f"{len(names)} cells")
        yield where, dict(zip(names, cells, strict=True))


def _example(row: Any, where: str, key: str) -> Example:
    image, text = _field(row, "image"), _field(row, "text")
    if image in (None, "") or not isinstance(text, str) or not text.strip():
        got = ", ".join(map(str, row))[:200] if isinstance(row, dict) else type(row).__name__
        expected = f"{FIELDS['image'][0]} and {FIELDS['text'][0]}, not empty"
        raise DataError("A pair lacks its picture or its hypothesis.", where=where, got=got, expected=expected)
    targets: dict[str, Any] = {}
    if (label := _field(row, "label")) not in (None, ""):
        name = str(label).strip().lower()
        if name not in LABELS:
            expected = ", ".join(LABELS)
            raise DataError("The label is none of the three.", where=where, got=name, expected=expected)
        targets["label"] = LABELS.index(name)
    if (kind := _field(row, "kind")) not in (None, ""):
        targets["kind"] = str(kind)
    return Example(str(_field(row, "key", key)), text.strip(), [image_id(str(image))], targets=targets)


def _is_entailment(table: TableFile) -> bool:
    known = table.reader in ("json", "jsonl", "csv") and table.separator == "," and table.encoding == "utf-8"
    needed = [FIELDS[role] for role in ("image", "text", "label")]
    if not known or not table.rows or not all(set(names) & set(table.rows[0]) for names in needed):
        return False
    return all(str(_field(row, "label", "")).strip().lower() in (*LABELS, NO_LABEL) for row in table.rows)


def _field(row: Any, role: str, default: Any = None) -> Any:
    return next((row[key] for key in FIELDS[role] if key in row), default) if isinstance(row, dict) else default
