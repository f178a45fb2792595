"""ImageNet as it is unpacked: a folder a class, or the challenge's own layout."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import ClassVar

from vlcli.data.files import IMAGE_SUFFIXES, inside, read_text
from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id

SOLUTION = "LOC_val_solution.csv"


class ImageNet(Reader):
    """Pictures sorted into a folder for each class (ImageNet), or ILSVRC's layout with its table of validation labels.

    Looks for ``{split}/CLASS/*`` below the root, below ``imagenet`` and below ``ILSVRC/Data/CLS-LOC``; validation
    pictures that lie in one flat folder take their classes from ``LOC_val_solution.csv``. Classes are numbered in the
    order of their names; target ``label``.

    Args:
        root: data root.
        split: train, val, or any other folder's name.
        folder: where the splits lie, under the root; empty: the usual places.
        classes: read only these (a list of folder names), numbered in the order given.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many.
    """

    paper: ClassVar[str] = "Russakovsky et al. 2015, ImageNet Large Scale Visual Recognition Challenge"
    splits: ClassVar[tuple[str, ...]] = ("train", "val")
    reads_folders: bool = True
    usual: ClassVar[tuple[str, ...]] = ("", "imagenet", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        folder: str = "",
        classes: list[str] | None = None,
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=".", take=take, limit=limit)
        self.places = [inside(self.root, place) for place in ([folder] if folder else self.usual)]
        self.chosen = classes
        self._names: list[str] = []

    def folders(self) -> list[Path]:
        """The folder of each chosen split; where none is found, the first place it may lie."""
        found = []
        for split in self.split_names:
            options = [place / split for place in self.places]
            found.append(next((path for path in options if path.is_dir()), options[0]))
        return found

    def files(self) -> list[Path]:
        """The table of validation labels, where pictures lie flat."""
        return [table for folder in self.folders() if (table := _table(folder)) is not None]

    def require(self) -> None:
        """Raise a DataError where a split's folder is missing."""
        for folder in self.folders():
            if not folder.is_dir():
                raise DataError(
                    "The folder of pictures is missing.",
                    where=str(folder),
                    expected="a folder with one subfolder for each class",
                    hint="point `root` at the folder that holds train/ and val/, or name it: folder=FOLDER",
                )
        super().require()

    def read(self) -> list[Example]:
        """One example a picture, by class and name."""
        pairs = [pair for folder in self.folders() for pair in _sorted_into_classes(folder)]
        self._names = self.chosen or sorted({name for name, _ in pairs})
        numbers = {name: number for number, name in enumerate(self._names)}
        unknown = [name for name in self._names if name not in {name for name, _ in pairs}] if self.chosen else []
        if unknown:
            raise DataError("There is no such class.", where=str(self.folders()[0]), got=", ".join(unknown[:5]))
        return [self._example(path, numbers[label]) for label, path in pairs if label in numbers]

    def label_names(self) -> list[str]:
        """The classes' names, in the order of their numbers."""
        self.examples()
        return self._names

    def _example(self, path: Path, number: int) -> Example:
        name = self.note(image_id(path), str(path.absolute()))
        return Example(name, None, [name], targets={"label": number})


def _table(folder: Path) -> Path | None:
    """The table of labels above a folder whose pictures lie flat."""
    if not folder.is_dir() or any(entry.is_dir() for entry in folder.iterdir()):
        return None
    above = [parent / SOLUTION for parent in list(folder.parents)[:5]]
    return next((path for path in above if path.is_file()), None)


def _sorted_into_classes(folder: Path) -> list[tuple[str, Path]]:
    table = _table(folder)
    if table is not None:
        return _from_table(folder, table)
    found = []
    for inner in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        pictures = (path for path in inner.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
        found += [(inner.name, path) for path in sorted(pictures)]
    if not found:
        raise DataError(
            "There are no classes here.",
            where=str(folder),
            expected=f"{folder.name}/CLASS/FILE, or flat pictures with {SOLUTION} in a folder above",
        )
    return found


def _from_table(folder: Path, table: Path) -> list[tuple[str, Path]]:
    """Pictures and the class that the table's ``PredictionString`` begins with."""
    found = []
    for number, row in enumerate(csv.DictReader(io.StringIO(read_text(table))), 2):
        words = (row.get("PredictionString") or "").split()
        if not words or not row.get("ImageId"):
            raise DataError("The row has no class.", where=f"{table}:{number}", expected="ImageId,PredictionString")
        found.append((words[0], folder / f"{row['ImageId']}.JPEG"))
    return sorted(found)
