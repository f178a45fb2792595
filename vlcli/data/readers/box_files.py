"""Labelled boxes in a file for each picture: Pascal VOC's XML, and YOLO's text."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import inside, is_picture_file, read_text
from vlcli.data.readers.box_columns import sides_of
from vlcli.data.readers.cells import class_names_of
from vlcli.data.readers.split_file import Labelled, LabelledBoxes
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised, part_of, parts_of
from vlcli.data.recognition.values import as_number
from vlcli.errors import DataError, RecipeError, shown
from vlcli.files import walk
from vlcli.plain import as_list
from vlcli.recipe import yaml

_ANYWHERE = ("*.xml", "*/*.xml", "*/annotations/*.xml")


class PascalVOC(LabelledBoxes):
    """Images with labelled boxes in Pascal VOC's XML files, one example an image.

    The parts are lists of names (``ImageSets/Main/{split}.txt``) or folders (``{split}/*.xml``); without either,
    ``train`` is all of ``Annotations``. Files count pixels from 1; here they count from 0.

    Args:
        split: train, val, trainval, test, or another list's or folder's name.
        folder: folder of ``Annotations`` under the root; empty: the usual places.
        images: folder of the pictures; None: ``JPEGImages`` or ``images`` beside ``Annotations``, else that of the XML.
        classes: the classes in the order of their numbers; None: all that occur in the data set, sorted.
        difficult: keep boxes marked as difficult; else detections there are neither right nor wrong.
    """

    paper: ClassVar[str] = "Everingham et al. 2010, The Pascal Visual Object Classes Challenge"
    usual: ClassVar[tuple[str, ...]] = ("", "VOC2012", "VOC2007", "VOCdevkit/VOC2012", "VOCdevkit/VOC2007")

    def __init__(
        self,
        root: Path,
        *,
        folder: str = "",
        images: str | None = None,
        classes: list[str] | None = None,
        difficult: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(root, images=images or ".", **options)
        places = [inside(self.root, name) for name in ([folder] if folder else self.usual)]
        self.folder = next((path for path in places if (path / "Annotations").is_dir()), places[0])
        beside = [self.folder / name for name in ("JPEGImages", "images")]
        self.of_pictures = self.image_folder if images else next((path for path in beside if path.is_dir()), None)
        self.classes, self.difficult = classes, difficult

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        files = [name for name in folder.files("*.xml") if "<annotation" in " ".join(folder.lines(name, 3))]
        if not files:
            return []
        home = Path(files[0]).parent
        data = Recognised("boxes", {"name": "voc"}, files, {"boxes": "bndbox", "label": "name"})
        data.title = f"{len(files):,} XML files in {home}"
        if sum(Path(name).stem in folder.pictures.by_id for name in files) < len(files) / 2:
            data.question = f"{data.title}: fewer than half of their pictures are in the folder (such as {files[0]})"
        splits = sorted({Path(name).parent.name for name in files})
        if home.name.lower() in ("annotations", "xmls"):
            base = home.parent if home.name.lower() == "annotations" else home.parent.parent
            lists = [name for name in folder.files("*.txt") if name.startswith((base / "ImageSets").as_posix())]
            splits = [Path(one).stem for one in lists if Path(one).parent.name == "Main" and part_of(Path(one).stem)]
            data.files += lists
            data.entry |= {"folder": base.as_posix()} if base.as_posix() not in (".", *cls.usual) else {}
        data.parts, data.reasons["parts"] = parts_of(splits), "lists or folders are named after the parts"
        return [data]

    def files(self) -> list[Path]:
        lists = [path for path in map(self._list, self.split_names) if path.is_file()]
        chosen = [path for split in self.split_names for path in self._files(split)]
        return list(dict.fromkeys([*lists, *chosen, *self._every()]))

    def names(self) -> list[str]:
        every = sorted({str(name) for file in self._every() for name, *_ in _voc(file)[1]})
        if self.classes is None:
            return every
        if unknown := [name for name in every if name not in self.classes]:
            expected = ", ".join(self.classes)
            raise DataError("A class is not listed.", where=str(self.folder), got=unknown[0], expected=expected)
        return self.classes

    def annotated(self) -> Iterator[tuple[str, Labelled]]:
        self.ignored = {}
        for file in dict.fromkeys(path for split in self.split_names for path in self._files(split)):
            suffix, rows = _voc(file)
            image = self.picture(str(((self.of_pictures or file.parent) / f"{file.stem}{suffix}").absolute()))
            self.ignored[image] = [(name, box) for name, box, hard in rows if hard and not self.difficult]
            yield image, [(name, box) for name, box, hard in rows if self.difficult or not hard]

    def _list(self, split: str) -> Path:
        return self.folder / "ImageSets/Main" / f"{split}.txt"

    def _files(self, split: str) -> list[Path]:
        named = self._list(split)
        if named.is_file():
            names = [line.split()[0] for line in read_text(named).splitlines() if line.strip()]
            return [inside(self.folder / "Annotations", f"{name}.xml") for name in names]
        files = sorted((self.folder / split).glob("*.xml")) or sorted((self.folder / split).glob("annotations/*.xml"))
        return files or (self._every() if split == "train" else []) or [named]  # so that a message names the list

    def _every(self) -> list[Path]:
        places = (("Annotations/*.xml",), ("annotations/*.xml",), ("annotations/xmls/*.xml",), _ANYWHERE)
        files = (sorted(path for one in patterns for path in self.folder.glob(one)) for patterns in places)
        return next(filter(None, files), [])


def voc_root(file: Path) -> ET.Element:
    """Parse an XML file of Pascal VOC. Raises DataError: it is malformed, or no annotation."""
    text = read_text(file)
    if re.search(r"<!\s*(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        expected = "an annotation without DOCTYPE and entities"
        raise DataError("The XML file declares a document type.", where=str(file), expected=expected)
    try:
        root = ET.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except ET.ParseError as error:
        raise DataError("The XML is malformed.", where=f"{file}:{error.position[0]}", got=str(error)) from None
    if root.tag != "annotation":
        raise DataError("The XML file is no annotation.", where=str(file), got=f"<{root.tag}>", expected="<annotation>")
    return root


def _voc(file: Path) -> tuple[str, list[tuple[str, list[float], bool]]]:
    root, rows = voc_root(file), []
    for number, item in enumerate(root.findall("object"), 1):
        sides = [item.findtext(f"bndbox/{side}", "") for side in ("xmin", "ymin", "xmax", "ymax")]
        name = item.findtext("name", "").strip()
        left, top, right, bottom = [as_number(side) for side in sides]
        if not name or left is None or top is None or right is None or bottom is None:
            got = f"name {name!r}, xmin ymin xmax ymax {' '.join(sides)!r}"
            raise DataError("The object has no name or no box.", where=f"{file}: object {number}", got=got)
        rows.append((name, [max(0.0, left - 1), max(0.0, top - 1), right, bottom], item.findtext("difficult") == "1"))
    return Path(root.findtext("filename", "")).suffix or ".jpg", rows


class YOLO(LabelledBoxes):
    """Images with labelled boxes in YOLO's text files, one example an image.

    A line of ``labels/NAME.txt`` is a class number and the box's centre, width and height as shares of the picture, or
    the corners of a polygon, whose box is read. Pictures lie in ``images`` beside ``labels``, or beside their texts.

    Args:
        split: train, val or test, as in ``data.yaml``; ``valid`` is ``val``.
        data: YAML file of the pictures' places and the classes' names, or file of class names; None: ``data.yaml`` or
            ``dataset.yaml``. Without YAML, the parts are ``{split}/images``, ``images/{split}`` or lists
            ``{split}.txt``, else ``train`` is all of ``images``.
        classes: names of the classes; None: those of the file, of ``classes.txt`` or of ``obj.names``.
    """

    paper: ClassVar[str] = "Redmon et al. 2016, You Only Look Once"
    usual: ClassVar[tuple[str, ...]] = ("data.yaml", "data.yml", "dataset.yaml", "dataset.yml")
    name_files: ClassVar[tuple[str, ...]] = ("classes.txt", "obj.names", "labels/classes.txt", "data/obj.names")

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        data: str | None = None,
        classes: list[str] | None = None,
        empty: bool = False,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=".", empty=empty, take=take, limit=limit)
        options = [inside(self.root, name) for name in ([data] if data else self.usual)]
        self.data = next((path for path in options if path.is_file()), options[0] if data else None)
        self.classes = classes
        self._scales: dict[str, Any] = {}

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        beside = [name for name in folder.files("*.txt") if Path(name).stem in folder.pictures.by_id]
        labels = [name for name in beside if all(map(_LINE.fullmatch, folder.lines(name, 2)))]
        listing = dict.fromkeys(chain(folder.files(*cls.usual), folder.files("*.yaml", "*.yml")))
        named = [name for name in listing if re.search(r"^names:", folder.text(name), re.MULTILINE)]
        named = named or [name for name in folder.files("classes.txt", "*.names") if folder.lines(name, 1)]
        if not any(folder.lines(name, 1) for name in labels):
            wrong = [name for name in beside if "labels" in Path(name).parts and name not in labels]
            question = f"{len(wrong):,} text files in labels, such as {next(iter(wrong), '')}, hold no boxes"
            return [Recognised("", {"name": "yolo"}, wrong, question=question)] if wrong else []
        data = Recognised("boxes", {"name": "yolo"}, [*named[:1], *labels], {"boxes": "labels/*.txt"})
        data.title = f"{len(labels):,} text files of boxes" + (f" and {named[0]}" if named else "")
        if not named:
            data.question = f"{data.title}: nothing names their classes (expected: data.yaml, classes.txt or obj.names)"
            return [data]
        if named[0] not in (*cls.usual, *cls.name_files):
            data.entry["data"] = named[0]
        reader, splits = cls(folder.root, data=data.entry.get("data")), list[str]()
        for split in ("train", "val", "test"):
            with suppress(DataError):
                splits += [split] if reader._find(split) else []
        data.parts, data.reasons["parts"] = parts_of(splits), f"{named[0]} or folders name the parts"
        lists = folder.files("train.txt", "val.txt", "valid.txt", "test.txt")
        data.files += [name for name in lists if name not in labels]
        return [data]

    def files(self) -> list[Path]:
        named = self.data or (None if self.classes else self._names_file())
        labels = (path for path in map(_labels_of, self._pictures()) if path.is_file())
        return list(dict.fromkeys([*as_list(named), *labels]))

    def listed_folders(self) -> list[Path]:
        return list(dict.fromkeys(picture.parent for picture in self._pictures()))

    def names(self) -> list[str]:
        named = self.classes or self._document().get("names")
        if named:
            return list(map(str, named.values() if isinstance(named, dict) else as_list(named)))
        if (file := self._names_file()) is None:
            expected, hint = ", ".join(self.name_files), "name them: classes=[NAME, ...]"
            raise DataError("Nothing names the classes.", where=str(self.root), expected=expected, hint=hint)
        return class_names_of(file)[1]

    def annotated(self) -> Iterator[tuple[str, Labelled]]:
        count, poses, self._scales = len(self.names()), "kpt_shape" in self._document(), {}
        for picture in dict.fromkeys(self._pictures()):
            labels = _labels_of(picture)
            lines = enumerate(read_text(labels).splitlines() if labels.is_file() else [], 1)
            boxes = [_yolo(line, f"{labels}:{number}", count, poses) for number, line in lines if line.strip()]
            yield self.picture(str(picture.absolute())), boxes

    def scale(self, image: str) -> Any:
        if image not in self._scales:
            self._scales[image] = sides_of(self.locate(image))
        return self._scales[image]

    def _document(self) -> dict[str, Any]:
        if self.data is None or self.data.suffix not in (".yaml", ".yml") or not self.data.is_file():
            return {}
        try:
            document = yaml.read(self.data).value
        except RecipeError as error:
            what, got = "The file of the data set is no YAML.", str(error)[:200]
            raise DataError(what, where=str(self.data), got=got) from None
        return document if isinstance(document, dict) else {}

    def _names_file(self) -> Path | None:
        if self.data is not None and self.data.suffix not in (".yaml", ".yml"):
            return self.data
        home = self.root if self.data is None else self.data.parent
        return next((path for name in self.name_files if (path := home / name).is_file()), None)

    def _pictures(self) -> Iterator[Path]:
        for split in self.split_names:
            if not (pictures := self._find(split)):
                expected = f"{split}/images, images/{split}, or {split}.txt with a path a line"
                where = str(self.data or self.root)
                raise DataError("There are no pictures of this split.", where=where, got=split, expected=expected)
            yield from pictures

    def _find(self, split: str) -> list[Path]:
        document = self._document()
        names = dict.fromkeys((split, {"valid": "val", "val": "valid"}.get(split, split)))
        written = next((document[name] for name in names if document.get(name)), None)
        entries = [list(map(str, as_list(written)))]
        if written is None:
            entries = [[path.replace("NAME", name)] for name in names for path in _USUAL]
            entries += [["images"], ["."]] if split == "train" else []
        home, base = self.root if self.data is None else self.data.parent, str(document.get("path") or "")
        pictures = ([path for entry in some for path in _listed(home, base, entry)] for some in entries)
        return next(filter(None, pictures), [])


_LINE = re.compile(r"\d+(\.0*)?(\s+[-\d.e]+){4,}")
_USUAL = ("NAME/images", "images/NAME", "NAME.txt", "NAME")


def _listed(home: Path, base: str, entry: str) -> list[Path]:
    ends = [Path(base, entry), Path(entry)] if not Path(entry).is_absolute() else _ends(entry)[:-1]
    there = next((path for end in ends if (path := home.joinpath(*_plain(end))).exists()), None)
    if there is None or there.is_dir():
        folders = [] if there is None else walk(there)
        return [path / file for path, files in folders for file in files if is_picture_file(file)]
    lines = dict.fromkeys(filter(None, map(str.strip, read_text(there).splitlines())))
    ends_of = ((line, (home / end for end in _ends(line))) for line in lines)
    return [next(filter(Path.is_file, paths), home / Path(line).name) for line, paths in ends_of]


def _plain(path: Path) -> list[str]:  # Roboflow's "../train/images" is below the file that names it
    return [part for part in path.parts if part not in ("/", "..", ".")]


def _ends(path: str) -> list[Path]:  # of a path of another machine, the longest first
    parts = _plain(Path(path))
    return [Path(*parts[start:]) for start in range(len(parts))]


def _labels_of(picture: Path) -> Path:
    *folders, name = picture.parts
    if "images" in folders:
        folders[len(folders) - 1 - folders[::-1].index("images")] = "labels"  # the last folder of this name
    return Path(*folders, name).with_suffix(".txt")


def _yolo(line: str, where: str, classes: int, poses: bool) -> tuple[int, list[float]]:
    expected = f"a class from 0 to {classes - 1}, then centre, width and height (or corners) from 0 to 1"
    label, numbers = -1.0, list[float]()
    with suppress(ValueError):
        label, *numbers = map(float, line.split())
    polygon = len(numbers) > 5 and len(numbers) % 2 == 0 and not poses
    shares = numbers if polygon else numbers[:4]  # what follows, as key points, may be nan
    good = len(numbers) >= 4 and all(-0.01 <= number <= 1.01 for number in shares)
    if not good or not label.is_integer() or not 0 <= label < classes:
        raise DataError("The line is no box.", where=where, got=shown(line), expected=expected)
    if polygon:
        return int(label), [min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])]
    x, y, width, height = shares
    corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    return int(label), [min(1.0, max(0.0, corner)) for corner in corners]
