"""Flickr's token files: a line for each caption, and lists of the pictures of each part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from vlcli.data.files import text_lines
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id


class Flickr(Reader):
    """Images with captions in the token files of Flickr8k and Flickr30k: ``NAME.jpg#0<tab>caption`` a line.

    The lists of the parts are for ``take``: ``in:Flickr_8k.trainImages.txt``.

    Args:
        root: data root.
        split: fills ``{split}`` in the file's name.
        file: the token file under the root.
        images: folder that the file names are relative to.
        take: which images, see :mod:`vlcli.data.holdout`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Hodosh et al. 2013, Flickr8k; Young et al. 2014, Flickr30k"

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str = "results_20130124.token",
        images: str = "images",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file = file

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Token files; lists of pictures beside them that are named after parts choose the parts."""
        tokens = [name for name in folder.files("*.token", "*token*.txt", "*.tsv", "*.txt") if _is_tokens(folder, name)]
        best = min(tokens, key=lambda name: ("lemma" in name.lower(), name), default=None)
        if best is None:
            return []
        found = Recognised("captions", {"name": "flickr"}, [best], {"image": "name", "text": "caption"}).name_files()
        found.unused = [f"{name}: the captions are read from {best}" for name in tokens if name != best]
        found.files += [name for name in tokens if name != best]
        return [folder.with_lists(folder.with_images(found, [name for _, name, _ in _rows(folder.root / best)]))]

    def files(self) -> list[Path]:
        """The token file."""
        return list(dict.fromkeys(self.first_file(self.file, ())))

    def read(self) -> list[Example]:
        """One example per caption; keys are ``image#number``."""
        found = []
        for file in self.files():
            for key, name, text in _rows(file):
                found.append(Example(key, text, [self.picture(name)], text_key=key))
        return found


def _rows(file: Path) -> Iterator[tuple[str, str, str]]:
    """Key, file name and caption of each line."""
    for place, line in enumerate(text_lines(file), 1):
        label, tab, text = line.strip().partition("\t")
        name, _, number = label.rpartition("#")
        if not line.strip():
            continue
        if not (tab and name and number.isdigit() and text.strip()):
            expected = "NAME.jpg#NUMBER, a tabulator, the caption"
            raise DataError("The line holds no caption.", where=f"{file}:{place}", got=line[:80], expected=expected)
        yield f"{image_id(name)}#{number}", name, text.strip()


def _is_tokens(folder: Folder, name: str) -> bool:
    """Whether a file begins with lines of a name, a number and a caption."""
    lines = folder.text(name)[:20_000].splitlines()[:5]
    labels = [line.partition("\t")[0].rpartition("#") for line in lines if "\t" in line]
    return bool(labels) and len(labels) == len(lines) and all(number.isdigit() and file for file, _, number in labels)
