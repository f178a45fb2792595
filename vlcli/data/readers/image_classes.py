"""Sets of classified pictures as they are published: ImageNet, Stanford Cars, CUB-200, Oxford's pets and flowers."""

import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from vlcli.data import Example, Folder, Recognised
from vlcli.data.checks import twice
from vlcli.data.files import inside, is_picture_file, numbered_lines, read_text
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.readers.split_file import FolderReader, require_folders
from vlcli.data.recognition.folder import groups
from vlcli.data.recognition.lists import cell_lines, fitting_rows
from vlcli.errors import DataError

_PET = re.compile(r"(\S+_\d+)\s+([1-9]\d*)(?:\s+[1-9]\d*){2}")


class StanfordCars(FolderReader):
    """Stanford Cars: 196 makes of cars, from the devkit's .mat files or from tables.

    Reads ``devkit/cars_{split}_annos.mat`` (test: ``..._withlabels.mat``) and ``devkit/cars_meta.mat``, or
    ``cars_annos.mat``, or ``anno_{split}.csv`` (file, x1, y1, x2, y2, class), ``names.csv``. Target: ``label`` from 0.

    Args:
        split: train or test.
    """

    paper: ClassVar[str] = "Krause et al. 2013, 3D Object Representations for Fine-Grained Categorization"
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    usual: ClassVar[tuple[str, ...]] = ("stanford_cars", "cars", "")
    marks: ClassVar[tuple[str, ...]] = ("devkit/cars_*_annos*.mat", "cars_*annos*.mat", "anno_*.csv")

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        names = folder.files("cars_train_annos.mat", "cars_test_annos.mat", "cars_test_annos_withlabels.mat")
        if not any("train" in name for name in names):
            return []
        home = PurePosixPath(names[0]).parent
        home = home.parent if home.name == "devkit" else home
        files = [*names, *(name for name in folder.files("cars_*.mat") if name not in names)]
        columns = {"image": "fname", "label": "class"}
        data = cls.classes_in(str(home), files, "stanford-cars", columns, "the files are named after the parts")
        if not any("withlabels" in name for name in names):
            data.entry["split"], data.parts = "train", {}
            data.unused += [f"{name}: it holds no classes" for name in names if "test" in name]
        return [data]

    def files(self) -> list[Path]:
        names = self._names()
        return [self._annotations(split) for split in self.split_names] + ([names] if names else [])

    def read(self) -> list[Example]:
        return [self.labelled(*row) for split in self.split_names for row in self._rows(split)]

    def label_names(self) -> list[str]:
        names = self._names()
        if names is None:
            return [str(number) for number in range(196)]
        if names.suffix == ".csv":
            return [line.strip().strip('"') for line in read_text(names).splitlines() if line.strip()]
        return [str(name) for name in matrix(names, "class_names")]

    def write_miniature(self, miniature: Miniature) -> None:
        from scipy.io import savemat

        home = self.folder / "devkit"
        for split in self.splits:
            names = miniature.pictures(f"cars-{split}", self.folder / f"cars_{split}", "{:05d}.jpg").values()
            rows = [(name, 1 + i % 2) for i, name in enumerate(names)]
            table = {"annotations": np.array(rows, [("fname", object), ("class", int)])}
            savemat(home / miniature.ready(home / f"cars_{split}_annos_withlabels.mat"), table)
        savemat(home / "cars_meta.mat", {"class_names": np.array(["AM General Hummer", "Acura RL"], object)})

    def _annotations(self, split: str) -> Path:
        names = [f"devkit/cars_{split}_annos_withlabels.mat", f"cars_{split}_annos_withlabels.mat"]
        names += [usual := f"devkit/cars_{split}_annos.mat", "cars_annos.mat", f"anno_{split}.csv"]
        return next((path for name in names if (path := self.folder / name).is_file()), self.folder / usual)

    def _names(self) -> Path | None:
        names = ("devkit/cars_meta.mat", "names.csv", "cars_annos.mat")
        return next((path for name in names if (path := self.folder / name).is_file()), None)

    def _rows(self, split: str) -> Iterator[tuple[Path, int | None]]:
        file = self._annotations(split)
        if file.suffix == ".csv":
            for line, cells in cell_lines(read_text(file), ",", 0, str(file)):
                if len(cells) < 6 or not cells[5].strip().isdecimal():
                    got, expected = ",".join(cells)[:80], "file, x1, y1, x2, y2, class"
                    raise DataError("The row is malformed.", where=f"{file}:{line}", got=got, expected=expected)
                yield self._picture(split, cells[0]), int(cells[5]) - 1
            return
        for row in matrix(file, "annotations"):
            label = getattr(row, "class", None)
            number = None if label is None else int(label) - 1
            if hasattr(row, "fname"):
                yield self._picture(split, str(row.fname)), number
            elif bool(row.test) == (split == "test"):
                yield inside(self.folder, str(row.relative_im_path)), number

    def _picture(self, split: str, name: str) -> Path:
        inner = f"cars_{split}"
        options = [inside(self.folder, f"{inner}/{name}"), inside(self.folder, f"{inner}/{inner}/{name}")]
        return next((path for path in options if path.is_file()), options[0])


class CUB200(FolderReader):
    """Caltech-UCSD Birds 200-2011: 200 kinds of birds; target ``label`` from 0.

    Reads ``images.txt``, ``image_class_labels.txt``, ``train_test_split.txt`` and ``classes.txt``.

    Args:
        split: train or test.
    """

    paper: ClassVar[str] = "Wah et al. 2011, The Caltech-UCSD Birds-200-2011 Dataset"
    splits: ClassVar[tuple[str, ...]] = ("train", "test")
    usual: ClassVar[tuple[str, ...]] = ("CUB_200_2011", "CUB_200_2011/CUB_200_2011", "")
    marks: ClassVar[tuple[str, ...]] = ("images.txt",)
    tables: ClassVar[tuple[str, ...]] = ("images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        columns = {"image": "images.txt", "label": "image_class_labels.txt"}
        parts = "train_test_split.txt names the parts"
        return [cls.classes_in(*one, "cub-200", columns, parts) for one in groups(folder, *cls.tables)]

    def files(self) -> list[Path]:
        return [self.folder / name for name in self.tables]

    def write_miniature(self, miniature: Miniature) -> None:
        kinds = ["001.Black_footed_Albatross", "002.Laysan_Albatross"]
        numbers = miniature.numbers("cub", 2 * PICTURES)
        names = {n: f"{kinds[n % 2]}/Bird_{n:04d}.jpg" for n in numbers}
        for name in names.values():
            miniature.picture(self.folder / "images" / name)
        rows: list[dict[int, Any]] = [names, {n: 1 + n % 2 for n in numbers}, {n: n // 2 % 2 for n in numbers}]
        for file, lines in zip(self.files(), [*rows, dict(enumerate(kinds, 1))], strict=True):
            miniature.write(file, "".join(f"{key} {one}\n" for key, one in lines.items()))

    def stream(self) -> Iterator[Example]:
        images, labels, train, classes = map(_table, self.files())
        numbers = {key: number for number, key in enumerate(classes)}
        wanted = {"1" if split == "train" else "0" for split in self.split_names}
        for key in (key for key in images if train.get(key) in wanted):
            if (label := labels.get(key)) not in numbers:
                where = str(self.folder / "image_class_labels.txt")
                raise DataError("A picture has no class.", where=where, got=f"picture {key}: {label}")
            yield self.labelled(inside(self.folder, f"images/{images[key]}"), numbers[labels[key]])

    def label_names(self) -> list[str]:
        return list(_table(self.folder / "classes.txt").values())


class OxfordPets(FolderReader):
    """Oxford-IIIT Pet: 37 breeds of cats and dogs.

    Reads ``annotations/trainval.txt`` and ``annotations/test.txt`` (``Abyssinian_100 1 1 1``: picture, class, species,
    breed) and the pictures in ``images``. Target: ``label`` from 0; the pictures' names name the classes.

    Args:
        split: trainval or test.
    """

    paper: ClassVar[str] = "Parkhi et al. 2012, Cats and Dogs"
    splits: ClassVar[tuple[str, ...]] = ("trainval", "test")
    usual: ClassVar[tuple[str, ...]] = ("oxford-iiit-pet", "")
    marks: ClassVar[tuple[str, ...]] = ("annotations",)

    def __init__(self, root: Path, *, split: str | list[str] = "trainval", **options: Any) -> None:
        super().__init__(root, split=split, **options)

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        files = folder.files("trainval.txt", "test.txt")
        lists = [name for name in files if (lines := folder.lines(name, 5)) and all(map(_PET.fullmatch, lines))]
        if not any(name.endswith("trainval.txt") for name in lists):
            return []
        home, columns = str(PurePosixPath(lists[0]).parent.parent), {"image": "first word", "label": "second word"}
        both = folder.files("list.txt")
        data = cls.classes_in(home, lists + both, "oxford-pets", columns, "the files are named after the parts")
        data.unused = [f"{name}: it repeats the rows of both parts" for name in both]
        data.title = ", ".join(lists)
        return [data]

    def files(self) -> list[Path]:
        return [self.folder / "annotations" / f"{split}.txt" for split in self.split_names]

    def stream(self) -> Iterator[Example]:
        for name, number in chain.from_iterable(map(_pets, self.files())):
            yield self.labelled(inside(self.folder, f"images/{name}.jpg"), number - 1)

    def label_names(self) -> list[str]:
        files = (self.folder / "annotations" / f"{split}.txt" for split in self.splits)
        named = {number: name for file in files if file.is_file() for name, number in _pets(file)}
        return [named.get(number, f"{number}_").rpartition("_")[0] for number in range(1, max(named, default=0) + 1)]


def _pets(file: Path) -> Iterator[tuple[str, int]]:
    for where, line in numbered_lines(file):
        if line.startswith("#"):
            continue
        if (hit := _PET.fullmatch(line)) is None:
            expected = "PICTURE CLASS SPECIES BREED, such as Abyssinian_100 1 1 1"
            raise DataError("The line is malformed.", where=where, got=line[:80], expected=expected)
        yield hit[1], int(hit[2])


def matrix(file: Path, name: str) -> list[Any]:
    """Read a variable of a MATLAB file as a list. Raises DataError: the file cannot be read, or lacks the variable."""
    from scipy.io import loadmat

    try:
        rows = loadmat(file, squeeze_me=True, struct_as_record=False, variable_names=[name])[name]
    except (OSError, ValueError, TypeError, KeyError, NotImplementedError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DataError("The MATLAB file cannot be read.", where=str(file), got=got, expected=name) from None
    return list(np.atleast_1d(rows))


def _table(file: Path) -> dict[str, str]:
    rows: dict[str, str] = {}
    for where, line in numbered_lines(file):
        key, _, value = map(str.strip, line.partition(" "))
        if not value:
            raise DataError("The line is malformed.", where=where, got=line[:80], expected="NUMBER VALUE")
        if rows.setdefault(key, value) != value:
            raise twice("number", key, str(file), f"{rows[key]} and {value} (line {where.rpartition(':')[2]})")
    return rows


_PARTS = {"train": "trnid", "val": "valid", "test": "tstid"}
_FLOWERS = ("imagelabels.mat", "setid.mat")


class OxfordFlowers(FolderReader):
    """Oxford 102 Flowers: 102 kinds of flowers without names; target ``label`` from 0.

    Reads ``imagelabels.mat``, ``setid.mat`` and the pictures ``image_00001.jpg`` in ``jpg`` or beside the files.

    Args:
        split: train, val or test.
    """

    paper: ClassVar[str] = "Nilsback and Zisserman 2008, Automated Flower Classification over a Large Number of Classes"
    splits: ClassVar[tuple[str, ...]] = tuple(_PARTS)
    usual: ClassVar[tuple[str, ...]] = ("flowers-102", "oxford-102-flowers", "")
    marks: ClassVar[tuple[str, ...]] = _FLOWERS

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        columns = {"image": "number", "label": "labels"}
        parts = "setid.mat names the parts"
        return [cls.classes_in(*one, "oxford-flowers", columns, parts) for one in groups(folder, *_FLOWERS)]

    def files(self) -> list[Path]:
        return [self.folder / name for name in _FLOWERS]

    def stream(self) -> Iterator[Example]:
        labels_file, parts_file = self.files()
        labels = matrix(labels_file, "labels")
        home = self.folder / "jpg" if (self.folder / "jpg").is_dir() else self.folder
        for split in self.split_names:
            if split not in _PARTS:
                raise DataError("There is no such split.", where=str(parts_file), got=split, expected=", ".join(_PARTS))
            for number in map(int, matrix(parts_file, _PARTS[split])):
                if not 0 < number <= len(labels):
                    got, expected = f"picture {number}", f"1 to {len(labels)}"
                    raise DataError("A picture has no class.", where=str(parts_file), got=got, expected=expected)
                yield self.labelled(home / f"image_{number:05}.jpg", int(labels[number - 1]) - 1)

    def label_names(self) -> list[str]:
        return [str(number) for number in range(1, 1 + max(map(int, matrix(self.files()[0], "labels")), default=0))]


SOLUTION = "LOC_val_solution.csv"


class ImageNet(FolderReader):
    """Pictures sorted into a folder for each class (ImageNet), or ILSVRC's layout with its table of validation labels.

    Looks for ``{split}/CLASS/*`` below the root, ``imagenet`` and ``ILSVRC/Data/CLS-LOC``; flat validation pictures
    take their classes from ``LOC_val_solution.csv``. Target: ``label``, in the order of the classes' names.

    Args:
        split: train, val, or another folder's name.
        folder: folder of the splits under the root; empty: the usual places.
        classes: read only these folders, numbered in the order given.
    """

    paper: ClassVar[str] = "Russakovsky et al. 2015, ImageNet Large Scale Visual Recognition Challenge"
    splits: ClassVar[tuple[str, ...]] = ("train", "val")
    reads_folders: bool = True
    usual: ClassVar[tuple[str, ...]] = ("", "imagenet", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        homes = [home for home in cls.usual if (folder.root / home / "train").is_dir()]
        if not homes or SOLUTION not in folder.every:
            return []
        files, columns = folder.files("LOC_*_solution.csv"), {"image": "ImageId", "label": "PredictionString"}
        return [cls.classes_in(homes[0], files, "imagenet", columns, "the folders are named after the parts")]

    def __init__(self, root: Path, *, classes: list[str] | None = None, **options: Any) -> None:
        super().__init__(root, **options)
        self.chosen = classes
        self._names: list[str] = []

    def listed_folders(self) -> list[Path]:  # where none is there, the first in which a split may lie
        options = [[home / split for home in self.places] for split in self.split_names]
        return [next((path for path in paths if path.is_dir()), paths[0]) for paths in options]

    def files(self) -> list[Path]:
        return [table for folder in self.listed_folders() if (table := _label_table(folder)) is not None]

    def write_miniature(self, miniature: Miniature) -> None:
        for folder in self.listed_folders():
            for i, n in enumerate(miniature.numbers(str(folder))):
                kind = (self.chosen or ["n01440764", "n01443537"])[i % 2]
                miniature.picture(folder / kind / f"{kind}_{n}.JPEG")

    def require(self) -> None:
        hint = "point `root` at the folder that holds train/ and val/, or name it: folder=FOLDER"
        require_folders(self.listed_folders(), hint, "a folder with one subfolder for each class")
        super().require()

    def read(self) -> list[Example]:
        pairs = [pair for folder in self.listed_folders() for pair in _sorted_into_classes(folder)]
        known = {name for name, _ in pairs}
        self._names = self.chosen or sorted(known)
        if unknown := [name for name in self._names if name not in known]:
            got = ", ".join(unknown[:5])
            raise DataError("There is no such class.", where=str(self.listed_folders()[0]), got=got)
        numbers = {name: number for number, name in enumerate(self._names)}
        return [self.labelled(path, numbers[label]) for label, path in pairs if label in numbers]

    def label_names(self) -> list[str]:
        self.examples()
        return self._names


def _label_table(folder: Path) -> Path | None:
    if not folder.is_dir() or any(entry.is_dir() for entry in folder.iterdir()):
        return None
    return next((path for parent in list(folder.parents)[:5] if (path := parent / SOLUTION).is_file()), None)


def _sorted_into_classes(folder: Path) -> list[tuple[str, Path]]:
    if (table := _label_table(folder)) is not None:
        lines = cell_lines(read_text(table), ",", 0, str(table))
        _, names = next(lines, (1, []))
        pairs = []
        for where, row in fitting_rows(lines, names, str(table)):
            words = row.get("PredictionString", "").split()
            if not words or not row.get("ImageId"):
                raise DataError("The row has no class.", where=where, expected="ImageId,PredictionString")
            pairs.append((words[0], folder / f"{row['ImageId']}.JPEG"))
        return sorted(pairs)
    homes = sorted(entry for entry in folder.iterdir() if entry.is_dir())
    pairs = [(home.name, path) for home in homes for path in sorted(home.rglob("*")) if is_picture_file(path.name)]
    if not pairs:
        expected = f"{folder.name}/CLASS/FILE, or flat pictures with {SOLUTION} in a folder above"
        raise DataError("The folder holds no class with pictures.", where=str(folder), expected=expected)
    return pairs
