"""Pascal VOC: labelled boxes in an XML file for each picture."""

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vlcli.data.files import inside, read_text
from vlcli.data.readers.split_file import Labelled, LabelledBoxes
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised, part_of, parts_of
from vlcli.data.truth import Truth, coco_annotation, truth_of
from vlcli.errors import DataError

_ANYWHERE = ("*.xml", "*/*.xml", "*/annotations/*.xml")


class PascalVOC(LabelledBoxes):
    """Images with labelled boxes in Pascal VOC's XML files, one example an image.

    The parts are lists of names (``ImageSets/Main/{split}.txt``) or folders (``{split}/*.xml``); without either,
    ``train`` is all of ``Annotations``. Pixels are counted from 1 in the files and from 0 here.

    Args:
        split: train, val, trainval, test, or any other list's or folder's name.
        folder: the folder of ``Annotations`` under the root; empty: the usual places.
        images: folder of the pictures; None: ``JPEGImages`` or ``images`` beside ``Annotations``, else that of the XML.
        classes: the classes in the order of their numbers; None: all that occur in the data set, sorted.
        difficult: keep boxes marked as difficult; without them, detections there do not count, neither right nor wrong.
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
        self._ignored: dict[str, Labelled] = {}

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        files = [name for name in folder.files("*.xml") if "<annotation" in " ".join(folder.lines(name, 3))]
        if not files:
            return []
        there = [name for name in files if Path(name).stem in folder.pictures.by_id]
        home = Path(files[0]).parent
        data = Recognised("boxes", {"name": "voc"}, files, {"boxes": "bndbox", "label": "name"})
        data.title = f"{len(files):,} XML files in {home}"
        splits = sorted({Path(name).parent.name for name in files})
        if home.name.lower() in ("annotations", "xmls"):
            base = home.parent if home.name.lower() == "annotations" else home.parent.parent
            lists = [name for name in folder.files("*.txt") if name.startswith((base / "ImageSets").as_posix())]
            main = [Path(name).stem for name in lists if Path(name).parent.name == "Main"]
            splits = [name for name in main if part_of(name)]
            data.files += lists
            data.entry |= {"folder": base.as_posix()} if base.as_posix() not in (".", *cls.usual) else {}
        data.parts = parts_of(splits)
        data.reasons["parts"] = "lists or folders are named after the parts"
        if len(there) < len(files) / 2:
            data.question = f"{data.title}: fewer than half of their pictures are in the folder (such as {files[0]})"
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
        self._ignored = {}
        for file in dict.fromkeys(path for split in self.split_names for path in self._files(split)):
            suffix, rows = _voc(file)
            image = self.picture(str(((self.of_pictures or file.parent) / f"{file.stem}{suffix}").absolute()))
            self._ignored[image] = [(name, box) for name, box, hard in rows if hard and not self.difficult]
            yield image, [(name, box) for name, box, hard in rows if self.difficult or not hard]

    def truth(self) -> Truth:
        truth, names = truth_of(self), self.class_names()
        for image in truth.numbers:
            hard = [coco_annotation(image, names.index(str(name)), box) for name, box in self._ignored[image]]
            truth.document["annotations"] += [{**note, "iscrowd": 1} for note in hard]
        return truth

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


def _voc(file: Path) -> tuple[str, list[tuple[str, list[float], bool]]]:
    text = read_text(file)
    if re.search(r"<!\s*(DOCTYPE|ENTITY)", text, re.IGNORECASE):
        expected = "an annotation without DOCTYPE and entities"
        raise DataError("The XML file declares a document type.", where=str(file), expected=expected)
    try:
        root = ET.fromstring(text)  # noqa: S314 - without a document type there are no entities
    except ET.ParseError as error:
        raise DataError("The XML is malformed.", where=f"{file}:{error.position[0]}", got=str(error)) from None
    rows = []
    for number, item in enumerate(root.findall("object"), 1):
        sides = [item.findtext(f"bndbox/{side}", "") for side in ("xmin", "ymin", "xmax", "ymax")]
        name = item.findtext("name", "").strip()
        try:
            left, top, right, bottom = (float(side) for side in sides)
        except ValueError:
            left = top = right = bottom = np.nan
        if not name or not np.isfinite([left, top, right, bottom]).all():
            got = f"name {name!r}, xmin ymin xmax ymax {' '.join(sides)!r}"
            raise DataError("The object has no name or no box.", where=f"{file}: object {number}", got=got)
        rows.append((name, [max(0.0, left - 1), max(0.0, top - 1), right, bottom], item.findtext("difficult") == "1"))
    if root.tag != "annotation":
        raise DataError("The XML file is no annotation.", where=str(file), got=f"<{root.tag}>", expected="<annotation>")
    return Path(root.findtext("filename", "")).suffix or ".jpg", rows
