"""Base classes of readers of annotation files, of folders, and of labelled boxes."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from vlcli.data import Example, Reader
from vlcli.data.files import inside, read_json, read_lines, read_text
from vlcli.data.miniature import Miniature
from vlcli.data.recognition.recognised import Recognised, parts_of
from vlcli.data.truth import Truth, coco_annotation, truth_of
from vlcli.errors import DataError
from vlcli.images.boxes import BoxList, image_id

Labelled = Sequence[tuple[str | int, list[float]]]
"""Boxes of an image: class (name or number) and x1, y1, x2, y2."""


class LabelledBoxes(Reader):
    """Base of readers of boxes, one example an image; subclasses define :meth:`annotated` and :meth:`names`.

    Boxes without area are left out and counted; so are images without boxes, unless ``empty`` keeps them.

    Args:
        empty: keep images without boxes too.

    Attributes:
        ignored: boxes by image in which detections are neither right nor wrong: of a class, or of all by another name.
    """

    def __init__(self, root: Path, *, empty: bool = False, **options: Any) -> None:
        super().__init__(root, **options)
        self.empty = empty
        self.ignored: dict[str, Labelled] = {}

    def annotated(self) -> Iterator[tuple[str, Labelled]]:
        """Yield id and boxes of each image; called by :meth:`read`."""
        raise NotImplementedError(f"{type(self).__name__} reads no boxes")

    def names(self) -> list[str]:
        """Return the classes by number; called by :meth:`read`."""
        raise NotImplementedError(f"{type(self).__name__} knows no classes")

    def read(self) -> list[Example]:
        self._classes, self._labelled = self.names(), {}
        for image, labelled in self.annotated():
            kept = [(label, box) for label, box in labelled if box[2] > box[0] and box[3] > box[1]]
            if len(kept) < len(labelled):
                self.left_out["boxes without area"] += len(labelled) - len(kept)
            if kept or self.empty:
                self._labelled[image] = kept
            else:
                self.left_out["images without boxes (empty: true keeps them)"] += 1
        return [Example(image, None, [image]) for image in self._labelled]

    def boxes(self) -> dict[str, BoxList]:
        numbers: dict[str | int, int] = {name: number for number, name in enumerate(self.class_names())}
        box_lists = {}
        for image in (example.key for example in self.examples()):
            rows = self._labelled[image]
            classes = np.array([numbers.get(label, label) for label, _ in rows], np.int64)
            boxes = np.array([box for _, box in rows], np.float32).reshape(-1, 4) * self.scale(image)
            box_lists[image] = BoxList(boxes, classes=classes)
        return box_lists

    def truth(self) -> Truth:
        truth, names = truth_of(self), self.class_names()
        for image in truth.numbers:
            for name, box in self.ignored.get(image, ()):
                kinds = [names.index(str(name))] if name in names else range(len(names))
                hard = (coco_annotation(image, kind, box) for kind in kinds)
                truth.document["annotations"] += [{**note, "iscrowd": 1} for note in hard]
        return truth

    def scale(self, image: str) -> Any:
        """Return the factor from an image's boxes to pixels; called by :meth:`boxes`."""
        return 1.0

    def class_names(self) -> list[str]:
        self.examples()
        return self._classes


def require_folders(folders: Iterable[Path], hint: str, expected: str = "") -> None:
    """Check that folders of pictures exist. Raises DataError: one is missing, the first of which is named."""
    for folder in folders:
        if not folder.is_dir():
            raise DataError("The folder of pictures is missing.", where=str(folder), expected=expected, hint=hint)


class StreamReader(Reader):
    """Base of readers that yield their examples; subclasses define :meth:`stream`."""

    def read(self) -> list[Example]:
        return list(self.stream())

    def labelled(self, path: Path, label: int | str | None, target: str = "label") -> Example:
        """Return the example of a picture; None: without label. Called by :meth:`stream` of subclasses."""
        name = self.note(image_id(path), str(path.absolute()))
        return Example(name, None, [name], targets={} if label is None else {target: label})


class SplitFileReader(StreamReader):
    """Base of readers of annotation files, one or more a split; subclasses define :meth:`read_file`.

    Args:
        split: which part, or several that are read one after another; fills ``{split}`` in the file's name.
        file: annotation file under the root; None: the usual places.

    Attributes:
        usual: paths of the file under the root, the most usual first; ``{split}`` is filled in.
    """

    usual: ClassVar[tuple[str, ...]] = ()

    def __init__(self, root: Path, *, file: str | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.file = file

    def files(self) -> list[Path]:
        return list(dict.fromkeys(self.first_file(self.file, self.usual)))

    def write_miniature(self, miniature: Miniature) -> None:
        for split, file in zip(self.split_names, self.files(), strict=False):
            miniature.write(file, self.miniature_of(split, file, miniature))

    def miniature_of(self, split: str, file: Path, miniature: Miniature) -> Any:
        """Draw a few pictures, return content for :meth:`Miniature.write`; called by :meth:`write_miniature`."""
        raise NotImplementedError(f"{type(self).__name__} has no write_miniature")

    def stream(self) -> Iterator[Example]:
        for file in self.files():
            yield from self.read_file(file)

    def read_file(self, file: Path) -> Iterable[Example]:
        """Read the examples of one of :meth:`files`; called by :meth:`stream`."""
        raise NotImplementedError(f"{type(self).__name__} does not read {file}")


class FolderReader(StreamReader):
    """Base of readers of a folder in the layout in which a data set is published.

    Args:
        folder: the data set's folder under the root; empty: the usual places.

    Attributes:
        usual: paths of the folder under the root, the most usual first.
        marks: patterns of files and folders, of which the folder holds one at least.
    """

    usual: ClassVar[tuple[str, ...]] = ("",)
    marks: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        folder: str = "",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=".", take=take, limit=limit)
        self.places = [inside(self.root, name) for name in ([folder] if folder else self.usual)]
        known = (path for path in self.places if any(any(path.glob(mark)) for mark in self.marks))
        self.folder = next(known, self.places[0])

    @classmethod
    def classes_in(cls, home: str, files: list[str], name: str, columns: dict[str, Any], parts: str) -> Recognised:
        """Return the data set in the folder ``home``; called by :meth:`recognise`.

        Args:
            name: registered name of the reader.
            parts: what names the parts.
        """
        data = Recognised("labels", {"name": name}, files, columns, parts_of(cls.splits), {"parts": parts})
        data.entry |= {} if home in (*cls.usual, ".") else {"folder": home}
        return data


def json_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a JSON list or JSON lines, each with its place (``FILE[row]``, ``FILE:line``)."""
    return list_rows(file) if read_text(file).lstrip()[:1] == "[" else read_lines(file)


def list_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """Yield the rows of a JSON list, each with its place."""
    yield from ((f"{file}[{number}]", row) for number, row in enumerate(read_json(file, list)))
