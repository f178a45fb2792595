"""Flickr's token files: a line for each caption, and lists of the pictures of each part."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from vlcli.data.files import text_lines
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id


class Flickr(SplitFileReader):
    """Images with captions in the token files of Flickr8k and Flickr30k: ``NAME.jpg#0<tab>caption`` a line.

    The lists of the parts are for ``take``: ``in:Flickr_8k.trainImages.txt``.

    Args:
        file: the token file under the root; None: ``results_20130124.token``.
    """

    paper: ClassVar[str] = "Hodosh et al. 2013, Flickr8k; Young et al. 2014, Flickr30k"
    usual: ClassVar[tuple[str, ...]] = ("results_20130124.token",)

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        tokens = [name for name in folder.files("*.token", "*token*.txt", "*.tsv", "*.txt") if _is_tokens(folder, name)]
        best = min(tokens, key=lambda name: ("lemma" in name.lower(), name), default=None)
        if best is None:
            return []
        data = Recognised("captions", {"name": "flickr"}, [best], {"image": "name", "text": "caption"}).name_files()
        data.unused = [f"{name}: the captions are read from {best}" for name in tokens if name != best]
        data.files += [name for name in tokens if name != best]
        return [folder.with_lists(folder.with_images(data, [name for _, name, _ in _rows(folder.root / best)]))]

    def read_file(self, file: Path) -> Iterator[Example]:
        for key, name, text in _rows(file):
            yield Example(key, text, [self.picture(name)], text_key=key)


def _rows(file: Path) -> Iterator[tuple[str, str, str]]:
    for number, line in enumerate(text_lines(file), 1):
        label, tab, text = line.strip().partition("\t")
        name, _, caption = label.rpartition("#")
        if not line.strip():
            continue
        if not (tab and name and caption.isdigit() and text.strip()):
            expected = "NAME.jpg#NUMBER, a tabulator, the caption"
            raise DataError("The line holds no caption.", where=f"{file}:{number}", got=line[:80], expected=expected)
        yield f"{image_id(name)}#{caption}", name, text.strip()


def _is_tokens(folder: Folder, name: str) -> bool:
    lines = folder.text(name)[:20_000].splitlines()[:5]
    labels = [line.partition("\t")[0].rpartition("#") for line in lines if "\t" in line]
    return bool(labels) and len(labels) == len(lines) and all(number.isdigit() and file for file, _, number in labels)
