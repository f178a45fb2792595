"""Oxford 102 Flowers, as it is published: numbered pictures, and MATLAB files of their classes and parts."""

from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from vlcli.data.readers.image_classes import matrix
from vlcli.data.readers.split_file import FolderReader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised, parts_of
from vlcli.data.sample import Example
from vlcli.errors import DataError

_PARTS = {"train": "trnid", "val": "valid", "test": "tstid"}
_TABLES = ("imagelabels.mat", "setid.mat")


class OxfordFlowers(FolderReader):
    """Oxford 102 Flowers: 102 kinds of flowers.

    Reads ``imagelabels.mat``, ``setid.mat`` and the pictures ``image_00001.jpg`` in ``jpg`` beside them, else in the
    folder itself. Target ``label``, numbered from 0; the files have no names of the classes.

    Args:
        split: train, val or test.
    """

    paper: ClassVar[str] = "Nilsback and Zisserman 2008, Automated Flower Classification over a Large Number of Classes"
    splits: ClassVar[tuple[str, ...]] = tuple(_PARTS)
    usual: ClassVar[tuple[str, ...]] = ("flowers-102", "oxford-102-flowers", "")

    def __init__(self, root: Path, **options: Any) -> None:
        super().__init__(root, **options)
        self.folder = next((path for path in self.places if (path / _TABLES[0]).is_file()), self.places[-1])

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        homes = [str(PurePosixPath(name).parent) for name in folder.files(_TABLES[0])]
        records = []
        for home in homes:
            files = [PurePosixPath(home, name).as_posix() for name in _TABLES]
            if set(files) <= set(folder.every):
                columns = {"image": "number", "label": "labels"}
                data = Recognised("labels", {"name": "oxford-flowers"}, files, columns, parts_of(cls.splits))
                data.entry |= {} if home in (*cls.usual, ".") else {"folder": home}
                data.reasons["parts"] = "setid.mat names the parts"
                records.append(data)
        return records

    def files(self) -> list[Path]:
        return [self.folder / name for name in _TABLES]

    def read(self) -> list[Example]:
        labels_file, parts_file = self.files()
        labels = matrix(labels_file, "labels")
        home = self.folder / "jpg" if (self.folder / "jpg").is_dir() else self.folder
        examples = []
        for split in self.split_names:
            if split not in _PARTS:
                raise DataError("There is no such split.", where=str(parts_file), got=split, expected=", ".join(_PARTS))
            for number in map(int, matrix(parts_file, _PARTS[split])):
                if not 0 < number <= len(labels):
                    got, expected = f"picture {number}", f"1 to {len(labels)}"
                    raise DataError("A picture has no class.", where=str(parts_file), got=got, expected=expected)
                examples.append(self.labelled(home / f"image_{number:05}.jpg", int(labels[number - 1]) - 1))
        return examples

    def label_names(self) -> list[str]:
        return [str(number) for number in range(1, 1 + max(map(int, matrix(self.files()[0], "labels")), default=0))]
