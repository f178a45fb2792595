"""The simplest caption files: images, each with a list of sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data.files import first_object, read_json, value
from vlcli.data.reader import Reader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id


class Captions(Reader):
    """Images with captions: a JSON list of ``{"image", "captions"}``, or an object of file name -> captions.

    A "caption" that is the path of its own image, as some copies of Flickr30k have it, is passed over.

    Args:
        root: data root.
        split: fills ``{split}`` in the file's name.
        file: the file under the root.
        images: folder that the file names are relative to.
        captions: ``all`` (one example a caption), ``first``, or ``sample`` (one an image, drawn anew each epoch).
        take: which images, see :mod:`vlcli.data.take`.
        limit: read only so many examples.
    """

    paper: ClassVar[str] = "Hodosh et al. 2013, Flickr8k; Young et al. 2014, Flickr30k"

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str = "captions_{split}.json",
        images: str = "images",
        captions: Literal["all", "first", "sample"] = "all",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file, self.captions = file, captions

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Lists of ``image`` and ``captions``, and objects of lists of sentences."""
        files = [name for name, content in folder.documents() if _is_captions(content)]
        if not files:
            return []
        found = Recognised("captions", {"name": "captions"}, files, {"image": "image", "text": "captions"}).name_files()
        return [folder.with_images(found, [image for name in files for image, *_ in _rows(folder.root / name)])]

    def files(self) -> list[Path]:
        """The caption files, each once."""
        return list(dict.fromkeys(self.first_file(self.file, ())))

    def read(self) -> list[Example]:
        """One example per caption; keys are ``image#number`` as in Flickr's own files."""
        rows = [row for file in self.files() for row in _rows(file)]
        return [example for name, captions, where in rows for example in self._of_image(name, captions, where)]

    def _of_image(self, file: str, captions: list[str], where: str) -> list[Example]:
        image = self.picture(file)
        wrong = [text for text in captions if not isinstance(text, str)]
        if wrong:
            raise DataError("A caption is no text.", where=where, got=repr(wrong[0]), expected="text")
        texts = [text.strip() for text in captions if not _is_path(text, file)]
        if self.captions == "sample" and texts:
            return [Example(image, texts[0], [image], choices=texts[1:])]
        kept = texts if self.captions == "all" else texts[:1]
        keys = [f"{image}#{number}" for number in range(len(kept))]
        return [Example(key, text, [image], text_key=key) for key, text in zip(keys, kept, strict=True)]


def _is_captions(content: Any) -> bool:
    if isinstance(content, list):
        row = first_object(content)
        return isinstance(row.get("captions"), list) and isinstance(row.get("image"), str)
    lists = list(content.values())[:20] if isinstance(content, dict) else []
    return bool(lists) and all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)


def _rows(file: Path) -> Iterator[tuple[str, list[str], str]]:
    content = read_json(file, (list, dict))
    if isinstance(content, dict):
        for name in content:
            yield name, value(content, name, list, str(file)), f"{file}: {name}"
        return
    for place, row in enumerate(content):
        where = f"{file}[{place}]"
        yield value(row, "image", str, where), value(row, "captions", list, where), where


def _is_path(text: str, file: str) -> bool:
    return " " not in text.strip() and "/" in text and image_id(text.strip()) == image_id(file)
