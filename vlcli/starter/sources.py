"""Asks every registered reader which data of a folder it can read."""

import re
from difflib import get_close_matches
from pathlib import PurePosixPath

from vlcli import registry
from vlcli.data import Folder, Reader
from vlcli.data.arrays import array_files
from vlcli.data.files import first_object
from vlcli.data.recognition.recognised import Recognised, part_of
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.images.boxes import image_id

HOW = {
    "LabelMe": "pip install labelme2coco, then labelme2coco FOLDER",
    "VIA": "Annotation > Export Annotations (COCO format)",
    "CVAT": "Export dataset > COCO 1.0",
    "Label Studio": "Export > COCO",
    "FiftyOne": "dataset.export(FOLDER, dataset_type=fiftyone.types.COCODetectionDataset)",
    "Roboflow": "Export Dataset > COCO",
}
"""The command or menu by which each tool writes COCO's format instead."""


def exports(folder: Folder) -> dict[str, list[str]]:
    """Claim and return the files of a folder that annotation tools wrote in formats of their own, by tool."""
    files: dict[str, list[str]] = {}
    for name in folder.files("*.json", "*.csv", "*.xml", "*.txt"):
        if tool := _tool_of(folder, name):
            files.setdefault(tool, []).append(name)
    folder.claim(name for names in files.values() for name in names)
    return files


def _tool_of(folder: Folder, name: str) -> str:
    last = name.rpartition("/")[2].lower()
    if last in ("_annotations.csv", "_annotations.txt", "_annotations.createml.json"):
        return "Roboflow"
    if last.endswith(".xml"):
        head = " ".join(folder.lines(name, 4))
        return "CVAT" if "<annotations>" in head and ("<version>" in head or "<meta>" in head) else ""
    table = folder.table(name) if last.endswith((".json", ".csv")) else None
    if table is None:
        return ""
    row = first_object(table.document) if isinstance(table.document, list) else table.document
    columns = set(table.columns) if table.document is None else set(row) if isinstance(row, dict) else set()
    inner = row if isinstance(row, dict) else {}
    first = next(iter(inner.values()), None)
    by_picture = isinstance(first, dict) and {"filename", "regions"} <= set(first)
    signs = {
        "LabelMe": {"shapes", "imagePath"} <= columns,
        "VIA": by_picture or {"_via_img_metadata", "region_shape_attributes"} & columns,
        "Label Studio": {"data", "annotations"} <= columns or {"annotator", "lead_time"} <= columns,
        "FiftyOne": "samples" in columns and "filepath" in first_object(inner.get("samples")),
    }
    return next((tool for tool, is_one in signs.items() if is_one), "")


_DATA = re.compile(
    r"\.(csv|tsv|txt|json|jsonl|ndjson|parquet|xml|xlsx|xls|ods|mat|tar|zip|p|pkl|pickle|npy|npz|h5|hdf5|token|lst|"
    r"yaml|yml|arrow|gz)"
)
"""Endings of files that may hold annotations."""
_ABOUT = re.compile(r"readme|licen[sc]e|requirements|changelog|citation", re.IGNORECASE)
_MOST_NAMED = 5


def ask_readers(folder: Folder, fallback: bool = False) -> tuple[list[Recognised], list[str]]:
    """Return the data sets of a folder, and what is left aside: "FILE: reason".

    Args:
        fallback: look for classes named by folders although a table is not understood.

    Raises:
        DataError: a table that annotates pictures is not understood, and nothing else is.
    """
    sources: list[Recognised] = []
    questions: list[str] = []
    readers, aside = _readers()
    foreign = exports(folder)
    aside += [f"{tool}: {_shown(names)} not read; its COCO export is: {HOW[tool]}" for tool, names in foreign.items()]
    of_folders: list[Recognised] = []
    for reader in sorted(readers, key=lambda reader: reader.recognise_order):
        for one in reader.recognise(folder):
            folder.claim(one.files)
            aside += one.unused
            if one.question:
                questions.append(one.question)
            elif one.kind:
                (of_folders if one.fallback else sources).append(one)
    if not sources:
        most = len(folder.pictures) / 2
        questions += [line for line, count in _unknown(folder).items() if most and count > most]
        sources = of_folders if fallback or not (questions or folder.unread) else []
    elif all(one.kind == "labels" for one in sources):  # Tiny ImageNet: classes of val in a list, of train as folders
        sources = [one for one in of_folders if part_of(PurePosixPath(one.entry["images"]).name) == "train"] + sources
    aside += [f"{name}: {reason}" for name, reason in folder.unread.items()]
    aside += [line for line in _unknown(folder) if line not in questions]
    if foreign and not sources:
        tool, names = next(iter(foreign.items()))
        raise DataError(
            f"The annotations are an export of {tool}, which no reader reads.",
            where=str(folder.root),
            got=_shown(names),
            expected="labelled boxes in COCO's format, or in that of Pascal VOC or YOLO",
            hint=f"export them as COCO ({HOW[tool]}), put the file beside the pictures, and call init again",
        )
    if questions and not sources:
        raise DataError(
            "It is not clear what the pictures' table says.",
            where=str(folder.root),
            got="; ".join(questions[:4]),
            hint="name the columns: --image COLUMN --text COLUMN --answer COLUMN --label COLUMN; or leave the table "
            "aside and take folders of pictures as classes: --task image-classification",
        )
    return sources, [*questions, *aside]


def _unknown(folder: Folder) -> dict[str, int]:
    """Return lines about files of data that no reader recognises, with their number; one line for many of an ending."""
    by_ending: dict[str, list[str]] = {}
    for name in folder.files():
        ending = PurePosixPath(name).suffix.lower()
        if _DATA.fullmatch(ending) and name not in folder.unread and not _ABOUT.match(PurePosixPath(name).name):
            by_ending.setdefault(ending, []).append(name)
    lines: dict[str, int] = {}
    for ending, names in by_ending.items():
        if len(names) > _MOST_NAMED:
            line = f"{len(names):,} files that end in {ending}, such as {names[0]}: no reader recognises them"
            lines[line] = len(names)
        else:
            lines |= {f"{name}: no reader recognises it": 1 for name in names}
    return lines


def _readers() -> tuple[list[type[Reader]], list[str]]:
    readers, broken = [], []
    for name in registry.names("datasets"):
        try:
            reader = registry.of(Reader).load(name)
        except ComponentError as error:
            broken.append(f"reader {name}: {error.what}")
        else:
            readers += [reader] if issubclass(reader, Reader) else []
    return readers, broken


def box_files(folder: Folder) -> list[str]:
    """Claim and return files of boxes alone: detections of a picture's regions."""
    files = []
    for name, rows in folder.documents():
        row = first_object(rows)
        vlcli_form = isinstance(row.get("boxes"), list) and isinstance(row.get("file_name"), str)
        if vlcli_form or {"image_id", "bbox", "score"} <= set(row):
            names = [image_id(str(row.get("file_name", row.get("image_id", "")))) for row in rows[:200]]
            if sum(one in folder.pictures.by_id for one in names) > len(names) / 4:
                files.append(name)
    folder.claim(files)
    return files


def check_columns(folder: Folder) -> None:
    """Check that the columns that the user names are in a table.

    Raises:
        UsageError: some are in none; the message names the nearest ones.
    """
    if not folder.columns:
        return
    names = [
        [*table.columns, *(table.document if isinstance(table.document, dict) else ())] for table in folder.tables()
    ]
    known = list(dict.fromkeys(name for some in names for name in some))
    absent = [column for column in folder.columns.values() if column not in known]
    if absent:
        close = [near[0] for name in absent if (near := get_close_matches(name, known, n=1, cutoff=0.5))]
        hint = f"did you mean {' and '.join(map(repr, close))}?" if close else ""
        got, expected = ", ".join(map(repr, absent)), ", ".join(map(repr, known[:40])) or "a table in the folder"
        raise UsageError("No table has such a column.", got=got, expected=expected, hint=hint)


def _shown(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1:,} more" if len(names) > 1 else "")


def nothing_found(folder: Folder, aside: list[str]) -> DataError:
    """Return the error for a folder from which nothing can be learnt."""
    return DataError(
        "Nothing in this folder says what its pictures show.",
        where=str(folder.root),
        got="; ".join([f"{len(folder.pictures):,} pictures", *aside[:6]]),
        expected="a table (CSV, TSV, JSON, JSON lines, Parquet) with a column of picture names and one of sentences, "
        "of labels, or questions and answers; or a folder of pictures for each class",
        hint="write e.g. captions.csv with the columns image,text, and call init again",
    )


def no_pictures(folder: Folder) -> DataError:
    """Return the error for a folder without pictures; it says how pictures come out of tables and archives."""
    root = folder.root
    arrays = [folder.name(file) for file in array_files(root)]
    tables = [name for name in folder.every if name.endswith((".parquet", ".arrow"))] or arrays
    archives = [name for name in folder.every if name.endswith((".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".rar"))]
    hint = "name the folder that holds them, or convert other formats first"
    if archives and not arrays:
        hint = f"unpack {_shown(archives)} here, and call init again"
    elif tables:
        out = f"{root.resolve().name}-unpacked"
        hint = f"where they lie inside these files: vlcli data unpack {root} --out {out}, then vlcli init {out}"
    return DataError(
        "The folder holds no pictures.",
        where=str(root),
        got=_shown(tables or archives) if tables or archives else f"{sum(1 for _ in root.iterdir())} files and folders",
        expected="files that end in .jpg, .png, .webp, .gif, .bmp, .tif or .ppm, also in subfolders",
        hint=hint,
    )
