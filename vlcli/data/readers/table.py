"""Tables of one's own: rows with columns that a recipe names, in any file format."""

from __future__ import annotations

import difflib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vlcli.data.files import inside, known_encoding, read_text
from vlcli.data.reader import Reader
from vlcli.data.readers import cells
from vlcli.data.readers.column_types import ROLES, ColumnType, check_types, decide, other_splits
from vlcli.data.readers.several import SeveralLabels
from vlcli.data.readers.templates import fields_of, filled, is_template
from vlcli.data.recognition.folder import Folder
from vlcli.data.recognition.generic import recognise_tables
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.data.texts import sentence
from vlcli.errors import DataError, shown
from vlcli.images.boxes import NO_AREA, BoxList
from vlcli.plain import as_list

COLUMNS = {
    "image": "image",
    "id": "id",
    "text": "text",
    "label": "label",
    "boxes": "boxes",
    "box_labels": "box_labels",
    "answers": "answers",
}
"""Column names that hold unless a recipe names others."""


NO_COLUMN = "\0"
"""Stands for a column that no table has."""
MOST_NAMED = 40
"""Columns that a message names."""


class Table(Reader):
    """What JSON lines, CSV and other tables share: rows in, examples out; ``jsonl`` documents the options.

    Subclasses define :meth:`rows`.
    """

    usual_file: ClassVar[str] = ""
    """The file where a recipe names none; ``{split}`` is filled in."""

    several: str = ";"
    """Separates several pictures, or the names of several labels, in one cell."""
    format: ClassVar[str] = ""
    """The name under which it is registered, where it reads tables of any columns that ``vlcli init`` meets."""
    recognise_order: ClassVar[int] = 1

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        """Tables in which a column names pictures; the others' roles follow from what they hold."""
        return recognise_tables(folder, cls.format) if "format" in vars(cls) else []

    pictures_help: ClassVar[str] = "name the column that holds them (image=COLUMN), or their folder (images=FOLDER)"
    keys_help: ClassVar[str] = "name a column whose values differ (id=COLUMN), or number the rows (id='')"
    cells_are_text: ClassVar[bool] = False
    """Whether files write every cell as text."""

    def __init__(
        self,
        root: Path,
        *,
        split: str | list[str] = "train",
        file: str | None = None,
        images: str = "images",
        id: str = COLUMNS["id"],
        image: str | list[str] = COLUMNS["image"],
        text: str | list[str] = COLUMNS["text"],
        label: str | list[str] = COLUMNS["label"],
        box: str | None = None,
        boxes: str = COLUMNS["boxes"],
        box_labels: str = COLUMNS["box_labels"],
        answers: str = COLUMNS["answers"],
        choices: str | None = None,
        correct: str = "correct_choice_idx",
        extra: list[str] = [],  # noqa: B006
        labels: str | list[str] | None = None,
        only: dict[str, str] = {},  # noqa: B006
        types: dict[str, str] = {},  # noqa: B006
        take: str | None = None,
        limit: int | None = None,
        encoding: str = "utf-8",
        sentences: str | None = None,
        language: Literal["english", "other"] = "english",
    ) -> None:
        super().__init__(root, split=split, images=images, take=take, limit=limit)
        self.file, self.encoding = file or self.usual_file, known_encoding(encoding)
        self.sources = [image] if isinstance(image, str) else list(image)
        one = label if isinstance(label, str) else NO_COLUMN
        self.texts = [text] if isinstance(text, str) else list(text)
        self.columns = {"id": id, "text": self.texts[0], "label": one, "boxes": boxes, "box_labels": box_labels}
        self.columns |= {"answers": answers, **({} if box is None else {"box": box})}
        self.columns |= {} if choices is None else {"choices": choices}
        self.correct = correct
        self.several_columns = [] if isinstance(label, str) else list(label)
        self.extra, self.labels, self.only, self.sentences = extra, labels, only, sentences
        self.language, self.types = language, types
        check_types(types)
        self._decided: dict[str, list[bool]] = {}  # by role the fields of its ColumnType
        self._several: SeveralLabels | None = None
        self._first_number = 0
        self._words: list[str] = []
        self._box_words: list[str] = []
        self._boxes: dict[str, BoxList] = {}
        self._spoken: dict[str, list[list[float]]] = {}

    def files(self) -> list[Path]:
        """The table(s), each once, and the file of class names."""
        return self.tables() + ([inside(self.root, self.labels)] if isinstance(self.labels, str) else [])

    def tables(self) -> list[Path]:
        """The table(s), each once."""
        return list(dict.fromkeys(self.first_file(self.file, ())))

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every row with its place."""
        raise NotImplementedError(f"{type(self).__name__} cannot read {file}")

    def read(self) -> list[Example]:
        """One example a row that ``only`` admits, or one a sentence where a cell holds several."""
        return list(self.stream())

    def stream(self) -> Iterator[Example]:
        """The examples; the words of labels, which are numbered in order, are gathered where the first is met."""
        self._words, self._box_words, self._spoken = self._listed_words(), [], {}
        gathered, lacking, place = False, Counter[str](), -1
        if self.several_columns:
            self._several = SeveralLabels(self.several_columns, self._words or None, self.several)
            self._several.gather(self._admitted())
            self._words = self._several.names
        for place, (where, row) in enumerate(self._admitted()):
            if not gathered and any(row.get(self.columns[role]) is not None for role in ROLES):
                gathered = True
                self._gather()
            lacking.update(role for role in ("label", "answers") if row.get(self.columns[role]) is None)
            for number, text in enumerate(self._sentences(row)):
                example = self._example({**row, self.columns["text"]: text} if text else row, where, place)
                example.key += f"#{number}" if number else ""
                yield example
        for role, count in lacking.items():
            if count <= place:
                self.left_out[f"cells of {self.columns[role]!r} that are empty: their rows have no {role}"] = count

    def _sentences(self, row: dict[str, Any]) -> list[Any]:
        """The sentences of several columns, or of a cell that holds several; else None alone: it counts as it is."""
        given = row.get(self.columns["text"])
        if len(self.texts) > 1:
            given = [row.get(column) for column in self.texts]
        elif isinstance(given, str) and self.sentences:
            given = given.split(self.sentences)
        texts = [text for text in given if text not in ("", None)] if isinstance(given, list) else []
        return [text.strip() if isinstance(text, str) else text for text in texts] or [None]

    def _admitted(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows that ``only`` admits, the first of all checked for its columns."""
        rows = (found for file in self.tables() for found in self._of_file(file))
        for number, (where, row) in enumerate(rows):
            if not number:
                self._check_columns(where, row)
            if not self.only or all(str(row.get(k)) == v for k, v in self.only.items()):
                yield where, row

    def _of_file(self, file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
        """The rows of a file, with the split that it is named by where templates of file names use that."""
        used = any(is_template(source) and "split" in fields_of(source) for source in self.sources)
        files = zip(self.split_names, self.first_file(self.file, ()), strict=True) if used else ()
        named = [split for split, path in files if path == file]
        split = {"split": named[0]} if len(named) == 1 else {}
        yield from ((where, split | row) for where, row in self.rows(file))

    def _gather(self) -> None:
        """Decide the types of labels and answers, check all labels, and number those that are words."""
        kinds = {role: self._type_of(role) for role in ROLES}
        self._decided = {role: [kind.number, kind.listed] for role, kind in kinds.items() if kind is not None}
        words: dict[str, set[str]] = {"label": set(), "box_labels": set()}
        for where, row in self._admitted():
            for role, found in words.items():
                items = as_list(self._cell(row, role, where)) if row.get(self.columns[role]) is not None else []
                found.update(str(cells.label(item, where, self.columns[role])) for item in items if item is not None)
        for role, found in words.items():
            if (kind := kinds[role]) is None or kind.number:
                found.clear()
        self._words, self._box_words = self._words or sorted(words["label"]), sorted(words["box_labels"])

    def _type_of(self, role: str) -> ColumnType | None:
        """The type of a column: the recipe's, else that of all its cells in the files of all splits."""
        if self.types.get(role) in ("number", "text"):
            return ColumnType(self.types[role] == "number")
        found = decide(self._column(role), self.cells_are_text)
        return found if role not in self.types else ColumnType(found is not None and found.number, listed=True)

    def _column(self, role: str) -> Iterator[Any]:
        """The cells of a column that hold anything, those of other splits after the reader's own."""
        own = self.tables()
        others = [other for file in own for other in other_splits(file, self.root) if other not in own]
        for file in dict.fromkeys([*own, *others]):
            for _, row in self.rows(file):
                if (cell := row.get(self.columns[role])) is not None:
                    yield int(cell) if role == "label" and isinstance(cell, bool) else cell

    def _cell(self, row: dict[str, Any], role: str, where: str) -> Any:
        """A label or an answer in the one form that it has in its column."""
        cell = row.get(self.columns[role])
        if role == "label" and isinstance(cell, bool):
            cell = int(cell)
        kind = ColumnType(*self._decided[role]) if role in self._decided else decide([cell], self.cells_are_text)
        try:
            return cell if cell is None or kind is None else kind.value(cell)
        except ValueError:
            hint = f"as text, each value is its own: types: {{{role}: text}}"
            what = f"A cell of {self.columns[role]!r} is not of its column's type."
            raise DataError(what, where=where, got=shown(cell), expected=str(kind), hint=hint) from None

    def decisions(self) -> list[str]:
        """Say as what the columns of labels and answers are read; called after :meth:`examples`."""
        found = ((role, ColumnType(*kind)) for role, kind in self._decided.items())
        return [f"{self.label}: {self.columns[role]!r} ({role}) is read as {kind}" for role, kind in found]

    def _listed_words(self) -> list[str]:
        """The class names that the option ``labels`` lists, itself or in a file."""
        if not isinstance(self.labels, str):
            return list(self.labels or ())
        self._first_number, names = class_names_of(inside(self.root, self.labels))
        return names

    def first_examples(self, count: int) -> list[Example]:
        """Of the first rows that ``only`` admits, without their labels, whose words stand in all rows."""
        rows = itertools.chain.from_iterable(map(self._of_file, self.tables()))
        first = next(rows, None)
        if first is None:
            return []
        self._check_columns(*first)
        found: list[Example] = []
        for where, row in itertools.chain([first], itertools.islice(rows, 100 * count)):
            if len(found) == count:
                break
            if all(str(row.get(k)) == v for k, v in self.only.items()):
                left_out = {*self.several_columns, *(self.columns.get(name) for name in ("label", "box", "boxes"))}
                unlabelled = {k: v for k, v in row.items() if k not in left_out}
                if (text := self._sentences(row)[0]) is not None:
                    unlabelled[self.columns["text"]] = text
                found.append(self._example({**dict.fromkeys(self.extra), **unlabelled}, where, len(found)))
        return found

    def place_of(self, number: int) -> str:
        """File and line of the row of an example."""
        rows = (where for where, row in self._admitted() for _ in self._sentences(row))
        return next(itertools.islice(rows, number, None))

    def boxes(self) -> dict[str, BoxList]:
        """The boxes column, by image id; without one, the boxes that sentences about a picture speak of, each once."""
        used = dict.fromkeys(name for example in self.examples() for name in example.images)
        spoken = {name: BoxList(np.array(found, np.float32)) for name, found in self._spoken.items()}
        known = spoken | self._boxes
        return {name: known[name] for name in used if name in known}

    def label_names(self) -> list[str]:
        """The words of the label column, in the order of their numbers; empty where labels are numbers."""
        self.examples()
        return self._words

    def class_names(self) -> list[str]:
        """The words of the box-label column, in the order of their numbers."""
        self.examples()
        return self._box_words

    def _check_columns(self, where: str, row: dict[str, Any]) -> None:
        named = [name for key, name in self.columns.items() if name not in (COLUMNS.get(key), NO_COLUMN, "")]
        named += self.texts[1:] + self.several_columns + self.extra + list(self.only)
        pictures = [name for source in self.sources for name in fields_of(source) if name != "split"]
        if self.sources != [COLUMNS["image"]]:
            named += pictures
        absent = [name for name in dict.fromkeys(named) if name not in row]
        if absent or not ({*pictures, self.columns["text"]} & set(row)):
            raise DataError(
                "The table lacks a column.",
                where=where,
                got=", ".join(shown(str(name), 60).strip("'") for name in list(row)[:MOST_NAMED]),
                expected=", ".join(absent) or f"{self.sources[0]} or {self.columns['text']}",
                hint=f"name the columns, e.g. image=file text=caption{_close(absent, list(row))}"
                + ("" if any(str(name).isascii() for name in row) else ", or the encoding of the file: encoding=utf-8"),
            )

    def _example(self, row: dict[str, Any], where: str, place: int) -> Example:
        get: Callable[[str], Any] = lambda name: row.get(self.columns[name])  # noqa: E731
        images = [self.picture(name) for source in self.sources for name in self._pictures(source, row, where)]
        text = self._text(row, where)
        if text is None and not images:
            raise DataError("The row has neither image nor text.", where=where, got=shown(row))
        targets: dict[str, Any] = {name: row[name] for name in self.extra}
        if get("label") is not None:
            targets["label"] = self._label(self._cell(row, "label", where), where)
        if self._several is not None and not row.keys().isdisjoint(self.several_columns):
            targets |= self._several.of(row, where)
        if get("answers") is not None:
            targets |= cells.answers(self._cell(row, "answers", where), where, self.language == "english")
        if "choices" in self.columns and get("choices") is not None:
            targets = cells.choices(self._items(get("choices")), row.get(self.correct), where) | targets
        if "box" in self.columns and get("box") is not None and images:
            targets["pixel_box"] = cells.box(get("box"), where)
            known = self._spoken.setdefault(images[0], [])
            known += [] if targets["pixel_box"] in known else [targets["pixel_box"]]
        if get("boxes") is not None and images:
            self._boxes[images[0]] = self._box_list(get("boxes"), self._cell(row, "box_labels", where), where)
        key = get("id")
        name = str(place) if key is None else cells.word(key, where, self.columns["id"])
        return Example(name, text, images, targets=targets)

    def _text(self, row: dict[str, Any], where: str) -> str | None:
        """The sentence; None where the field is missing, null or an empty cell (NaN, a number or a list is a fault)."""
        column = self.columns["text"]
        given = row.get(column)
        return None if given is None else sentence(given, where, column)

    def _pictures(self, source: str, row: dict[str, Any], where: str) -> list[str]:
        """File names of a row's pictures, of a column or by a template."""
        if is_template(source):
            return [filled(source, row, where)]
        return [cells.word(name, where, source) for name in self._image_names(row.get(source))]

    def _image_names(self, given: Any) -> list[Any]:
        return [name for name in as_list(given) if name not in ("", None)]

    def _items(self, given: Any) -> list[Any]:
        """A cell that holds several words: a list, or words separated as ``several`` says."""
        return [word.strip() for word in given.split(self.several)] if isinstance(given, str) else as_list(given)

    def _label(self, given: Any, where: str) -> int | float:
        if not self._words:
            return given  # type: ignore[no-any-return]  # a number
        word = str(given)
        if word not in self._words and isinstance(self.labels, str) and word.isdecimal():
            number = int(word) - self._first_number
            if 0 <= number < len(self._words):
                return number
        if word not in self._words:
            raise DataError("The label is unknown.", where=where, got=word, expected=", ".join(self._words[:20]))
        return self._words.index(word)

    def _box_list(self, boxes: Any, labels: Any, where: str) -> BoxList:
        found = cells.box_list(boxes, as_list(labels), where, self._box_words)
        sound = found.with_area()
        if len(sound) < len(found):
            self.left_out[NO_AREA] += len(found) - len(sound)
        return sound


def class_names_of(file: Path) -> tuple[int, list[str]]:
    """A file with the name of a class on each line, as Caffe, darknet and CUB-200 have it.

    Returns:
        The number of the first class (1 where the lines are numbered from 1, else 0), and the names.

    Raises:
        DataError: the file is missing, empty, or names a class twice.
    """
    names = [line.strip() for line in read_text(file).splitlines() if line.strip()]
    heads = [name.partition(" ") for name in names]
    first = next((n for n in (0, 1) if all(h[0] == str(n + place) and h[2] for place, h in enumerate(heads))), None)
    names = names if first is None else [head[2].strip() for head in heads]
    if not names or len(set(names)) < len(names):
        got = next((name for name in names if names.count(name) > 1), "no name")
        raise DataError("This is no list of classes.", where=str(file), got=got, expected="a different name a line")
    return first or 0, names


def _close(absent: list[str], known: list[str]) -> str:
    """The columns whose names are nearly those that are not there."""
    close = [found[0] for name in absent if (found := difflib.get_close_matches(name, map(str, known), n=1))]
    return f"; did you mean {' and '.join(map(repr, close))}?" if close else ""
