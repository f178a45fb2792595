"""Reads caption files of any known format, for tools that get files and no recipe."""

import json
from pathlib import Path
from typing import Any

from vlcli.data.concepts import captions_by_image
from vlcli.data.files import read_json, read_text
from vlcli.data.reader import Reader
from vlcli.data.readers.captions import Captions, Karpathy
from vlcli.data.readers.coco import CocoCaptions
from vlcli.errors import DataError


def read_captions(path: Path, split: str | list[str] = "train") -> list[list[str]]:
    """Read the captions of every picture of a file.

    Formats: COCO's annotations, Karpathy's split files, a list of ``{"image", "captions"}``, an object of file name ->
    captions, and plain text with one picture's caption a line.
    """
    path = path.expanduser().absolute()
    if not _is_json(path):
        captions = [[line.strip()] for line in read_text(path).splitlines() if line.strip()]
    else:
        captions = list(captions_by_image([_reader(path, read_json(path, (list, dict)), split)]).values())
    if not captions:
        raise DataError("The file holds no captions.", where=str(path))
    return captions


def _is_json(path: Path) -> bool:
    text = read_text(path).lstrip()
    if not text.startswith(("[", "{")):
        return False
    try:  # a sentence may begin with a bracket
        json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError:
        return path.suffix == ".json"
    return True


def _reader(path: Path, content: Any, split: str | list[str]) -> Reader:
    root, file = path.parent, str(path)
    if isinstance(content, dict) and isinstance(content.get("annotations"), list):
        return CocoCaptions(root, file=file)
    if isinstance(content, dict) and isinstance(content.get("images"), list):
        return Karpathy(root, file=file, split=split)
    return Captions(root, file=file)
