"""The simplest caption files: images, each with a list of sentences."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

from vlcli.data.files import first_object, read_json, value
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.images.boxes import image_id
from vlcli.plain import as_list


class Captions(SplitFileReader):
    """Images with captions: a JSON list of ``{"image", "captions"}``, or an object of file name -> captions.

    Captions are a list of sentences or one sentence; several rows may speak of one image, as in the lists of ALBEF,
    BLIP and LAVIS (``{"image", "caption", "image_id"}``). A "caption" that is the path of its own image, as some copies
    of Flickr30k have it, is passed over.

    Args:
        file: the file under the root; None: ``captions_{split}.json``.
        image: field of the file name.
        text: field of the caption or captions; None: ``captions`` or ``caption``.
        captions: ``all`` (one example a caption), ``first``, or ``sample`` (one an image, drawn anew each epoch).
    """

    paper: ClassVar[str] = "Hodosh et al. 2013, Flickr8k; Young et al. 2014, Flickr30k"
    usual: ClassVar[tuple[str, ...]] = ("captions_{split}.json",)

    def __init__(
        self,
        root: Path,
        *,
        image: str = "image",
        text: str | None = None,
        captions: Literal["all", "first", "sample"] = "all",
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.fields, self.captions = (image, text), captions

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        files = [name for name, content in folder.documents() if _is_captions(content)]
        if not files:
            return []
        columns = {"image": "image", "text": _field(first_object(dict(folder.documents())[files[0]]))}
        data = Recognised("captions", {"name": "captions"}, files, columns).name_files()
        images = [image for name in files for image, *_ in _rows(folder.root / name)]
        return [folder.with_images(data, images, [folder.pictures.ending(image) for image in images])]

    def read(self) -> list[Example]:
        captions: dict[str, list[str]] = {}
        for file in self.files():
            for name, texts, where in _rows(file, *self.fields):
                if wrong := [text for text in texts if not isinstance(text, str)]:
                    raise DataError("A caption is no text.", where=where, got=repr(wrong[0]), expected="text")
                captions.setdefault(name, []).extend(texts)
        return [example for name, texts in captions.items() for example in self._of_image(name, texts)]

    def _of_image(self, file: str, captions: list[str]) -> list[Example]:
        image = self.picture(file)
        texts = [text.strip() for text in captions if not _is_path(text.strip(), file)]
        if self.captions == "sample" and texts:
            return [Example(image, texts[0], [image], choices=texts[1:])]
        kept = texts if self.captions == "all" else texts[:1]
        return [
            Example(f"{image}#{number}", text, [image], text_key=f"{image}#{number}")
            for number, text in enumerate(kept)
        ]


def _is_captions(content: Any) -> bool:
    if isinstance(content, list):
        rows = [row for row in content[:20] if isinstance(row, dict) and isinstance(row.get("image"), str)]
        several = any(isinstance(row.get(field), list) for row in rows for field in ("captions", "caption"))
        return several or any("caption" in row and "image_id" in row for row in rows)
    lists = list(content.values())[:20] if isinstance(content, dict) else []
    return bool(lists) and all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in lists)


def _rows(file: Path, image: str = "image", text: str | None = None) -> Iterator[tuple[str, list[Any], str]]:
    content = read_json(file, (list, dict))
    if isinstance(content, dict):
        for name in content:
            yield name, as_list(value(content, name, (list, str), str(file))), f"{file}: {name}"
        return
    for number, row in enumerate(content):
        where = f"{file}[{number}]"
        yield value(row, image, str, where), as_list(value(row, text or _field(row), (list, str), where)), where


def _field(row: Any) -> str:
    return "caption" if isinstance(row, dict) and "captions" not in row and "caption" in row else "captions"


def _is_path(text: str, file: str) -> bool:
    return " " not in text and "/" in text and image_id(text) == image_id(file)
