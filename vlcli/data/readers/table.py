"""Tables of one's own: rows with columns that a recipe names, in any file format."""

import difflib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from vlcli.data import Example, Folder, Recognised
from vlcli.data.checks import sentence
from vlcli.data.files import inside, known_encoding
from vlcli.data.readers import cells
from vlcli.data.readers.box_columns import BoxFormat, Row, by_picture, corners, sides_of
from vlcli.data.readers.split_file import SplitFileReader
from vlcli.data.recognition.generic import recognise_tables
from vlcli.errors import DataError, shown
from vlcli.images.boxes import NO_AREA, BoxList
from vlcli.plain import as_list

# Column names that hold unless a recipe names others
COLUMNS = {name: name for name in ("image", "id", "text", "label", "boxes", "box_labels", "answers")}
_NO_COLUMN = "\0"  # stands for a column that no table has
_MOST_NAMED = 40  # columns that a message names


class Table(SplitFileReader):
    """Base of readers of tables of any columns; subclasses define :meth:`rows`.

    Args:
        images: folder that image paths are relative to; "." for the root itself.
        id: column of the example's id, which no other row may have; without it, or with "", the row's number.
        beside: image paths are relative to the table.
        image: column of the picture(s); a template such as ``dev-{identifier}-0.png`` makes a file name of columns, and
            a list names several columns or templates, one picture each.
        text: column of the sentence; a list of columns gives an example for each.
        label: column of the class: a number, or a word that is numbered (see ``labels``). A list of columns gives a row
            several labels (task ``multi-label``): a column of 0 or 1 for each class, or, ``[COLUMN]``, one column of
            the classes' names, as a list or as words separated by ";".
        by_picture: make one example of the rows of a picture, with the labels of all; with ``label: [COLUMN]``.
        box: column of the box of the sentence, ``[x1, y1, x2, y2]`` in pixels of the first picture, or a list of four
            columns of numbers.
        boxes: column of the first picture's boxes; without it they are those of ``box``. A list of four columns: a box
            a row; the rows of a picture are one example.
        box_format: of four columns, or of a list of one column of lists, in pixels: ``xyxy``, ``xywh`` or ``cxcywh``,
            as in torchvision; ``shares``: x1, y1, x2, y2 as shares of the picture, of the columns of ``boxes``.
        box_labels: column of the classes of ``boxes``.
        answers: column of the answers.
        choices: column of lists of choices (task ``multiple-choice``), or a column for each choice.
        correct: column of the right choice: its place from 0, its letter, or the choice itself.
        extra: further columns to keep as targets.
        labels: words of the label column in the order of their numbers, or a file with a word a line, which may be
            numbered; None: all that occur, sorted.
        only: column -> value, or values: only these rows are read, e.g. ``{split: train}``.
        types: of ``label``, ``answers`` and ``box_labels``: ``number`` (1, 1.0 and "1" are one class), ``text`` or
            ``list``; by default numbers or lists if all cells of all splits are, else text.
        encoding: of the file, in Python's words: ``utf-8``, ``utf-16``, ``latin-1``.
        sentences: separator of several sentences in a cell, such as "|"; each is an example. Lists need none.
        language: of the answers: ``english``: spelt by VQA's rules (digits for number words, no articles); ``other``:
            in lower case.

    Attributes:
        several: separator of several pictures, or names of several labels, in a cell.
        format: registered name, if ``vlcli init`` looks for such tables.
        cells_are_text: whether files write every cell as text.
    """

    several: str = ";"
    format: ClassVar[str] = ""
    recognise_order: ClassVar[int] = 1
    pictures_help: ClassVar[str] = "name the column that holds them (image=COLUMN), or their folder (images=FOLDER)"
    keys_help: ClassVar[str] = "name a column whose values differ (id=COLUMN), or number the rows (id='')"
    cells_are_text: ClassVar[bool] = False

    @classmethod
    def recognise(cls, folder: Folder) -> list[Recognised]:
        return recognise_tables(folder, cls.format) if "format" in vars(cls) else []

    def __init__(
        self,
        root: Path,
        *,
        id: str = COLUMNS["id"],
        beside: bool = False,
        image: str | list[str] = COLUMNS["image"],
        text: str | list[str] = COLUMNS["text"],
        label: str | list[str] = COLUMNS["label"],
        by_picture: bool = False,
        box: str | list[str] | None = None,
        boxes: str | list[str] = COLUMNS["boxes"],
        box_format: BoxFormat = "xyxy",
        box_labels: str = COLUMNS["box_labels"],
        answers: str = COLUMNS["answers"],
        choices: str | list[str] | None = None,
        correct: str = "correct_choice_idx",
        extra: list[str] = [],  # noqa: B006
        labels: str | list[str] | None = None,
        only: dict[str, str | list[str]] = {},  # noqa: B006
        types: dict[str, str] = {},  # noqa: B006
        encoding: str = "utf-8",
        sentences: str | None = None,
        language: Literal["english", "other"] = "english",
        **options: Any,
    ) -> None:
        super().__init__(root, **options)
        self.encoding = known_encoding(encoding)
        self.sources, self.texts = list(as_list(image)), list(as_list(text))
        self._named_by = [name for source in self.sources for name in cells.fields_of(source)]
        self.box_format, self.box_columns = box_format, {}
        if isinstance(box, list):
            box, self.box_columns["box"] = "box", box
        if isinstance(boxes, list):
            boxes, self.box_columns["boxes"] = COLUMNS["boxes"], boxes
        self.several_columns = label if isinstance(label, list) else []
        self.choice_columns = choices if isinstance(choices, list) else []
        one = label if isinstance(label, str) and label != box_labels else _NO_COLUMN
        self.columns = {"id": id, "text": self.texts[0], "label": one, "boxes": boxes, "box_labels": box_labels}
        self.columns |= {"answers": answers} | ({} if box is None else {"box": box})
        self.columns |= {"choices": choices} if isinstance(choices, str) else {}
        self.by_picture, self.beside = by_picture, beside
        self.extra, self.labels, self.only, self.sentences = extra, labels, only, sentences
        self.language, self.correct, self.types = language, correct, types
        cells.check_types(types)
        self._decided: dict[str, list[bool]] = {}  # by role the fields of its ColumnType
        self._several: cells.SeveralLabels | None = None
        self._first_number, self._words, self._box_words = 0, list[str](), list[str]()
        self._boxes: dict[str, BoxList] = {}
        self._spoken: dict[str, list[list[float]]] = {}

    def files(self) -> list[Path]:
        return self.tables() + ([inside(self.root, self.labels)] if isinstance(self.labels, str) else [])

    def tables(self) -> list[Path]:
        """Return the table of each split, each once; called by :meth:`files`."""
        return super().files()

    def rows(self, file: Path) -> Iterator[Row]:
        """Yield the rows of a table, each with its place (``FILE:line``), as column -> cell; None: an empty cell."""
        raise NotImplementedError(f"{type(self).__name__} cannot read {file}")

    def stream(self) -> Iterator[Example]:
        self._words, self._box_words, self._spoken = [], [], {}
        if isinstance(self.labels, str):
            self._first_number, self._words = cells.class_names_of(inside(self.root, self.labels))
        elif self.labels:
            self._words = list(self.labels)
        gathered, lacking, number = False, Counter[str](), -1
        if self.several_columns:
            self._several = cells.SeveralLabels(self.several_columns, self._words, self.several, self._admitted())
            self._words = self._several.names
        for number, (where, row) in enumerate(self._admitted()):
            if not gathered and any(row.get(self.columns[role]) is not None for role in cells.ROLES):
                gathered = True
                self._gather()
            lacking.update(role for role in ("label", "answers") if row.get(self.columns[role]) is None)
            for part, text in enumerate(self._sentences(row)):
                example = self._example({**row, self.columns["text"]: text} if text else row, where, number)
                example.key += f"#{part}" if part else ""
                yield example
        for role, count in lacking.items():
            if count <= number:
                self.left_out[f"cells of {self.columns[role]!r} that are empty: their rows have no {role}"] = count

    def _rows(self, file: Path) -> Iterator[Row]:
        rows = self._beside(file) if self.beside else self.rows(file)
        if any(cells.is_template(source) and "split" in cells.fields_of(source) for source in self.sources):
            files = zip(self.split_names, self.first_file(self.file, self.usual), strict=True)
            if len(names := [split for split, path in files if path == file]) == 1:
                rows = ((where, {"split": names[0]} | row) for where, row in rows)
        if "box" in self.box_columns:
            four = self.box_columns["box"]
            rows = ((where, row | {"box": corners(row, four, self.box_format, where)}) for where, row in rows)
        if "boxes" in self.box_columns:
            rows = by_picture(rows, lambda row: str(row.get(self.sources[0])), self._box_and_class)
        if self.by_picture and len(self.several_columns) == 1:
            column, wanted = self.several_columns[0], ((where, row) for where, row in rows if self._is_wanted(row))
            rows = by_picture(
                wanted,
                lambda row: tuple(str(row.get(name)) for name in self._named_by),
                lambda row, _: {column: [] if row.get(column) is None else [str(row[column])]},
            )
        return rows

    def _beside(self, file: Path) -> Iterator[Row]:
        for where, row in self.rows(file):
            named = (name for name in self.sources if isinstance(row.get(name), str))
            yield where, row | {name: str(inside(file.parent, row[name]).absolute()) for name in named}

    def _box_and_class(self, row: dict[str, Any], where: str) -> dict[str, list[Any]]:
        box = corners(row, self.box_columns["boxes"], self.box_format, where)
        kind = None if box is None else row.get(self.columns["box_labels"])
        lists = {self.columns["boxes"]: box, self.columns["box_labels"]: kind}
        return {column: [] if cell is None else [cell] for column, cell in lists.items()}

    def _sentences(self, row: dict[str, Any]) -> list[Any]:
        cell = row.get(self.columns["text"])
        if len(self.texts) > 1:
            cell = [row.get(column) for column in self.texts]
        elif isinstance(cell, str) and self.sentences:
            cell = cell.split(self.sentences)
        texts = [text for text in cell if text not in ("", None)] if isinstance(cell, list) else []
        return [text.strip() if isinstance(text, str) else text for text in texts] or [None]  # None: the cell as it is

    def _admitted(self, most: int | None = None) -> Iterator[Row]:
        """Yield the wanted rows that name their picture, of all rows or of the first ``most``."""
        rows = itertools.chain.from_iterable(map(self._rows, self.tables()))
        nameless = 0
        for number, (where, row) in enumerate(itertools.islice(rows, most)):
            if not number:
                self._check_columns(where, row)
            if not self._is_wanted(row):
                continue
            if any(row.get(name, 0) in (None, "") for name in self._named_by):
                nameless += 1
            else:
                yield where, row
        if nameless and most is None:
            columns = " and ".join(map(repr, self.sources))
            self.left_out[f"rows of which {columns} is empty: they name no picture"] = nameless

    def _is_wanted(self, row: dict[str, Any]) -> bool:
        return all(str(row.get(k)) in as_list(v) for k, v in self.only.items())

    def _gather(self) -> None:
        columns = {name for file in self._all_splits() for _, row in self._rows(file) for name in row}
        asked = [role for role in cells.ROLES if self.columns[role] in columns or role in self.types]
        kinds = {role: kind for role in asked if (kind := self._type_of(role)) is not None}
        self._decided = {role: [kind.number, kind.listed] for role, kind in kinds.items()}
        words: dict[str, set[str]] = {"label": set(), "box_labels": set()}
        for where, row in self._admitted():
            for role, names in words.items():
                items = as_list(self._cell(row, role, where))
                names.update(str(cells.label(item, where, self.columns[role])) for item in items if item is not None)
        texts = {role: sorted(names) for role, names in words.items() if role in kinds and not kinds[role].number}
        self._words, self._box_words = self._words or texts.get("label", []), texts.get("box_labels", [])

    def _type_of(self, role: str) -> cells.ColumnType | None:
        if self.types.get(role) in ("number", "text"):
            return cells.ColumnType(self.types[role] == "number")
        rows = (row for file in self._all_splits() for _, row in self.rows(file))
        column = (cell for row in rows if (cell := row.get(self.columns[role])) is not None)
        whole = (int(cell) if role == "label" and isinstance(cell, bool) else cell for cell in column)
        decided = cells.decide(whole, self.cells_are_text)
        listed = cells.ColumnType(decided is not None and decided.number, listed=True)
        return listed if role in self.types else decided

    def _all_splits(self) -> list[Path]:
        tables = self.tables()
        others = (other for file in tables for other in cells.other_splits(file, self.root) if self._fits(other))
        return list(dict.fromkeys([*tables, *others]))

    def _fits(self, file: Path) -> bool:  # a test without classes is another table (Places365)
        try:
            return next(iter(self.rows(file)), None) is not None
        except DataError:
            return False

    def _cell(self, row: dict[str, Any], role: str, where: str) -> Any:
        cell = row.get(self.columns[role])
        cell = int(cell) if role == "label" and isinstance(cell, bool) else cell
        if cell is None:
            return None
        decided = self._decided.get(role)
        kind = cells.ColumnType(*decided) if decided else cells.decide([cell], self.cells_are_text)
        try:
            return cell if kind is None else kind.value(cell)
        except ValueError:
            hint = f"as text, each value is its own: types: {{{role}: text}}"
            what = f"A cell of {self.columns[role]!r} is not of its column's type."
            raise DataError(what, where=where, got=shown(cell), expected=str(kind), hint=hint) from None

    def decisions(self) -> list[str]:
        """Say as what the columns of labels and answers are read; called after :meth:`examples`."""
        kinds = ((role, cells.ColumnType(*kind)) for role, kind in self._decided.items())
        return [f"{self.label}: {self.columns[role]!r} ({role}) is read as {kind}" for role, kind in kinds]

    def first_examples(self, count: int) -> list[Example]:
        # without labels, whose words stand in all rows
        left_out = {*self.several_columns, *(self.columns.get(name) for name in ("label", "box", "boxes"))}
        examples = []
        for number, (where, row) in enumerate(itertools.islice(self._admitted(100 * count), count)):
            unlabelled = {column: cell for column, cell in row.items() if column not in left_out}
            if (text := self._sentences(row)[0]) is not None:
                unlabelled[self.columns["text"]] = text
            examples.append(self._example({**dict.fromkeys(self.extra), **unlabelled}, where, number))
        return examples

    def place_of(self, number: int) -> str:
        """Return file and line of the row of an example; called for messages."""
        rows = (where for where, row in self._admitted() for _ in self._sentences(row))
        return next(itertools.islice(rows, number, None))

    def boxes(self) -> dict[str, BoxList]:
        used = dict.fromkeys(name for example in self.examples() for name in example.images)
        known = {name: BoxList(np.array(boxes, np.float32)) for name, boxes in self._spoken.items()} | self._boxes
        own = {name: known[name] for name in used if name in known}
        if self.box_format != "shares":
            return own
        return {name: replace(one, boxes=one.boxes * sides_of(self.locate(name))) for name, one in own.items()}

    def label_names(self) -> list[str]:
        self.examples()
        return self._words

    def class_names(self) -> list[str]:
        self.examples()
        return self._box_words

    def _check_columns(self, where: str, row: dict[str, Any]) -> None:
        named = [name for key, name in self.columns.items() if name not in (COLUMNS.get(key), _NO_COLUMN, "")]
        named += self.texts[1:] + self.several_columns + self.choice_columns + self.extra + list(self.only)
        named += [column for four in self.box_columns.values() for column in four]
        pictures = [name for source in self.sources for name in cells.fields_of(source) if name != "split"]
        if self.sources != [COLUMNS["image"]]:
            named += pictures
        absent = [name for name in dict.fromkeys(named) if name not in row]
        if absent or not ({*pictures, self.columns["text"]} & set(row)):
            close = [one for name in absent for one in difflib.get_close_matches(name, map(str, row), n=1)]
            meant = f"; did you mean {' and '.join(map(repr, close))}?" if close else ""
            meant += "" if any(str(name).isascii() for name in row) else ", or the encoding of the file: encoding=utf-8"
            got = ", ".join(shown(str(name), 60).strip("'") for name in list(row)[:_MOST_NAMED])
            expected = ", ".join(absent) or f"{self.sources[0]} or {self.columns['text']}"
            hint = f"name the columns, e.g. image=file text=caption{meant}"
            raise DataError("The table lacks a column.", where=where, got=got, expected=expected, hint=hint)

    def _example(self, row: dict[str, Any], where: str, number: int) -> Example:
        cell = {role: row.get(column) for role, column in self.columns.items()}
        images = [self.picture(name) for source in self.sources for name in self._pictures(source, row, where)]
        text = None if cell["text"] is None else sentence(cell["text"], where, self.columns["text"])
        if text is None and not images:
            raise DataError("The row has neither image nor text.", where=where, got=shown(row))
        targets: dict[str, Any] = {name: row[name] for name in self.extra}
        if cell["label"] is not None:
            targets["label"] = self._label(self._cell(row, "label", where), where)
        if self._several is not None and not row.keys().isdisjoint(self.several_columns):
            targets |= self._several.of(row, where)
        if cell["answers"] is not None:
            targets |= cells.answers(self._cell(row, "answers", where), where, self.language == "english")
        options = ["" if row.get(name) is None else row[name] for name in self.choice_columns]
        while options and options[-1] == "":  # only at the end: a letter is the place of its column
            options.pop()
        if (choices := options or cell.get("choices")) is not None:
            if isinstance(choices, str):
                choices = [word.strip() for word in choices.split(self.several)]
            targets = cells.choices(as_list(choices), row.get(self.correct), where) | targets
        if cell.get("box") is not None and images:
            targets["pixel_box"] = cells.box(cell["box"], where)
            known = self._spoken.setdefault(images[0], [])
            known += [] if targets["pixel_box"] in known else [targets["pixel_box"]]
        if cell["boxes"] is not None and images:
            labels = as_list(self._cell(row, "box_labels", where))
            every = cells.box_list(cell["boxes"], labels, where, self._box_words)
            self._boxes[images[0]] = every.with_area()
            if without := len(every) - len(self._boxes[images[0]]):
                self.left_out[NO_AREA] += without
        key = str(number) if cell["id"] is None else cells.word(cell["id"], where, self.columns["id"])
        return Example(key, text, images, targets=targets)

    def _pictures(self, source: str, row: dict[str, Any], where: str) -> list[str]:
        if cells.is_template(source):
            return [cells.filled(source, row, where)]
        return [cells.word(name, where, source) for name in self._image_names(row.get(source))]

    def _image_names(self, cell: Any) -> list[Any]:
        return [name for name in as_list(cell) if name not in ("", None)]

    def _label(self, label: Any, where: str) -> int | float:
        if not self._words:
            return label  # type: ignore[no-any-return]  # a number
        word = str(label)
        if word in self._words:
            return self._words.index(word)
        number = int(word) - self._first_number if isinstance(self.labels, str) and word.isdecimal() else -1
        if not 0 <= number < len(self._words):
            raise DataError("The label is unknown.", where=where, got=word, expected=", ".join(self._words[:20]))
        return number
