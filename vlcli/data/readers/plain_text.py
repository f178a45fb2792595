"""Plain text: the layouts of BookCorpus and Wikipedia, packed so that every example is full."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Tokenizer, checks
from vlcli.data.files import read_lines, text_lines, value
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.data.readers.split_file import StreamReader
from vlcli.errors import DataError
from vlcli.plain import as_list

_TAG = re.compile(r"</?doc\b[^>]*>")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")
SUFFIXES = (".txt", ".jsonl", ".json", "")


class PlainText(StreamReader):
    """Text files for language modelling alone, one example as long as the model takes.

    Layouts: a sentence or paragraph a line (BookCorpus); documents between ``<doc ...>`` and ``</doc>`` (Wikipedia by
    WikiExtractor); JSON lines with ``text``. Blank lines and marks end a document, whose sentences fill examples.

    Args:
        split: fills ``{split}`` in ``files``.
        files: files or folders under the root, ``*`` allowed; None: ``text/{split}*``, else ``text``.
        across: whether an example may go on in the next document.
        pieces: word pieces of an example, special tokens included; None: the model's text length.
        images: not used.
        take: not used.
    """

    paper: ClassVar[str] = "VLMo, Bao et al. 2022, section 4.1 (Wikipedia and BookCorpus)"

    def __init__(
        self,
        root: Path,
        *,
        files: str | list[str] | None = None,
        across: bool = False,
        pieces: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.patterns, self.across, self.pieces = files, across, pieces

    def files(self) -> list[Path]:
        named = as_list(self.patterns or None)
        paths: list[Path] = []
        for split in self.split_names:
            patterns = [pattern.replace("{split}", split) for pattern in named]
            usual = [] if patterns else self._matching(f"text/{split}*")
            paths += usual or [path for pattern in patterns or ["text"] for path in self._matching(pattern)]
        return list(dict.fromkeys(paths)) or [self.root / [*named, "text"][0].replace("{split}", self.split)]

    def write_miniature(self, miniature: Miniature) -> None:
        for pattern in as_list(self.patterns or None) or ["text"]:
            text = "".join(f"{miniature.sentence(n, n % 4).capitalize()}.\n" for n in range(20 * PICTURES))
            miniature.write(self.root / pattern / "AA" / "wiki_00", f"<doc id=1>\n{text}</doc>\n")

    def _matching(self, pattern: str) -> list[Path]:
        if Path(pattern).is_absolute() or ".." in Path(pattern).parts:
            raise DataError("A path leaves the data root.", where="plain-text.files", got=pattern)
        paths = sorted(self.root.glob(pattern))
        inner = (file for path in paths for file in (sorted(path.rglob("*")) if path.is_dir() else [path]))
        return [file for file in inner if file.is_file() and file.suffix in SUFFIXES]

    def stream(self) -> Iterator[Example]:
        lines = chain.from_iterable(self._documents())
        yield from (Example(f"text-{number}", line) for number, line in enumerate(lines))

    def fit(self, tokenizer: Tokenizer, length: int) -> None:
        room = (self.pieces or length) - 2
        documents = (_sentences(document, tokenizer, room) for document in self._documents())
        parts = [chain.from_iterable(documents)] if self.across else documents
        texts = (text for sentences in parts for text, _ in _packed(sentences, room))
        self.restrict([Example(f"text-{number}", text) for number, text in enumerate(islice(texts, self.limit))])

    def _documents(self) -> Iterator[list[str]]:
        for path in self.files():
            yield from _json_documents(path) if path.suffix in (".jsonl", ".json") else _text_documents(path)


def _packed(parts: Iterable[tuple[str, int]], room: int) -> Iterator[tuple[str, int]]:
    """Join texts, each given with its number of pieces, while they fit into ``room`` pieces."""
    joined: list[str] = []
    used = 0
    for text, size in parts:
        if joined and used + size > room:
            yield " ".join(joined), used
            joined, used = [], 0
        joined.append(text)
        used += size
    if joined:
        yield " ".join(joined), used


def _sentences(lines: list[str], tokenizer: Tokenizer, room: int) -> Iterator[tuple[str, int]]:
    for sentence in (sentence for line in lines for sentence in _SENTENCE.split(line)):
        if (size := len(tokenizer.pieces(sentence))) <= room:
            yield sentence, size
        else:
            yield from _packed(((word, min(len(tokenizer.pieces(word)), room)) for word in sentence.split()), room)


def _text_documents(path: Path) -> Iterator[list[str]]:
    lines = (checks.sentence(_TAG.sub("", line), f"{path}:{number}") for number, line in enumerate(text_lines(path), 1))
    yield from (list(document) for filled, document in groupby(lines, bool) if filled)


def _json_documents(path: Path) -> Iterator[list[str]]:
    for where, row in read_lines(path):
        text = checks.sentence(value(row, "text", str, where), where)
        if lines := [part.strip() for part in text.splitlines() if part.strip()]:
            yield lines
