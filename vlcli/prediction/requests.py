"""Requests from a command line: pictures, folders of pictures and a text, or JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from vlcli.data.files import IMAGE_SUFFIXES
from vlcli.errors import DataError, UsageError, VlcliError, shown
from vlcli.files import walk
from vlcli.prediction.records import Failure, Request, Use

MAX_LINE = 1 << 24
"""Characters of a JSON line."""
LINE = '{"image": "photo.jpg", "text": "..."}, or "images": [...]; "key" names the request'


def split_words(words: Sequence[str], text: str | None) -> tuple[list[str], str | None]:
    """Split positional words into pictures and a text: the last word is the text if it names no file and no folder.

    Args:
        text: of the option ``--text``; then all words are pictures.
    """
    if text is not None or len(words) < 2 or _exists(words[-1]):
        return list(words), text
    if " " not in words[-1] and Path(words[-1]).suffix.lower() in IMAGE_SUFFIXES:  # a file that is not there
        return list(words), text
    return list(words[:-1]), words[-1]


def _exists(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # longer than a name can be
        return False


def requests_of(words: Sequence[str], text: str | None, use: Use) -> list[Request]:
    """Return a request for each picture, or one for all where a request takes several.

    Args:
        words: files, folders (with all pictures below) and ids in a store.

    Raises:
        DataError: a folder has no pictures.
        UsageError: there are not as many pictures as one request takes.
    """
    pictures = [picture for word in words for picture in _pictures(word)]
    if use.images == 1:
        return [Request([picture], text) for picture in pictures]
    if use.images and len(pictures) != use.images:
        what, got = f"{use.name} takes {use.images} pictures in one request.", f"{len(pictures)}"
        hint = f"give {use.images} pictures, or JSON lines: vlcli predict MODEL - < requests.jsonl"
        raise UsageError(what, got=got, expected=use.about, hint=hint)
    return [Request(pictures, text)]


def _pictures(word: str) -> list[str]:
    if not (_exists(word) and Path(word).is_dir()):
        return [word]
    files = [folder / name for folder, names in walk(Path(word)) for name in names if not name.startswith(".")]
    pictures = sorted(str(path) for path in files if path.suffix.lower() in IMAGE_SUFFIXES)
    if not pictures:
        expected = f"files like {', '.join(sorted(IMAGE_SUFFIXES))}"
        raise DataError("There is no picture in the folder.", where=word, expected=expected)
    return pictures


def read_lines(lines: Iterable[str]) -> Iterator[Request | Failure]:
    """Yield the requests of JSON lines; a line that is none becomes a failure, empty lines are passed over."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                yield _request(line)
            except (ValueError, TypeError, RecursionError) as error:
                fault = DataError("A line is no request.", where=f"line {number}", got=str(error), expected=LINE)
                yield Failure(Request([], key=f"line {number}"), fault)


def _request(line: str) -> Request:
    if len(line) > MAX_LINE:
        raise ValueError(f"{len(line):,} characters")
    value: Any = json.loads(line)
    if not isinstance(value, dict):
        raise TypeError(shown(value, 60))
    images = value.get("images", value.get("image"))
    images = [images] if isinstance(images, str) else images
    if not isinstance(images, list) or not images or not all(isinstance(one, str) and one for one in images):
        raise ValueError("no image" if images is None else f"image: {shown(images, 60)}")
    text = value.get("text")
    if text is not None and not isinstance(text, str):
        raise TypeError(f"text: {shown(text, 60)}")
    return Request(images, text, str(value.get("key", "")))


def failed(failures: Sequence[Failure], total: int) -> VlcliError:
    """Return the error that ends a command after some of several requests failed; each had its message before."""
    first = failures[0].error
    what, hint = f"{len(failures)} of {total} requests could not be answered.", first.hint
    got = f"the first: {first.what} {first.where or first.got}".strip()
    error = DataError(what, got=got, expected=first.expected, hint=hint or "the messages above say why")
    error.exit_code = first.exit_code
    return error
