"""Reads lists of visual concepts by image, best first.

Formats: fenglinliu98/MIA's list (``image_id``, ``image_concepts``), lists and JSON lines with ``concepts`` and
optionally ``scores``, and one object of lists by image. A word may stand alone or with its score.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from vlcli.errors import DataError
from vlcli.features.concepts import CONCEPTS as SET
from vlcli.features.concepts import WORDS, concept_record
from vlcli.features.formats.base import ForeignImage, Format, FormatOptions, ImageNames, named_size, size_facts
from vlcli.features.schema import Record
from vlcli.images.boxes import image_id

_IMAGE = ("image_id", "file_name", "image", "id")
_LIST = ("image_concepts", "concepts", "words")
# Image, words, scores.
Row = tuple[str, list[str], list[float] | None]


class ConceptFormat(Format):
    """Lists of words by image."""

    name = "concepts"
    about = "lists of visual concepts as JSON or JSON lines (--vocabulary numbers the words)"
    source = "a JSON file"
    set = SET
    provenance: ClassVar = {"extractor": "imported: concepts", "boxes": "none"}

    def facts(self, source: Path, options: FormatOptions) -> dict[str, Any]:
        rows = _rows(source)
        scored = "as read" if any(scores is not None for _, _, scores in rows) else "not given: 1"
        if options.vocabulary is not None:
            words = read_words(options.vocabulary)
        else:
            counts = Counter(word for _, words, _ in rows for word in words)
            words = sorted(counts, key=lambda word: (-counts[word], word))
        return {WORDS: words, "scores": scored, **size_facts(options, "not given: 1 x 1")}

    def entries(self, source: Path, options: FormatOptions) -> Iterator[ForeignImage]:
        numbers = {word: number for number, word in enumerate(self.facts(source, options)[WORDS])}
        for number, (name, words, scores) in enumerate(_rows(source), 1):
            image = (options.pictures.find(name) if options.pictures else None) or name
            decode = partial(_decode, image, words, scores, numbers, options.pictures)
            yield ForeignImage(image, f"{source}: image {number}", decode)

    def count(self, source: Path) -> int:
        return len(_rows(source))


def read_words(path: Path) -> list[str]:
    """Read a vocabulary: a word a line (``man, NN, 51456`` too), or a JSON list of words or objects with ``word``.

    Raises DataError: the file cannot be read, is empty, or names a word twice.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
        if text.lstrip()[:1] in ("[", "{"):
            content = json.loads(text)
            content = content[WORDS] if isinstance(content, dict) else content
            words = [row["word"] if isinstance(row, dict) else str(row) for row in content]
        else:
            words = [line.split(",")[0].strip() for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        got = f"{type(error).__name__}: {error}"
        raise DataError("the vocabulary cannot be read", where=str(path), got=got, expected="a word a line") from None
    twice = [word for word, count in Counter(words).items() if count > 1]
    if twice or not words:
        got = f"{', '.join(twice[:3])} more than once" if twice else "no word"
        raise DataError("the vocabulary is not a list of different words", where=str(path), got=got)
    return words


def _rows(source: Path) -> list[Row]:
    try:
        text = source.read_text(encoding="utf-8-sig")
        try:
            content = json.loads(text)
        except json.JSONDecodeError:
            content = [json.loads(line) for line in text.splitlines() if line.strip()]
        if isinstance(content, dict) and not any(key in content for key in _LIST):
            content = [{"image_id": name, "concepts": words} for name, words in content.items()]
        return [_row(row) for row in (content if isinstance(content, list) else [content])]
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError) as error:
        what, where = "the file is no list of concepts", str(source)
        expected = 'objects such as {"image_id": 42, "concepts": ["dog", "grass"], "scores": [0.9, 0.7]}'
        raise DataError(what, where=where, got=f"{type(error).__name__}: {error}", expected=expected) from None


def _row(row: Mapping[str, Any]) -> Row:
    name = str(row[next(key for key in _IMAGE if key in row)])
    words = row[next(key for key in _LIST if key in row)]
    scores = row.get("scores")
    if words and not isinstance(words[0], str):
        words, scores = [word for word, _ in words], [score for _, score in words]
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError(f"image {name} has words that are no text, or no list of them")
    "".join(words).encode()  # half of a surrogate pair is refused
    if scores is not None and len(scores) != len(words):
        raise ValueError(f"image {name} has {len(words)} words and {len(scores)} scores")
    return image_id(name), words, scores


def _decode(
    name: str, words: list[str], scores: list[float] | None, numbers: Mapping[str, int], pictures: ImageNames | None
) -> Record:
    unknown = [word for word in words if word not in numbers]
    if unknown:
        raise ValueError(f"words outside the vocabulary: {', '.join(unknown[:3])}")
    values = [1.0] * len(words) if scores is None else [*map(float, scores)]
    best = sorted(range(len(words)), key=lambda row: -values[row])
    size = named_size(name, pictures, (1.0, 1.0))
    return concept_record(name, [numbers[words[i]] for i in best], [values[i] for i in best], size)
