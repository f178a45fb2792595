"""Plain text: the layouts of BookCorpus and Wikipedia, packed so that every example is full."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from vlcli.data import Example, Reader, Tokenizer, checks
from vlcli.data.files import parse_json
from vlcli.data.miniature import PICTURES, Miniature
from vlcli.errors import DataError
from vlcli.plain import as_list

_TAG = re.compile(r"</?doc\b[^>]*>")
_SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])")
SUFFIXES = (".txt", ".jsonl", ".json", "")


class PlainText(Reader):
    """Text files for language modelling alone, one example as long as the model takes.

    Layouts: one sentence or paragraph a line (BookCorpus); documents between ``<doc ...>`` and ``</doc>`` (Wikipedia as
    WikiExtractor leaves it); JSON lines with ``text``. Blank lines and document marks end a document. Sentences of a
    document follow one another in an example until it is full; with ``across`` the next document goes on in it.

    Args:
        split: fills ``{split}`` in ``files``.
        files: files or folders under the root, ``*`` allowed; None: ``text/{split}*``, else ``text``.
        across: whether an example may go on in the next document.
        pieces: pieces an example, specials included; None: the model's text length.
        images: not used.
        take: not used: there are no images.
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

    def read(self) -> list[Example]:
        lines = (line for document in self._documents() for line in document)
        return [Example(f"text-{number}", line) for number, line in enumerate(lines)]

    def fit(self, tokenizer: Tokenizer, length: int) -> None:
        room = (self.pieces or length) - 2
        packed: list[Example] = []
        for text in self._packed(tokenizer, room):
            if self.limit is not None and len(packed) >= self.limit:
                break
            packed.append(Example(f"text-{len(packed)}", text))
        self.restrict(packed)

    def _packed(self, tokenizer: Tokenizer, room: int) -> Iterator[str]:
        held: list[str] = []
        used = 0
        for document in self._documents():
            for sentence, size in self._sentences(document, tokenizer, room):
                if held and used + size > room:
                    yield " ".join(held)
                    held, used = [], 0
                held.append(sentence)
                used += size
            if held and not self.across:
                yield " ".join(held)
                held, used = [], 0
        if held:
            yield " ".join(held)

    @staticmethod
    def _sentences(lines: list[str], tokenizer: Tokenizer, room: int) -> Iterator[tuple[str, int]]:
        for line in lines:
            for sentence in _SENTENCE.split(line):
                size = len(tokenizer.pieces(sentence))
                if size <= room:
                    yield sentence, size
                    continue
                part: list[str] = []
                count = 0
                for word in sentence.split():
                    more = min(len(tokenizer.pieces(word)), room)
                    if part and count + more > room:
                        yield " ".join(part), count
                        part, count = [], 0
                    part.append(word)
                    count += more
                if part:
                    yield " ".join(part), count

    def _documents(self) -> Iterator[list[str]]:
        for path in self.files():
            yield from _json_documents(path) if path.suffix in (".jsonl", ".json") else _text_documents(path)


def _text_documents(path: Path) -> Iterator[list[str]]:
    held: list[str] = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                text = checks.sentence(_TAG.sub("", line), f"{path}:{number}")
                if text:
                    held.append(text)
                elif held:
                    yield held
                    held = []
    except UnicodeDecodeError as error:
        raise DataError("A text file is not UTF-8.", where=str(path), got=f"byte {error.start}") from None
    if held:
        yield held


def _json_documents(path: Path) -> Iterator[list[str]]:
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            where = f"{path}:{number}"
            try:
                text = parse_json(line, where, one_line=True)["text"]
            except (KeyError, TypeError):
                what, expected = "A line is no JSON object with a text.", '{"text": "..."}'
                raise DataError(what, where=where, expected=expected) from None
            if lines := [part.strip() for part in checks.sentence(text, where).splitlines() if part.strip()]:
                yield lines
