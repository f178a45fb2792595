"""Builds, reads and writes vocabularies of visual concepts: the most frequent words of captions.

After Fang et al. 2015 (From Captions to Visual Concepts and Back), in its file format: lines of ``man, NN, 51456``.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from vlcli.data.english import FUNCTION_WORDS, GROUPS, part_of_speech
from vlcli.data.files import parse_json, read_text, value
from vlcli.data.reader import Reader
from vlcli.data.sample import Example
from vlcli.errors import DataError, UsageError
from vlcli.files import write_text
from vlcli.images.boxes import BoxList

# Parts of speech that can be seen: things, actions, qualities.
CONTENT = ("NN", "VB", "JJ")
_TOKEN = re.compile(r"n't\b|'(?:s|re|ve|ll|d|m)\b|[^\W_]+?(?=n't\b)|[^\W_]+(?:-[^\W_]+)*")


def tokens(caption: str) -> list[str]:
    """Split a caption into lower-case words without punctuation; ``man's`` is two words, as in treebanks."""
    return _TOKEN.findall(caption.lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


@dataclass(frozen=True)
class Word:
    """One visual concept: a word of the captions that an image classifier learns.

    Attributes:
        word: lower-case.
        pos: part of speech, one of ``vlcli.data.english.GROUPS``.
        count: occurrences in the captions.
        images: pictures with the word in a caption; 0: unknown.
    """

    word: str
    pos: str
    count: int = 0
    images: int = 0


def build_vocabulary(
    captions: Iterable[Sequence[str]],
    size: int = 1000,
    *,
    pos: Sequence[str] = CONTENT,
    function_words: bool = False,
    min_count: int = 1,
) -> list[Word]:
    """Return the most frequent words of captions. Raises DataError: no word is left.

    Args:
        captions: the captions of each picture.
        size: most words; 0 for all.
        pos: parts of speech that are kept; all of ``GROUPS`` is the published choice. UsageError: an unknown one.
        function_words: keep articles, auxiliaries and the like whose part of speech would pass.
    """
    if unknown := sorted(set(pos) - set(GROUPS)):
        raise UsageError("There is no such part of speech.", got=", ".join(unknown), expected=", ".join(GROUPS))
    counts, images = Counter[str](), Counter[str]()
    for texts in captions:
        words = [word for text in texts for word in tokens(text)]
        counts.update(words)
        images.update(set(words))
    kept = [
        Word(word, part_of_speech(word), count, images[word])
        for word, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        if count >= min_count and part_of_speech(word) in pos and (function_words or word not in FUNCTION_WORDS)
    ]
    if not kept:
        got = f"{len(counts)} different words"
        raise DataError("No word is left for the vocabulary.", got=got, hint="loosen pos, function_words or min_count")
    return kept[: size or None]


def read_vocabulary(path: Path) -> list[Word]:
    """Read lines ``word, POS, count`` or a word a line, or JSON (words, or objects).

    Raises DataError: the file is missing, malformed, empty, or lists a word twice.
    """
    text = read_text(path)
    words = _from_json(path, text) if text.lstrip().startswith(("[", "{")) else _from_lines(path, text)
    twice = [word for word, count in Counter(word.word for word in words).items() if count > 1]
    if not words or twice:
        got = f"{twice[0]!r} twice" if twice else "no word"
        raise DataError("The vocabulary cannot be used.", where=str(path), got=got, expected="different words")
    return words


def _from_lines(path: Path, text: str) -> list[Word]:
    words = []
    for number, line in enumerate(text.splitlines(), 1):
        parts = [part.strip() for part in line.split(",")]
        if not parts[0]:
            continue
        if len(parts) > 3 or (len(parts) == 3 and not parts[2].isdecimal()):
            expected = "a word, or: word, POS, count"
            raise DataError("The line is no word.", where=f"{path}:{number}", got=line, expected=expected)
        pos = parts[1] if len(parts) > 1 else part_of_speech(parts[0].lower())
        words.append(Word(parts[0].lower(), pos, int(parts[2]) if len(parts) == 3 else 0))
    return words


def _from_json(path: Path, text: str) -> list[Word]:
    content = parse_json(text, str(path))
    rows = value(content, "words", list, str(path)) if isinstance(content, dict) else content
    words = []
    for number, row in enumerate(rows):
        fields = {"word": row} if isinstance(row, str) else row
        word = str(value(fields, "word", str, f"{path}: words[{number}]")).lower()
        numbers = {name: int(fields[name]) for name in ("count", "images") if isinstance(fields.get(name), int)}
        words.append(Word(word, str(fields.get("pos") or part_of_speech(word)), **numbers))
    return words


def write_vocabulary(path: Path, words: Sequence[Word]) -> Path:
    """Write a vocabulary, as JSON where the name ends so, else as the published lines; whole or not at all."""
    if path.suffix == ".json":
        text = json.dumps({"words": [asdict(word) for word in words]}, ensure_ascii=False, indent=1) + "\n"
    else:
        text = "".join(f"{word.word}, {word.pos}, {word.count}\n" for word in words)
    return write_text(path, text)


def captions_by_image(readers: Iterable[Reader]) -> dict[tuple[str, str], list[str]]:
    """Return the captions of every picture, by (number of the data set, image id)."""
    captions: dict[tuple[str, str], list[str]] = {}
    for number, reader in enumerate(readers):
        for example in reader.examples():
            if example.text is not None and example.images:
                captions.setdefault((str(number), example.images[0]), []).extend([example.text, *example.choices])
    return captions


class ByImage(Reader):
    """A caption data set with one example a picture, whose target ``words`` are those of all its captions."""

    def __init__(self, inner: Reader) -> None:
        super().__init__(inner.root, split=inner.split_names)
        self.inner, self.weight, self.image_folder = inner, inner.weight, inner.image_folder

    @property
    def label(self) -> str:
        return self.inner.label

    def files(self) -> list[Path]:
        return self.inner.files()

    def notes(self) -> list[str]:
        return self.inner.notes()

    def read(self) -> list[Example]:
        if wrong := next((example for example in self.inner.examples() if len(example.images) != 1), None):
            got = f"{wrong.key!r} has {len(wrong.images)} pictures"
            raise DataError("Concepts need one picture for each example.", where=self.label, got=got, expected="one")
        captions = captions_by_image([self.inner])
        return [
            Example(image, None, [image], targets={"words": sorted({word for text in texts for word in tokens(text)})})
            for (_, image), texts in captions.items()
        ]

    def locate(self, name: str) -> Path:
        return self.inner.locate(name)

    def boxes(self) -> dict[str, BoxList]:
        return self.inner.boxes()


# Target: every caption of the example's pictures; empty where the data have none.
REFERENCES = "references"


class WithReferences(ByImage):
    """A caption data set whose examples have all captions of their pictures; those of one example are a group.

    ``by_picture``: one example a picture (or group), its caption drawn anew each epoch; else every example.
    """

    def __init__(self, inner: Reader, *, by_picture: bool) -> None:
        super().__init__(inner)
        self.by_picture = by_picture

    def read(self) -> list[Example]:
        examples, first = _with_references(self.inner.examples(), lambda example: tuple(example.images))
        if not self.by_picture:
            return examples
        pictures = []
        for one in first:
            key = one.images[0] if len(one.images) == 1 else one.key
            text, *choices = one.targets[REFERENCES] or [None]
            pictures.append(Example(key, text, one.images, key, one.targets, choices))
        return pictures


class OfAlbum(ByImage):
    """A data set of stories whose examples have all stories of their album, named by the target ``album``.

    ``first``: only the first story of each album; else every example.
    """

    def __init__(self, inner: Reader, album: str, *, first: bool) -> None:
        super().__init__(inner)
        self.album, self.first = album, first

    def read(self) -> list[Example]:
        examples, first = _with_references(self.inner.examples(), lambda example: str(example.targets[self.album]))
        return first if self.first else examples


def _with_references(
    examples: Sequence[Example], group_of: Callable[[Example], Hashable]
) -> tuple[list[Example], list[Example]]:
    texts: dict[Hashable, list[str]] = defaultdict(list)
    first: dict[Hashable, Example] = {}
    changed = []
    for example in examples:
        group = group_of(example)
        if example.text is not None:
            texts[group] += [example.text, *example.choices]
        changed.append(replace(example, targets={**example.targets, REFERENCES: texts[group]}))
        first.setdefault(group, changed[-1])
    return changed, list(first.values())
