"""ImageNet as it is unpacked: a folder a class, or the challenge's own layout."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data.files import IMAGE_SUFFIXES, read_text
from vlcli.data.readers.split_file import FOLDER_MISSING, FolderReader
from vlcli.data.sample import Example
from vlcli.errors import DataError

SOLUTION = "LOC_val_solution.csv"


class ImageNet(FolderReader):
    """Pictures sorted into a folder for each class (ImageNet), or ILSVRC's layout with its table of validation labels.

    Looks for ``{split}/CLASS/*`` below the root, below ``imagenet`` and below ``ILSVRC/Data/CLS-LOC``; validation
    pictures that lie in one flat folder take their classes from ``LOC_val_solution.csv``. Classes are numbered in the
    order of their names; target ``label``.

    Args:
        split: train, val, or any other folder's name.
        folder: where the splits lie, under the root; empty: the usual places.
        classes: read only these (a list of folder names), numbered in the order given.
    """

    paper: ClassVar[str] = "Russakovsky et al. 2015, ImageNet Large Scale Visual Recognition Challenge"
    splits: ClassVar[tuple[str, ...]] = ("train", "val")
    reads_folders: bool = True
    usual: ClassVar[tuple[str, ...]] = ("", "imagenet", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")

    def __init__(self, root: Path, *, classes: list[str] | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.chosen = classes
        self._names: list[str] = []

    def folders(self) -> list[Path]:
        """Return the folder of each chosen split; where none is there, the first in which it may lie."""
        options = [[home / split for home in self.places] for split in self.split_names]
        return [next((path for path in paths if path.is_dir()), paths[0]) for paths in options]

    def files(self) -> list[Path]:
        return [table for folder in self.folders() if (table := _table(folder)) is not None]

    def require(self) -> None:
        for folder in self.folders():
            if not folder.is_dir():
                expected = "a folder with one subfolder for each class"
                hint = "point `root` at the folder that holds train/ and val/, or name it: folder=FOLDER"
                raise DataError(FOLDER_MISSING, where=str(folder), expected=expected, hint=hint)
        super().require()

    def read(self) -> list[Example]:
        pairs = [pair for folder in self.folders() for pair in _sorted_into_classes(folder)]
        known = {name for name, _ in pairs}
        self._names = self.chosen or sorted(known)
        if unknown := [name for name in self._names if name not in known]:
            raise DataError("There is no such class.", where=str(self.folders()[0]), got=", ".join(unknown[:5]))
        numbers = {name: number for number, name in enumerate(self._names)}
        return [self.labelled(path, numbers[label]) for label, path in pairs if label in numbers]

    def label_names(self) -> list[str]:
        self.examples()
        return self._names


def _table(folder: Path) -> Path | None:
    if not folder.is_dir() or any(entry.is_dir() for entry in folder.iterdir()):
        return None
    above = [parent / SOLUTION for parent in list(folder.parents)[:5]]
    return next((path for path in above if path.is_file()), None)


def _sorted_into_classes(folder: Path) -> list[tuple[str, Path]]:
    table = _table(folder)
    if table is not None:
        return _from_table(folder, table)
    pairs = []
    for inner in sorted(entry for entry in folder.iterdir() if entry.is_dir()):
        pictures = (path for path in inner.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
        pairs += [(inner.name, path) for path in sorted(pictures)]
    if not pairs:
        expected = f"{folder.name}/CLASS/FILE, or flat pictures with {SOLUTION} in a folder above"
        raise DataError("There are no classes here.", where=str(folder), expected=expected)
    return pairs


def _from_table(folder: Path, table: Path) -> list[tuple[str, Path]]:
    pairs = []
    for number, row in enumerate(csv.DictReader(io.StringIO(read_text(table))), 2):
        words = (row.get("PredictionString") or "").split()
        if not words or not row.get("ImageId"):
            raise DataError("The row has no class.", where=f"{table}:{number}", expected="ImageId,PredictionString")
        pairs.append((words[0], folder / f"{row['ImageId']}.JPEG"))
    return sorted(pairs)
