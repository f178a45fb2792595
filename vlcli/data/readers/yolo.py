"""YOLO: labelled boxes in a text file for each picture."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vlcli.data.files import IMAGE_SUFFIXES, inside, read_text, walk
from vlcli.data.readers.labelled_boxes import Labelled, LabelledBoxes
from vlcli.data.readers.table import class_names_of
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.parts import parts_of
from vlcli.data.recognition.recognised import Recognised
from vlcli.errors import DataError, RecipeError, shown
from vlcli.images.files import BadImageError, read_size
from vlcli.plain import as_list
from vlcli.recipe import yaml


class YOLO(LabelledBoxes):
    """Images with labelled boxes in YOLO's text files, one example an image.

    A line of ``labels/NAME.txt`` is a class number and the box's centre, width and height as shares of the picture (or
    the corners of a polygon, whose box is taken). Pictures lie in ``images`` beside ``labels``, or beside their text
    files.

    Args:
        root: data root.
        split: train, val or test, as ``data.yaml`` names them; ``valid`` is ``val``.
        data: the YAML file that says where pictures are and how classes are called, or the file of class names beside
            them; None: ``data.yaml`` or ``dataset.yaml``. Without a YAML file, the parts are ``{split}/images``,
            ``images/{split}`` or lists ``{split}.txt``, and else ``train`` is all of ``images``.
        classes: names of the classes; None: those of the file, of ``classes.txt`` or of ``obj.names``.
        empty: keep images without boxes too.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
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
        super().__init__(root, split=split, images=".", take=take, limit=limit)
        options = [inside(self.root, name) for name in ([data] if data else self.usual)]
        self.data = next((path for path in options if path.is_file()), options[0] if data else None)
        self.classes, self.empty = classes, empty
        self._scales: dict[str, Any] = {}

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Text files of numbers beside pictures or in ``labels``, and what names their classes."""
        beside = [name for name in folder.files("*.txt") if Path(name).stem in folder.pictures.by_id]
        labels = [name for name in beside if all(map(_LINE.fullmatch, folder.lines(name, 2)))]
        named = [name for name in folder.files(*cls.usual) if "names:" in folder.text(name)]
        named = named or [name for name in folder.files("classes.txt", "obj.names", "*.names") if folder.lines(name, 1)]
        if not any(folder.lines(name, 1) for name in labels):
            wrong = [name for name in beside if "labels" in Path(name).parts and name not in labels]
            question = f"{len(wrong):,} text files in labels, such as {wrong[0]}, hold no boxes" if wrong else ""
            return [Recognised("", {"name": "yolo"}, wrong, question=question)] if wrong else []
        found = Recognised("boxes", {"name": "yolo"}, [*named[:1], *labels], {"boxes": "labels/*.txt"})
        found.title = f"{len(labels):,} text files of boxes" + (f" and {named[0]}" if named else "")
        if not named:
            found.question = (
                f"{found.title}: nothing names their classes (expected: data.yaml, classes.txt or obj.names)"
            )
            return [found]
        if named[0] not in (*cls.usual, *cls.name_files):
            found.entry["data"] = named[0]
        reader = cls(folder.root, data=found.entry.get("data"))
        found.parts = parts_of([split for split in ("train", "val", "test") if reader.has(split)])
        found.reasons["parts"] = f"{named[0]} or folders name the parts"
        lists = [name for name in folder.files("train.txt", "val.txt", "valid.txt", "test.txt") if name not in labels]
        found.files += lists
        return [found]

    def has(self, split: str) -> bool:
        """Whether a split has pictures of its own."""
        try:
            return bool(self._pictures(split))
        except DataError:
            return False

    def files(self) -> list[Path]:
        """``data.yaml`` or the file of class names, and the text files of the pictures."""
        named = [self.data] if self.data else [path for path in (self._names_file(),) if path and not self.classes]
        labels = [_labels_of(picture) for split in self.split_names for picture in self._pictures(split)]
        return list(dict.fromkeys([*named, *(path for path in labels if path.is_file())]))

    def listed_folders(self) -> list[Path]:
        """The folders of pictures."""
        return list(dict.fromkeys(picture.parent for split in self.split_names for picture in self._pictures(split)))

    def names(self) -> list[str]:
        """The classes."""
        named = self._document().get("names")
        if self.classes or named:
            found = self.classes or (list(named.values()) if isinstance(named, dict) else named)
            return [str(name) for name in found] if isinstance(found, list) else [str(found)]
        file = self._names_file()
        if file is None:
            hint = "name them: classes=[NAME, ...]"
            raise DataError(
                "Nothing names the classes.", where=str(self.root), expected=", ".join(self.name_files), hint=hint
            )
        return class_names_of(file)[1]

    def annotated(self) -> Iterator[tuple[str, Labelled]]:
        """The pictures of the splits."""
        count, poses, self._scales = len(self.names()), "kpt_shape" in self._document(), {}
        for picture in dict.fromkeys(path for split in self.split_names for path in self._pictures(split)):
            labels = _labels_of(picture)
            lines = enumerate(read_text(labels).splitlines() if labels.is_file() else [], 1)
            found = [_yolo(line, f"{labels}:{number}", count, poses) for number, line in lines if line.strip()]
            yield self.picture(str(picture.absolute())), found

    def scale(self, image: str) -> Any:
        """Width and height of the picture, twice; zeros where it cannot be read, which pixels report."""
        if image not in self._scales:
            try:
                height, width = read_size(self.locate(image))
            except BadImageError:
                height = width = 0
            self._scales[image] = np.array([width, height] * 2, np.float32)
        return self._scales[image]

    def _document(self) -> dict[str, Any]:
        if self.data is None or self.data.suffix not in (".yaml", ".yml") or not self.data.is_file():
            return {}
        try:
            found = yaml.read(self.data).value
        except RecipeError as error:
            raise DataError(
                "The file of the data set is no YAML.", where=str(self.data), got=str(error)[:200]
            ) from None
        return found if isinstance(found, dict) else {}

    def _names_file(self) -> Path | None:
        given = self.data if self.data is not None and self.data.suffix not in (".yaml", ".yml") else None
        home = self.root if self.data is None else self.data.parent
        return given or next((path for name in self.name_files if (path := home / name).is_file()), None)

    def _pictures(self, split: str) -> list[Path]:
        """The pictures of a split, in order of their paths."""
        document = self._document()
        names = [split, *({"valid": ["val"], "val": ["valid"]}.get(split, []))]
        given = next((document[name] for name in names if document.get(name)), None)
        if given is None:
            usual = [place.replace("NAME", name) for name in names for place in _USUAL]
            entries = [[place] for place in (*usual, *(["images", "."] if split == "train" else []))]
        else:
            entries = [list(map(str, as_list(given)))]
        home = self.root if self.data is None else self.data.parent
        for some in entries:
            if found := [path for entry in some for path in _listed(home, str(document.get("path") or ""), entry)]:
                return found
        expected = f"{split}/images, images/{split}, or {split}.txt with a path a line"
        where = str(self.data or self.root)
        raise DataError("There are no pictures of this split.", where=where, got=split, expected=expected)


_LINE = re.compile(r"\d+(\.0*)?(\s+[-\d.e]+){4,}")
_USUAL = ("NAME/images", "images/NAME", "NAME.txt", "NAME")


def _listed(home: Path, base: str, entry: str) -> list[Path]:
    """The pictures of a folder, or of a list of paths."""
    ends = [Path(base, entry), Path(entry)] if not Path(entry).is_absolute() else _ends(entry)[:-1]
    place = next((path for end in ends if (path := home.joinpath(*_plain(end))).exists()), None)
    if place is None or place.is_dir():
        folders = [] if place is None else walk(place)
        return [path / file for path, found in folders for file in found if Path(file).suffix.lower() in IMAGE_SUFFIXES]
    lines = [line.strip() for line in read_text(place).splitlines() if line.strip()]
    return [
        next((path for end in _ends(line) if (path := home / end).is_file()), home / Path(line).name) for line in lines
    ]


def _plain(path: Path) -> list[str]:
    """The parts of a path without those that lead up: Roboflow's "../train/images" is below the file that names it."""
    return [part for part in path.parts if part not in ("/", "..", ".")]


def _ends(path: str) -> list[Path]:
    """The ends of a path of another machine, the longest first."""
    parts = _plain(Path(path))
    return [Path(*parts[start:]) for start in range(len(parts))]


def _labels_of(picture: Path) -> Path:
    """The text file of a picture: in ``labels`` for ``images``, else beside it."""
    parts = list(picture.parts)
    for place in range(len(parts) - 2, -1, -1):
        if parts[place] == "images":
            parts[place] = "labels"
            break
    return Path(*parts).with_suffix(".txt")


def _yolo(line: str, where: str, classes: int, poses: bool) -> tuple[int, list[float]]:
    """Class and corners of a line, as shares of the picture."""
    expected = f"a class from 0 to {classes - 1}, then centre, width and height (or corners) from 0 to 1"
    try:
        label, *numbers = [float(word) for word in line.split()]
    except ValueError:
        raise DataError("The line is no box.", where=where, got=shown(line), expected=expected) from None
    polygon = len(numbers) > 5 and len(numbers) % 2 == 0 and not poses
    shares = numbers if polygon else numbers[:4]
    good = (polygon or len(numbers) >= 4) and all(-0.01 <= number <= 1.01 for number in shares)
    if not good or not label.is_integer() or not 0 <= label < classes:
        raise DataError("The line is no box.", where=where, got=shown(line), expected=expected)
    if polygon:
        return int(label), [min(numbers[::2]), min(numbers[1::2]), max(numbers[::2]), max(numbers[1::2])]
    x, y, width, height = shares
    corners = [x - width / 2, y - height / 2, x + width / 2, y + height / 2]
    return int(label), [min(1.0, max(0.0, corner)) for corner in corners]
