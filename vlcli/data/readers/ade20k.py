"""ADE20K's scene-parsing benchmark: pictures, and a picture of class ids for each."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Folder, Miniature, Recognised
from vlcli.data.files import is_picture_file, read_text
from vlcli.data.readers.split_file import FolderReader, require_folders
from vlcli.errors import DataError

NAMES, SCENES = "objectInfo150.txt", "sceneCategories.txt"


class ADE20K(FolderReader):
    """Pictures with the class of every pixel: 1 to 150, 0 for pixels without class; target ``scene``.

    Looks for ``images/{training,validation}/*`` and ``annotations/{training,validation}/*.png`` below the root,
    ``ADEChallengeData2016`` and ``ade20k``; ``objectInfo150.txt`` may name the classes, ``sceneCategories.txt`` scenes.

    Args:
        split: training or validation (train, val).
    """

    paper: ClassVar[str] = "Zhou et al. 2019, Semantic Understanding of Scenes through the ADE20K Dataset"
    splits: ClassVar[tuple[str, ...]] = ("training", "validation")
    reads_folders: bool = True
    held_out_splits: ClassVar[tuple[str, ...]] = ("validation", "val", "testing", "test")
    usual: ClassVar[tuple[str, ...]] = ("ADEChallengeData2016", "ade20k", "")
    marks: ClassVar[tuple[str, ...]] = ("images",)
    words: ClassVar[dict[str, str]] = {"train": "training", "val": "validation", "test": "testing"}

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        folders = set(folder.pictures.folders)
        if not any(f"{home.removesuffix('annotations/training')}images/training" in folders for home in folders):
            return []
        what = "label maps of every pixel, as ADE20K has them: init writes no recipe of segmentation"
        question = f"{what}; begin with tiny/segmentation, and read them by {{name: ade20k}}"
        return [Recognised("", {}, folder.files(NAMES, SCENES), question=question)]

    def __init__(self, root: Path, *, split: str | list[str] = "training", **options: Any) -> None:
        super().__init__(root, split=split, **options)
        self.parts = [self.words.get(name, name) for name in self.split_names]

    def files(self) -> list[Path]:
        return [path for name in (NAMES, SCENES) if (path := self.folder / name).is_file()]

    def write_miniature(self, miniature: Miniature) -> None:
        for part in self.parts:
            for n in miniature.numbers(f"ade20k-{part}"):
                name = f"ADE_{'train' if part == 'training' else 'val'}_{n:08d}"
                miniature.picture(self.folder / "images" / part / f"{name}.jpg")
                miniature.picture(self.folder / "annotations" / part / f"{name}.png", "L")

    def listed_folders(self) -> list[Path]:
        return [self.folder / kind / part for kind in ("images", "annotations") for part in self.parts]

    def require(self) -> None:
        hint = "point `root` at the folder that holds ADEChallengeData2016, or name it: folder=FOLDER"
        expected = "images/training, images/validation and annotations/ beside them"
        require_folders((self.folder / "images" / part for part in self.parts), hint, expected)
        super().require()

    def stream(self) -> Iterator[Example]:
        scenes = dict(line.split()[:2] for line in self._lines(SCENES) if len(line.split()) >= 2)
        paths = (path for part in self.parts for path in sorted((self.folder / "images" / part).iterdir()))
        for path in paths:
            if is_picture_file(path.name):
                yield self.labelled(path, scenes.get(path.stem), "scene")

    def label_maps(self) -> dict[str, Path]:
        pictures = {example.key: self._paths[example.key] for example in self.examples()}
        home = self.folder / "annotations"
        maps = {name: home / path.parent.name / f"{path.stem}.png" for name, path in pictures.items()}
        return {name: path for name, path in maps.items() if path.is_file()}

    def label_names(self) -> list[str]:
        rows = (re.split(r"\t+", line.strip()) for line in self._lines(NAMES)[1:] if line.strip())
        names: list[str] = []
        for number, row in enumerate(rows, 1):
            if len(row) < 2 or row[0].strip() != str(number):
                what, where = "The list of classes is malformed.", f"{self.folder / NAMES}:{number + 1}"
                expected = "Idx, Ratio, Train, Val, Stuff, Name with tabs between, Idx from 1 on"
                raise DataError(what, where=where, got="\t".join(row), expected=expected)
            # the first of the row's names, the whole row where another class has it
            first = re.split(r"[;,]", row[-1])[0].strip()
            names.append(row[-1].strip() if first in names else first)
        return names or [f"class {number}" for number in range(1, 151)]

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return read_text(path).splitlines() if path.is_file() else []
