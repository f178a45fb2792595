"""Statements on pictures, as published: NLVR and NLVR2 (also LXMERT's list), and SNLI-VE in its layouts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Folder, Miniature, Recognised
from vlcli.data.files import read_text, value
from vlcli.data.readers.coco import BoxesBeside
from vlcli.data.readers.split_file import SplitFileReader, json_rows
from vlcli.data.recognition.lists import cell_lines, fitting_rows
from vlcli.data.recognition.tables import TableFile
from vlcli.errors import DataError
from vlcli.images.boxes import image_id

_TRUTHS = {"true": 1, "1": 1, "false": 0, "0": 0}


class NLVR2(BoxesBeside):
    """Statements that are true or false of two pictures.

    The key is the published identifier (``dev-850-0-0``); the pictures are its stem with ``-img0`` and ``-img1``.
    Targets: ``label`` (1 true), and ``kind`` where the file names one.

    Args:
        split: train, dev, test1 or test2.
        images: folder of the pictures; they are found in it and in its subfolders.
        boxes: COCO instances file, for regions at given boxes; None: ``nlvr2/instances_{split}.json`` if it exists.
    """

    paper: ClassVar[str] = "Suhr et al. 2019, A Corpus for Reasoning about Natural Language Grounded in Photographs"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test1", "test2")
    usual_boxes: ClassVar[str] = "nlvr2/instances_{split}.json"
    usual: ClassVar[tuple[str, ...]] = tuple(f"{home}{{split}}.json" for home in ("nlvr2/", "nlvr2/data/", "data/", ""))

    def __init__(self, root: Path, *, images: str = "nlvr2/images", **options: Any) -> None:
        super().__init__(root, images=images, **options)

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        tables = [one for one in folder.tables("*.json", "*.jsonl") if {"identifier", "label"} <= set(one.columns)]
        tables = [table for table in tables if {"synset", "left_url", "img0"} & set(table.columns)]
        if not tables:
            return []
        text = "sentence" if "sentence" in tables[0].columns else "sent"
        columns = {"image": ["{identifier}-img0", "{identifier}-img1"], "text": text, "label": "label"}
        data = Recognised("pairs", {"name": "nlvr2"}, [folder.name(table.path) for table in tables], columns)
        data.name_files().entry["images"] = "images"
        return [folder.with_images(data, [name for table in tables for row in table.rows for name in _images(row)])]

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        for n in miniature.numbers(f"nlvr2-{split}"):
            for i in range(2):
                miniature.picture(self.image_folder / f"{split}-{n}-0-img{i}.png")
                said = {"sentence": miniature.sentence(n, i), "label": str(i == n % 2), "synset": "x"}
                yield {"identifier": f"{split}-{n}-0-{i}", **said}

    def read_file(self, file: Path) -> Iterator[Example]:
        for where, row in json_rows(file):
            identifier = value(row, "identifier", str, where)
            if "-" not in identifier:
                expected = "such as dev-850-0-0"
                raise DataError("The identifier is not NLVR2's.", where=where, got=identifier, expected=expected)
            text = value(row, "sentence" if "sentence" in row else "sent", str, where).strip()
            yield Example(identifier, text, _images(row), targets=_targets(row, where))


class NLVR(SplitFileReader):
    """Statements that are true or false of a drawing of three boxes.

    The folder has each drawing six times, once for each order of its boxes. The key is split and published identifier
    (``dev-850-0``). Targets: ``label`` (1 true).

    Args:
        split: train, dev or test.
        order: order of the boxes in the drawings, 0 to 5.
    """

    paper: ClassVar[str] = "Suhr et al. 2017, A Corpus of Natural Language for Visual Reasoning"
    splits: ClassVar[tuple[str, ...]] = ("train", "dev", "test")
    usual: ClassVar[tuple[str, ...]] = tuple(f"{home}{{split}}/{{split}}.json" for home in ("nlvr/", "", "nlvr/nlvr/"))

    def __init__(self, root: Path, *, images: str = ".", order: int = 0, **options: Any) -> None:
        super().__init__(root, images=images, **options)
        self.order = order

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        fields = {"identifier", "sentence", "label", "structured_rep"}
        tables = [table for table in folder.tables("*.json") if fields <= set(table.columns)]
        if not tables:
            return []
        columns = {"image": "{split}-{identifier}-0", "text": "sentence", "label": "label"}
        record = Recognised("statements", {"name": "nlvr"}, [folder.name(table.path) for table in tables], columns)
        names = [_drawing(table.path.stem, row, 0) for table in tables for row in table.rows]
        return [folder.with_images(record.name_files(), names)]

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        for n in miniature.numbers(f"nlvr-{split}"):
            row = {"identifier": f"{n}-0", "sentence": miniature.sentence(n), "label": str(n % 2 == 0).lower()}
            miniature.picture(self.image_folder / f"{_drawing(split, row, self.order)}.png")
            yield row

    def stream(self) -> Iterator[Example]:
        for split, file in zip(self.split_names, self.files(), strict=True):
            for where, row in json_rows(file):
                identifier, text = value(row, "identifier", str, where), value(row, "sentence", str, where).strip()
                image = _drawing(split, row, self.order)
                yield Example(f"{split}-{identifier}", text, [image], targets=_targets(row, where))


def _drawing(split: str, row: dict[str, Any], order: int) -> str:
    return f"{split}-{row.get('identifier')}-{order}"


def _targets(row: dict[str, Any], where: str) -> dict[str, Any]:
    kind = {"kind": str(row["kind"])} if "kind" in row else {}
    if "label" not in row:
        return kind
    if (label := str(row["label"]).lower()) not in _TRUTHS:
        got, expected = repr(row["label"]), '"True" or "False"'
        raise DataError("The label is neither true nor false.", where=where, got=got, expected=expected)
    return {"label": _TRUTHS[label], **kind}


def _images(row: dict[str, Any]) -> list[str]:
    stem = str(row.get("identifier")).rpartition("-")[0]
    return [str(row.get(f"img{side}", f"{stem}-img{side}")) for side in (0, 1)]


# In the order of ALBEF's head
LABELS = ("contradiction", "neutral", "entailment")
_NO_LABEL = "-"  # SNLI's label of a pair whose annotators did not agree
UNSETTLED = "without an agreed label"
# Names of a field in SNLI-VE's JSON lines, e-SNLI-VE's CSV and ALBEF's lists, by role
FIELDS = {
    "image": ("Flickr30K_ID", "Flickr30kID", "image"),
    "text": ("sentence2", "hypothesis", "sentence"),
    "label": ("gold_label", "label"),
    "key": ("pairID",),
    "kind": ("family", "kind"),
}


class SNLIVE(SplitFileReader):
    """Pictures with hypotheses, each with one of three labels.

    Reads SNLI-VE's JSON lines (``snli_ve_dev.jsonl``), e-SNLI-VE's CSV (``esnlive_dev.csv``) or ALBEF's lists
    (``ve_dev.json``). Pairs without an agreed label (``-``) are left out and counted. The key is ``pairID``. Targets:
    ``label`` (0 contradiction, 1 neutral, 2 entailment), and ``kind`` where the file names one.

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

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        for n in miniature.pictures(f"flickr30k-{'val' if split == 'dev' else split}", self.image_folder):
            for i, label in enumerate((*LABELS, _NO_LABEL)):
                pair = {"Flickr30K_ID": str(n), "pairID": f"{n}.jpg#0r{i}", "gold_label": label}
                yield {**pair, "sentence2": miniature.sentence(n, i)}

    def read_file(self, file: Path) -> Iterator[Example]:
        text = read_text(file)
        rows = json_rows(file) if text.lstrip()[:1] in ("[", "{", "") else _table(file, text)
        for number, (where, row) in enumerate(rows):
            if str(_field(row, "label")).strip() == _NO_LABEL:
                self.left_out[UNSETTLED] += 1
            else:
                yield _example(row, where, f"{file.stem}:{number}")


def _table(file: Path, text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    lines = cell_lines(text, ",", 0, str(file))
    _, names = next(lines, (1, []))
    if not set(FIELDS["text"]) & set(names) or not set(FIELDS["image"]) & set(names):
        expected = f"{FIELDS['image'][1]}, {FIELDS['text'][1]}, {FIELDS['label'][0]}"
        raise DataError("The table lacks a column.", where=str(file), got=", ".join(names)[:200], expected=expected)
    yield from fitting_rows(lines, names, str(file))


def _example(row: Any, where: str, key: str) -> Example:
    image, text = _field(row, "image"), _field(row, "text")
    if image in (None, "") or not isinstance(text, str) or not text.strip():
        got = ", ".join(map(str, row))[:200] if isinstance(row, dict) else type(row).__name__
        expected = f"{FIELDS['image'][0]} and {FIELDS['text'][0]}, not empty"
        raise DataError("A pair lacks its picture or its hypothesis.", where=where, got=got, expected=expected)
    targets: dict[str, Any] = {}
    if (label := _field(row, "label")) not in (None, ""):
        if (name := str(label).strip().lower()) not in LABELS:
            raise DataError("The label is none of the three.", where=where, got=name, expected=", ".join(LABELS))
        targets["label"] = LABELS.index(name)
    if (kind := _field(row, "kind")) not in (None, ""):
        targets["kind"] = str(kind)
    return Example(str(_field(row, "key", key)), text.strip(), [image_id(str(image))], targets=targets)


def _is_entailment(table: TableFile) -> bool:
    known = table.reader in ("json", "jsonl", "csv") and table.separator == "," and table.encoding == "utf-8"
    needed = [set(FIELDS[role]) for role in ("image", "text", "label")]
    has_fields = known and table.rows and all(names & table.rows[0].keys() for names in needed)
    labels = {str(_field(row, "label", "")).strip().lower() for row in table.rows}
    return bool(has_fields) and labels <= {*LABELS, _NO_LABEL}


def _field(row: Any, role: str, default: Any = None) -> Any:
    return next((row[key] for key in FIELDS[role] if key in row), default) if isinstance(row, dict) else default
