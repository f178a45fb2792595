"""ADE20K's scene-parsing benchmark: pictures, and a picture of class ids for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from vlcli.data.files import IMAGE_SUFFIXES, inside, read_text
from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id

NAMES, SCENES = "objectInfo150.txt", "sceneCategories.txt"


class ADE20K(Reader):
    """Pictures with the class of every pixel: 150 classes from 1, 0 for what has none; target ``scene``.

    Looks for ``images/{training,validation}/*`` and ``annotations/{training,validation}/*.png`` below the root, below
    ``ADEChallengeData2016`` and below ``ade20k``. ``objectInfo150.txt`` names the classes, ``sceneCategories.txt`` the
    scenes, where they are there.

    Args:
        root: data root.
        split: training or validation (train, val).
        folder: where the data lie, under the root; empty: the usual places.
        take: which pictures, see :mod:`vlcli.data.holdout`.
        limit: read only so many.
    """

    paper: ClassVar[str] = "Zhou et al. 2019, Semantic Understanding of Scenes through the ADE20K Dataset"
    splits: ClassVar[tuple[str, ...]] = ("training", "validation")
    reads_folders: bool = True
    held_out_splits: ClassVar[tuple[str, ...]] = ("validation", "val", "testing", "test")
    usual: ClassVar[tuple[str, ...]] = ("ADEChallengeData2016", "ade20k", "")
    words: ClassVar[dict[str, str]] = {"train": "training", "val": "validation", "test": "testing"}

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "training",
        folder: str = "",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=".", take=take, limit=limit)
        options = [inside(self.root, place) for place in ([folder] if folder else self.usual)]
        self.folder = next((place for place in options if (place / "images").is_dir()), options[0])
        self.parts = [self.words.get(name, name) for name in self.split_names]

    def files(self) -> list[Path]:
        """The lists of classes and scenes, where they are there."""
        return [path for name in (NAMES, SCENES) if (path := self.folder / name).is_file()]

    def require(self) -> None:
        """Raise a DataError where a split's folder is missing."""
        for part in self.parts:
            if not (self.folder / "images" / part).is_dir():
                raise DataError(
                    "The folder of pictures is missing.",
                    where=str(self.folder / "images" / part),
                    expected="images/training, images/validation and annotations/ beside them",
                    hint="point `root` at the folder that holds ADEChallengeData2016, or name it: folder=FOLDER",
                )
        super().require()

    def read(self) -> list[Example]:
        """One example a picture, by name."""
        scenes = dict(line.split()[:2] for line in self._lines(SCENES) if len(line.split()) >= 2)
        found = []
        for part in self.parts:
            for path in sorted((self.folder / "images" / part).iterdir()):
                if path.suffix.lower() in IMAGE_SUFFIXES:
                    name = self.note(image_id(path), str(path.absolute()))
                    scene = {"scene": scenes[path.stem]} if path.stem in scenes else {}
                    found.append(Example(name, None, [name], targets=scene))
        return found

    def label_maps(self) -> dict[str, Path]:
        """The picture of class ids of each picture that has one."""
        maps = {}
        for example in self.examples():
            picture = self._paths[example.images[0]]
            labels = self.folder / "annotations" / picture.parent.name / f"{picture.stem}.png"
            if labels.is_file():
                maps[example.images[0]] = labels
        return maps

    def label_names(self) -> list[str]:
        """The classes in the order of their ids: the first of each row's names, the whole row where that is taken."""
        rows = [re.split(r"\t+", line.strip()) for line in self._lines(NAMES)[1:] if line.strip()]
        names: list[str] = []
        for number, row in enumerate(rows, 1):
            if len(row) < 2 or row[0].strip() != str(number):
                got = "\t".join(row)
                raise DataError(
                    "The list of classes is malformed.", where=f"{self.folder / NAMES}:{number + 1}", got=got,
                    expected="Idx, Ratio, Train, Val, Stuff, Name with tabs between, Idx from 1 on",
                )  # fmt: skip
            first = re.split(r"[;,]", row[-1])[0].strip()
            names.append(row[-1].strip() if first in names else first)
        return names or [f"class {number}" for number in range(1, 151)]

    def _lines(self, name: str) -> list[str]:
        path = self.folder / name
        return read_text(path).splitlines() if path.is_file() else []
