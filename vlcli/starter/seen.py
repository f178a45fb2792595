"""Asks every reader which data of a folder it can read; records weights, and rows as a reader understands them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from vlcli import registry
from vlcli.checkpoints.identify import read_tensors
from vlcli.data import Example, Folder, Reader, Recognised
from vlcli.data.arrays import array_files
from vlcli.data.files import first_object, grouped
from vlcli.data.recognition.columns import is_hinted
from vlcli.data.recognition.pictures import Pictures
from vlcli.data.recognition.recognised import part_in, part_of
from vlcli.data.recognition.values import columns_in
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.files import walk
from vlcli.images.boxes import image_id
from vlcli.plain import comma_list

_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")
# Networks by the blocks of their third layer, with a third convolution in each block and without.
_DEEP = {6: "resnet50", 23: "resnet101", 36: "resnet152"}
_SHALLOW = {2: "resnet18", 6: "resnet34"}


@dataclass(frozen=True)
class Weights:
    """File relative to the data root, ``arch`` of the extractor ``backbone``, and layout (torchvision or caffe)."""

    file: str
    arch: str
    layout: str


def find_weights(root: Path) -> tuple[Weights | None, list[str]]:
    """Return the first ResNet under a folder, and for each other file of weights why it is not used."""
    weights: Weights | None = None
    aside: list[str] = []
    folders = [(path, names) for path, names in walk(root) if "stage.json" not in names and path.name[:5] != "step-"]
    for path in (folder / name for folder, names in folders for name in names if name.endswith(_ENDINGS)):
        file, arch = path.relative_to(root).as_posix(), _arch(path)
        if arch is None:
            aside.append(f"{file}: its weights are not those of a ResNet, by its tensors or its name")
        elif weights is not None:
            aside.append(f"{file}: the weights of {weights.file} are used")
        else:
            caffe = re.search(r"caffe|msra|detectron", path.name.lower()) is not None
            weights = Weights(file, arch, "caffe" if caffe else "torchvision")
    return weights, aside


def _arch(path: Path) -> str | None:
    if path.suffix != ".safetensors":  # other files have no header of names, so their own names must tell
        depth = re.search(r"resnet-?(18|34|50|101|152)", path.name.lower())
        return f"resnet{depth[1]}" if depth else None
    try:
        names = read_tensors(path)
    except DataError:
        return None
    blocks = {hit[1] for name in names if (hit := re.search(r"(?:^|\.)layer3\.(\d+)\.conv1\.", name))}
    deep = any(re.search(r"(?:^|\.)layer3\.0\.conv3\.", name) for name in names)
    return (_DEEP if deep else _SHALLOW).get(len(blocks))


@dataclass
class Seen:
    """Content of a folder."""

    root: Path
    pictures: Pictures
    sources: list[Recognised]
    aside: list[str]  # lines on unused files: "FILE: reason"
    boxes: list[str]  # files of boxes
    weights: Weights | None
    unreadable: dict[Path, str]  # reason by picture
    checked: str  # a line where not every picture was decoded

    @cached_property
    def paths(self) -> set[Path]:
        return {path.absolute() for paths in self.pictures.by_id.values() for path in paths}

    def name(self, path: Path) -> str:
        path, root = path.absolute(), self.root.absolute()
        return path.relative_to(root).as_posix() if path.is_relative_to(root) else str(path)


class Row(NamedTuple):
    """One example in words: pictures, sentence, and answer, label or boxes; empty where it has none."""

    files: list[Path]
    text: str
    target: str


def ids_of(readers: Sequence[Reader]) -> str:
    """Return the form of image ids (``name``, ``path``, ``file``) that tells all pictures apart.

    Raises:
        DataError: several files fit a name, or two names find one file.
    """
    paths: dict[str, Path] = {}
    for reader in readers:
        for name, path in reader.image_files().items():
            if reader.ids != "name" or paths.setdefault(name, path) != path:
                return reader.ids if reader.ids != "name" else "path"
    return "name"


def rows_of(reader: Reader, examples: Sequence[Example], count: int) -> list[Row]:
    """Return ``count`` examples, spread over all."""
    chosen = examples[:: max(1, len(examples) // count)][:count]
    names, boxes = reader.label_names(), reader.boxes() if any(not one.targets for one in chosen) else {}
    kinds = reader.class_names() if boxes else []
    rows = []
    for example in chosen:
        target = _target(example.targets, names)
        if not target and example.images and (box := boxes.get(example.images[0])) is not None:
            classes = [] if box.classes is None else [kinds[int(one)] for one in box.classes if int(one) < len(kinds)]
            target = f"{len(box)} boxes: {', '.join(classes[:5])}".removesuffix(": ")
        rows.append(Row([reader.locate(name) for name in example.images], example.text or "", target))
    return rows


def _target(targets: dict[str, Any], names: Sequence[str]) -> str:
    if scores := targets.get("answers"):
        return " / ".join(sorted(scores, key=lambda answer: -scores[answer])[:3])
    if isinstance(label := targets.get("label"), int):
        return names[label] if 0 <= label < len(names) else str(label)
    if isinstance(labels := targets.get("labels"), list):
        return ", ".join(labels) or "none"
    box = targets.get("pixel_box", targets.get("box"))
    return "" if box is None else f"box {[round(float(side), 2) for side in box]}"


# The command or menu by which each tool writes COCO's format instead.
_HOW = {
    "LabelMe": "pip install labelme2coco, then labelme2coco FOLDER",
    "VIA": "Annotation > Export Annotations (COCO format)",
    "CVAT": "Export dataset > COCO 1.0",
    "Label Studio": "Export > COCO; of sentences or classes, Export > JSON-MIN",
    "FiftyOne": "dataset.export(FOLDER, dataset_type=fiftyone.types.COCODetectionDataset)",
    "Roboflow": "Export Dataset > COCO",
    "Create ML": "import it into Roboflow, then Export Dataset > COCO",
    "Supervisely": "the app Export to COCO",
    "Labelbox": "pip install labelbox, then its COCO converter; of classes, a table with a column of them",
    "Argilla": "of classes, dataset.records(with_responses=True).to_list(flatten=True), written as JSON",
}


def exports(folder: Folder) -> dict[str, list[str]]:
    """Claim and return files in formats of annotation tools that no reader reads, by tool."""
    tools = ((_tool_of(folder, name), name) for name in folder.files("*.json", "*.ndjson", "*.csv", "*.xml", "*.txt"))
    files = grouped((tool, name) for tool, name in tools if tool)
    folder.claim(chain(*files.values()))
    return files


def _tool_of(folder: Folder, name: str) -> str:
    last = name.rpartition("/")[2].lower()
    if last in ("_annotations.txt", "_annotations.createml.json"):
        return "Roboflow"
    if last.endswith(".xml"):
        head = " ".join(folder.lines(name, 4))
        return "CVAT" if "<annotations>" in head and ("<version>" in head or "<meta>" in head) else ""
    table = folder.table(name) if last.endswith((".json", ".ndjson", ".csv")) else None
    if table is None:
        return ""
    row = table.document if isinstance(table.document, dict) else first_object(table.document)
    columns = set(table.columns if table.document is None else row)
    first = next(iter(row.values()), None)
    drawn = any(first_object(cell) for row in table.rows[:50] for cell in row.values())  # shapes, not words
    by_picture = isinstance(first, dict) and {"filename", "regions"} <= set(first)
    signs = {
        "LabelMe": {"shapes", "imagePath"} <= columns,
        "VIA": by_picture or {"_via_img_metadata", "region_shape_attributes"} & columns,
        "Label Studio": {"data", "annotations"} <= columns or (drawn and {"annotator", "lead_time"} <= columns),
        "FiftyOne": "samples" in columns and "filepath" in first_object(row.get("samples")),
        "Create ML": "coordinates" in first_object(row.get("annotations")),
        "Supervisely": {"objects", "size", "tags"} <= columns,
        "Labelbox": {"data_row", "projects"} <= columns,
        "Argilla": {"fields", "responses", "status"} <= columns,
    }
    return next((tool for tool, is_one in signs.items() if is_one), "")


# Endings of files that may hold annotations.
_DATA = re.compile(
    r"\.(csv|tsv|txt|json|jsonl|jsonlines|ndjson|parquet|xml|xlsx|xls|ods|mat|tar|zip|p|pkl|pickle|npy|npz|h5|hdf5|token|"
    r"lst|yaml|yml|arrow|gz|odgt|en|de|fr|cs)"
)
_ABOUT = re.compile(r"readme|licen[sc]e|requirements|changelog|citation", re.IGNORECASE)
_MOST_NAMED = 5
_COLUMNS = "--image COLUMN --text COLUMN --answer COLUMN --label COLUMN"
_BY_FOLDER = "leave the table aside and take folders of pictures as classes: --task image-classification"


def ask_readers(folder: Folder, fallback: bool = False) -> tuple[list[Recognised], list[str]]:
    """Return the data sets of a folder, and lines on what is left aside: "FILE: reason".

    Args:
        fallback: take folders as classes although a table is not understood.

    Raises:
        DataError: a table that annotates pictures is not understood, and nothing else is.
    """
    readers, aside = _readers()
    foreign = exports(folder)
    for tool, names in foreign.items():
        aside.append(f"{tool}: {comma_list(names, 1)} not read; an export that is: {_HOW[tool]}")
    recognised: list[Recognised] = []
    for reader in sorted(readers, key=lambda reader: reader.recognise_order):
        for one in reader.recognise(folder):
            folder.claim(one.files)
            recognised.append(one)
    aside += [line for one in recognised for line in one.unused]
    unclear = [one for one in recognised if one.question]
    questions = [one.question for one in unclear if not one.fallback]
    sources = [one for one in recognised if one.kind and not one.question and not one.fallback]
    of_folders = [one for one in recognised if one.kind and not one.question and one.fallback]
    if not sources:
        questions += [one.question for one in unclear if one.fallback]
        most = len(folder.pictures) / 2
        questions += [line for line, count in _unknown(folder).items() if most and count > most]
        sources = of_folders if fallback or not (questions or folder.unread) else []
    elif all(one.kind == "labels" and "train" not in one.parts for one in sources):
        # Tiny ImageNet: classes of val in a list, of train as folders
        sources = [one for one in of_folders if part_of(PurePosixPath(one.entry["images"]).name) == "train"] + sources
    if sources:
        left = [one for one in of_folders if one.files and one not in sources]
        aside += [f"{one.where}: {sources[0].where} is learnt" for one in left]
    for name, reason in folder.unread.items():
        if (part := part_in(name)) and sources and not any(part in one.parts for one in sources):
            hint = "correct the file, or move it out of the folder, and call init again"
            raise DataError(f"The {part} part of the data cannot be read.", where=name, got=reason, hint=hint)
    aside += [f"{name}: {reason}" for name, reason in folder.unread.items()]
    aside += [line for line in _unknown(folder) if line not in questions]
    if foreign and not sources:
        raise _only_exported(folder, *next(iter(foreign.items())))
    sources, incidental = _without_incidental(sources)
    aside += incidental
    only_classes = all(one.kind in ("labels", "multilabel") for one in sources)
    has_sentences = any(one.has_sentences for one in unclear)
    if questions and (not sources or (has_sentences and only_classes and not fallback)):
        what, got = "It is not clear what the pictures' table says.", "; ".join(questions[:4])
        write = "write a table with a row for each picture, sentence or question, or boxes in COCO's format"
        hint = f"{f'name the columns: {_COLUMNS}' if unclear else write}; or {_BY_FOLDER}"
        raise DataError(what, where=str(folder.root), got=got, hint=hint)
    return sources, list(dict.fromkeys([*questions, *aside]))


def _only_exported(folder: Folder, tool: str, names: Sequence[str]) -> DataError:
    what, got = f"The annotations are an export of {tool}, which no reader reads.", comma_list(names, 1)
    expected = "labelled boxes in COCO's format, or in that of Pascal VOC or YOLO; or a table with a column of classes"
    hint = f"export boxes as COCO, or classes as a table ({_HOW[tool]}), put it with the pictures, and call init again"
    return DataError(what, where=str(folder.root), got=got, expected=expected, hint=hint)


def _without_incidental(sources: list[Recognised]) -> tuple[list[Recognised], list[str]]:
    """Leave aside tables of a class whose column is not called so, where another table has columns of flags."""
    flags = next((one for one in sources if one.kind == "multilabel"), None)
    if flags is None:
        return sources, []
    tables = [one for one in sources if one.kind == "labels" and one.entry["name"] != "folder"]
    incidental = [one for one in tables if not is_hinted("label", str(one.columns["label"]))]
    lines = [
        f"{one.where}: its column {one.columns['label']} is not called a label: {flags.where} is learnt; "
        f"--label {one.columns['label']} learns this instead"
        for one in incidental
    ]
    return [one for one in sources if one not in incidental], lines


def _unknown(folder: Folder) -> dict[str, int]:
    """Return lines on files of data that no reader recognises, with the number of files."""
    data = (name for name in folder.files() if not _ABOUT.match(PurePosixPath(name).name))
    by_ending = grouped((PurePosixPath(name).suffix.lower(), name) for name in data if name not in folder.unread)
    lines: dict[str, int] = {}
    for ending, names in by_ending.items():
        if not _DATA.fullmatch(ending):
            continue
        if len(names) > _MOST_NAMED:
            files = f"{len(names):,} files that end in {ending}, such as {names[0]}"
            lines[f"{files}: no reader recognises them"] = len(names)
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
    """Claim and return files of detected boxes."""
    files = []
    for name, content in folder.documents():
        row = first_object(content)
        vlcli_form = isinstance(row.get("boxes"), list) and isinstance(row.get("file_name"), str)
        if vlcli_form or {"image_id", "bbox", "score"} <= set(row):
            rows = [one for one in content[:200] if isinstance(one, dict)]
            names = [image_id(str(one.get("file_name", one.get("image_id", "")))) for one in rows]
            if sum(one in folder.pictures.by_id for one in names) > len(names) / 4:
                files.append(name)
    folder.claim(files)
    return files


def check_columns(folder: Folder) -> None:
    """Check that a table has each column that the user names.

    Raises:
        UsageError: none has; the message names the nearest ones.
    """
    tables = folder.tables() if folder.columns else []
    names = ([*table.columns, *(table.document if isinstance(table.document, dict) else ())] for table in tables)
    known = list(dict.fromkeys(chain.from_iterable(names)))
    absent = [name for name in columns_in(folder.columns.values(), known) if name not in known]
    if absent:
        close = [near[0] for name in absent if (near := get_close_matches(name, known, n=1, cutoff=0.5))]
        hint = f"did you mean {' and '.join(map(repr, close))}?" if close else ""
        got, expected = ", ".join(map(repr, absent)), ", ".join(map(repr, known[:40])) or "a table in the folder"
        raise UsageError("No table has such a column.", got=got, expected=expected, hint=hint)


def nothing_found(folder: Folder, aside: list[str]) -> DataError:
    """Make the error for a folder from which nothing can be learnt."""
    what, got = "Nothing in this folder says what its pictures show.", f"{len(folder.pictures):,} pictures"
    expected = "a table (CSV, TSV, JSON, JSON lines, Parquet) with a column of picture names and one of sentences, "
    expected += "of labels, or questions and answers; or a folder of pictures for each class"
    correct = [f"correct {name}" for name in folder.unread] or ["write e.g. captions.csv with the columns image,text"]
    hint = f"{correct[0]}, and call init again"
    return DataError(what, where=str(folder.root), got="; ".join([got, *aside[:6]]), expected=expected, hint=hint)


def no_pictures(folder: Folder) -> DataError:
    """Make the error for a folder without pictures; the hint says how to take them out of tables and archives."""
    root = folder.root
    arrays = [folder.name(file) for file in array_files(root)]
    tables = [name for name in folder.every if name.endswith((".parquet", ".arrow"))] or arrays
    archives = [name for name in folder.every if name.endswith((".zip", ".tar", ".tar.gz", ".tgz", ".7z", ".rar"))]
    hint = "name the folder that holds them, or convert other formats first"
    if archives and not arrays:
        hint = f"unpack {comma_list(archives, 1)} here, and call init again"
    elif tables:
        out = f"{root.resolve().name}-unpacked"
        hint = f"where they lie inside these files: vlcli data unpack {root} --out {out}, then vlcli init {out}"
    got = comma_list(tables or archives, 1) or f"{sum(1 for _ in root.iterdir())} files and folders"
    expected = "files that end in .jpg, .png, .webp, .gif, .bmp, .tif or .ppm, also in subfolders"
    return DataError("The folder holds no pictures.", where=str(root), got=got, expected=expected, hint=hint)
