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
from vlcli.plain import as_list


class Captions(Reader):
    """Images with captions: a JSON list of ``{"image", "captions"}``, or an object of file name -> captions.

    Captions are a list of sentences or one sentence; several rows may speak of one image, as in the lists of ALBEF,
    BLIP and LAVIS (``{"image", "caption", "image_id"}``). A "caption" that is the path of its own image, as some copies
    of Flickr30k have it, is passed over.

    Args:
        root: data root.
        split: fills ``{split}`` in the file's name.
        file: the file under the root.
        images: folder that the file names are relative to.
        image: field of the file name.
        text: field of the caption or captions; None: ``captions`` or ``caption``.
        captions: ``all`` (one example a caption), ``first``, or ``sample`` (one an image, drawn anew each epoch).
        take: which images, see :mod:`vlcli.data.holdout`.
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
        image: str = "image",
        text: str | None = None,
        captions: Literal["all", "first", "sample"] = "all",
        take: str | None = None,
        limit: int | None = None,
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file, self.captions = file, captions
        self.fields = image, text

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Lists of ``image`` and ``captions``, and objects of lists of sentences."""
        files = [name for name, content in folder.documents() if _is_captions(content)]
        if not files:
            return []
        columns = {"image": "image", "text": _field(first_object(dict(folder.documents())[files[0]]))}
        found = Recognised("captions", {"name": "captions"}, files, columns).name_files()
        images = [image for name in files for image, *_ in _rows(folder.root / name)]
        return [folder.with_images(found, images, [folder.pictures.ending(image) for image in images])]

    def files(self) -> list[Path]:
        """The caption files, each once."""
        return list(dict.fromkeys(self.first_file(self.file, ())))

    def read(self) -> list[Example]:
        """One example per caption; keys are ``image#number`` as in Flickr's own files."""
        captions: dict[str, list[str]] = {}
        for file in self.files():
            for name, texts, where in _rows(file, *self.fields):
                if wrong := [text for text in texts if not isinstance(text, str)]:
                    raise DataError("A caption is no text.", where=where, got=repr(wrong[0]), expected="text")
                captions.setdefault(name, []).extend(texts)
        return [example for name, texts in captions.items() for example in self._of_image(name, texts)]

    def _of_image(self, file: str, captions: list[str]) -> list[Example]:
        image = self.picture(file)
        texts = [text.strip() for text in captions if not _is_path(text, file)]
        if self.captions == "sample" and texts:
            return [Example(image, texts[0], [image], choices=texts[1:])]
        kept = texts if self.captions == "all" else texts[:1]
        keys = [f"{image}#{number}" for number in range(len(kept))]
        return [Example(key, text, [image], text_key=key) for key, text in zip(keys, kept, strict=True)]


def _is_captions(content: Any) -> bool:
    if isinstance(content, list):
        rows = [row for row in content[:20] if isinstance(row, dict) and isinstance(row.get("image"), str)]
        several = any(isinstance(row.get(field), list) for row in rows for field in ("captions", "caption"))
        return several or any("caption" in row and "image_id" in row for row in rows)
    lists = list(content.values())[:20] if isinstance(content, dict) else []
    return bool(lists) and all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)


def _rows(file: Path, image: str = "image", text: str | None = None) -> Iterator[tuple[str, list[Any], str]]:
    """File name, captions and place of each row."""
    content = read_json(file, (list, dict))
    if isinstance(content, dict):
        for name in content:
            yield name, as_list(value(content, name, (list, str), str(file))), f"{file}: {name}"
        return
    for place, row in enumerate(content):
        where = f"{file}[{place}]"
        yield value(row, image, str, where), as_list(value(row, text or _field(row), (list, str), where)), where


def _field(row: Any) -> str:
    """The field that holds the captions of a row."""
    return "caption" if isinstance(row, dict) and "captions" not in row and "caption" in row else "captions"


def _is_path(text: str, file: str) -> bool:
    return " " not in text.strip() and "/" in text and image_id(text.strip()) == image_id(file)
