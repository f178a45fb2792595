"""What the columns of a table mean, by their content first and by their names where the content leaves it open."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from vlcli.data.recognition.parts import part_of
from vlcli.data.recognition.pictures import Naming, Pictures
from vlcli.data.recognition.tables import TableFile

_HINTS = {
    "picture": r"image|img|picture|photo|pic|file|path|bild|foto|imagen|immagine|datei|archivo|fichier",
    "text": r"question|frage|pregunta|domanda|vraag|pergunta|sentence|statement|hypothesis|caption|text|expression|"
    r"description|query|satz|aussage|beschreibung|légende|legende|descri|phrase|frase|titel",
    "answers": r"^answers?$|^ans|_answers?$|multiple_choice_answer|antwort|r[ée]ponse|respuesta|risposta|resposta",
    "label": r"label|class|category|truth|target|verdict|gold|klasse|kategorie|etikett|[ée]tiquet|clase|categor",
    "split": r"split|^set$|part|fold|subset|partition|phase",
    "boxes": r"box|bbox|region",
    "box_labels": r"(box|region|object).*(label|class|name|categor)|^(labels|classes|categories|objects)$",
    "id": r"(^|[_\W])(id|key|uid|identifier|number|index|nr|no|nummer|num)\W*$",
}
_MARKS = ("?", "？", "؟", ";?")
"""Question marks of several scripts."""
MOST_LABELS = 200
FEW = 10
"""Rows below which different values in every row mean nothing."""
CAPTION_SEPARATORS = ("\n", "|", ";")
"""What may stand between several sentences in one cell."""


@dataclass
class Meaning:
    """What the columns of a table hold.

    Attributes:
        pictures: how the pictures are named; None where no column names any.
        text: column of the sentence or question.
        more_texts: columns of further sentences, whose names differ by a number.
        separator: between several sentences in one cell; empty where each has one.
        answers: column of answers.
        label: column of the class.
        labels: columns of several labels: flags, one a class, or a single one that holds the classes' names.
        several: what separates these names in a cell; empty where cells are lists.
        boxes: column of boxes.
        one_box: whether each of its cells holds a single box.
        box_labels: column of their classes.
        split: column of the part.
        questions: whether most sentences are questions.
        unclear: what is not understood, in words; empty where all is.
        unused: columns that have no role.
    """

    pictures: Naming | None = None
    text: str | None = None
    more_texts: Sequence[str] = ()
    separator: str = ""
    answers: str | None = None
    label: str | None = None
    labels: Sequence[str] = ()
    several: str = ""
    boxes: str | None = None
    one_box: bool = False
    box_labels: str | None = None
    split: str | None = None
    questions: bool = False
    unclear: str = ""
    unused: Sequence[str] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """Column by role; of pictures named by two columns or templates, a list."""
        sources = list(self.pictures.sources) if self.pictures else []
        found = {
            "image": sources[0] if len(sources) == 1 else sources,
            "text": [self.text, *self.more_texts] if self.text and self.more_texts else self.text,
            "answers": self.answers,
            "label": list(self.labels) or self.label,
            "boxes": self.boxes,
            "box_labels": self.box_labels,
            "split": self.split,
        }
        return {role: column for role, column in found.items() if column}


def meaning_of(table: TableFile, pictures: Pictures, wanted: Mapping[str, str]) -> Meaning:
    """Guess what the columns of a table hold.

    Args:
        table: some of its rows.
        pictures: of the folder.
        wanted: columns that the user names, by role; where a sentence, answers or a label are named, the others of
            these are not looked for, except the question to an answer.
    """
    values = {name: [one for one in table.values(name) if one not in ([], {})] for name in table.columns}
    left = {name: column for name, column in values.items() if column}
    found = Meaning()
    found.pictures = _pictures(table, pictures, left, wanted.get("image"))
    found.split = _take(left, "split", _is_split, by_name=False)
    chosen = {role: wanted[role] for role in ("text", "answers", "label") if role in wanted}
    if chosen:
        _choose(found, left, chosen)
    else:
        _guess(found, table, left)
    found.unclear = _empty(found, values) or found.unclear
    found.unused = [name for name in left if not _is_row_number(left[name])]
    return found


def _choose(found: Meaning, left: dict[str, list[Any]], chosen: Mapping[str, str]) -> None:
    """The columns that the user names."""
    for role, column in chosen.items():
        if role == "label" and (mark := _names_mark(left.get(column, ()))) is not None:
            found.labels, found.several = [column], mark
        else:
            setattr(found, role, column)
        if left.pop(column, None) is None:
            found.unclear = f"the column {column} is empty"
    if "answers" in chosen and "text" not in chosen:
        found.text = _text(left)
        left.pop(found.text or "", None)


def _guess(found: Meaning, table: TableFile, left: dict[str, list[Any]]) -> None:
    """Boxes, answers, sentences and labels, in this order."""
    found.boxes = _take(left, "boxes", _is_boxes, by_name=False)
    found.one_box = found.boxes is not None and all(map(_is_box, table.values(found.boxes)))
    found.box_labels = _take(left, "box_labels", _is_words_list) if found.boxes else None
    found.answers = _take(left, "answers", _is_answers, named=True)
    found.text = _text(left)
    if found.text is not None:
        texts = left.pop(found.text)
        found.more_texts = [
            name for name in left if _numbered(name) == _numbered(found.text) and _words(left[name]) >= 2
        ]
        for name in found.more_texts:
            del left[name]
        asked = [str(text).rstrip().endswith(_MARKS) or _ASKS.match(str(text)) is not None for text in texts]
        found.questions = sum(asked) > len(texts) / 2
        found.separator = "" if found.questions else separator_of(texts)
    if found.questions and found.answers is None:
        found.answers = _only_one(found, left, "answer", _answer_like)
    elif found.answers is None and found.boxes is None:
        named = [name for name in left if is_hinted("label", name) and _label_like(left[name])]
        if found.text is None and _several(found, left, named):
            pass
        elif found.text is None or named:
            found.label = _only_one(found, left, "label", _label_like)
        else:
            found.label = _take(left, "", _is_verdict)
    if found.questions and found.answers is None and not found.unclear:
        found.unclear = f"{found.text} holds questions, and no column their answers"


def _only_one(
    found: Meaning, left: dict[str, list[Any]], role: str, fits: Callable[[Sequence[Any]], bool]
) -> str | None:
    """The column of answers or labels: the one that is named so, else the only one that can be it."""
    named = [name for name in left if is_hinted(role if role == "label" else "answers", name) and fits(left[name])]
    exact = [name for name in named if name.lower() in ("label", "class", "answer", "category", "target")]
    able = exact[:1] or named or [name for name in left if fits(left[name])]
    if len(able) > 1:
        columns = " and ".join([", ".join(able[:-1]), able[-1]])
        found.unclear = f"the columns {columns} could each be the {role}: choose with --{role} COLUMN"
    elif able:
        del left[able[0]]
        return able[0]
    return None


def _several(found: Meaning, left: dict[str, list[Any]], named: Sequence[str]) -> bool:
    """Take the columns of several labels a row, where there are some: of names, or two or more of flags alone."""
    for name, values in left.items():
        if _TAGS.search(name.lower()) and (mark := _names_mark(values)) is not None:
            found.labels, found.several = [name], mark
    flags = [name for name in left if {str(value).lower() for value in left[name]} <= _FLAGS]
    able = {name for name in left if _label_like(left[name])}
    if not found.labels and not named and len(flags) > 1 and able and able <= set(flags):
        found.labels = flags
    for name in found.labels:
        left.pop(name)
    return bool(found.labels)


_TAGS = re.compile(r"labels|tags|classes|categories|genres|attributes|concepts|schlagw|kategorien|etiquetas")
_FLAGS = {"0", "1", "0.0", "1.0", "-1", "-1.0", "true", "false", "yes", "no"}


def _names_mark(values: Sequence[Any]) -> str | None:
    """What separates the names of several classes in cells; empty where cells are lists, None where they hold one."""
    if values and _is_words_list(values):
        return ""
    texts = [value for value in values if isinstance(value, str)]
    for mark in ("|", ";", ",", " ") if len(texts) == len(values) else ():
        cells = [[part.strip() for part in text.split(mark)] for text in texts]
        names = [name for parts in cells for name in parts]
        if sum(len(parts) > 1 for parts in cells) > len(cells) / 10 and len(set(names)) <= min(
            MOST_LABELS, len(names) / 3
        ):
            return mark
    return None


def _empty(found: Meaning, values: Mapping[str, Sequence[Any]]) -> str:
    """Why columns that are named like answers or labels cannot be learnt from: empty, or different in every row."""
    if found.answers or found.label or found.labels or found.boxes:
        return ""
    for name, column in values.items():
        if name in found.columns.values() or not (is_hinted("answers", name) or is_hinted("label", name)):
            continue
        if not column:
            return f"the column {name} is empty"
        if _is_short(column) and not _repeats(column):
            return f"the column {name} has another value in every row, so that nothing can be learnt from it"
        if len(set(map(str, column))) == 1:
            return f"the column {name} has the same value in every row"
    return ""


_ASKS = re.compile(
    r"(what|who|where|when|why|how|which|is|are|was|were|do|does|did|can|has|have|was|wer|wie|welche[rsn]?|wo|ist|sind|"
    r"qué|cuál|cómo|dónde|quel(le)?s?|combien|est-ce|cosa|quale)\b",
    re.IGNORECASE,
)


def _pictures(table: TableFile, pictures: Pictures, left: dict[str, list[Any]], wanted: str | None) -> Naming | None:
    """The column (or the two) that names pictures; else file names of which a column is a part."""
    beside = table.path.parent
    able = {wanted: left.get(wanted, [])} if wanted else left
    found = {name: naming for name, values in able.items() if (naming := pictures.named_by(name, values, beside))}
    if not wanted and all(one.share < 1 or one.also for one in found.values()):  # a folder may have its own column
        both = pictures.by_two_columns(table.rows, list(left), beside)
        if both is not None and all(both.share > one.share or (one.also and not both.also) for one in found.values()):
            for name in re.findall(r"{(.+?)}", both.sources[0]):
                left.pop(name, None)
            return both
    ranked = sorted(found, key=lambda name: (-round(found[name].share, 1), not is_hinted("picture", name)))
    if ranked:
        pair = [name for name in ranked if is_hinted("picture", name) and found[name].share > 0.5][:2]
        one = found[ranked[0]]
        if len(pair) == 2 and found[pair[0]].folder == found[pair[1]].folder and _are_a_pair(table, pair):
            ordered = sorted(pair, key=table.columns.index)
            one = Naming(tuple(ordered), found[pair[0]].folder, min(found[name].share for name in pair))
        for name in one.sources:
            left.pop(name, None)
        return one
    for name, values in able.items():
        naming = pictures.by_template(name, values) if not _is_split(values) else None
        if naming is not None:
            left.pop(name, None)
            return naming
    return None


def _are_a_pair(table: TableFile, columns: list[str]) -> bool:
    """Whether two columns name different pictures; an id beside a file name names the same."""
    from vlcli.images.boxes import image_id

    return all(image_id(str(row.get(columns[0]))) != image_id(str(row.get(columns[1]))) for row in table.rows[:100])


def _take(
    left: dict[str, list[Any]],
    role: str,
    fits: Callable[[Sequence[Any]], bool],
    *,
    named: bool = False,
    by_name: bool = True,
) -> str | None:
    """The first column that fits a role, taken out of those left; named ones first.

    Args:
        left: columns without a role.
        role: whose hints count; empty: none.
        fits: whether values can have the role.
        named: take no column whose name does not say so.
        by_name: whether a name that says so is enough of a reason to come first.
    """
    names = sorted(left, key=lambda name: not (role and is_hinted(role, name))) if by_name or role else list(left)
    for name in names:
        if (not named or is_hinted(role, name)) and fits(left[name]):
            del left[name]
            return name
    return None


def _text(left: dict[str, list[Any]]) -> str | None:
    """The column of sentences: a name that says so, else the one with the most words."""
    texts = {name: values for name, values in left.items() if _words(values) >= 2 and not _is_address(values)}
    named = [name for name in texts if is_hinted("text", name)]
    order = _HINTS["text"].split("|")
    rank = {name: next((i for i, word in enumerate(order) if word in name.lower()), 99) for name in named}
    if named:
        return min(named, key=lambda name: rank[name])
    long = {name: values for name, values in texts.items() if _words(values) >= 3 and not _is_class_name(values)}
    return max(long, key=lambda name: _words(long[name]), default=None)


def _is_class_name(values: Sequence[Any]) -> bool:
    """Whether a few values make up the column, and none is a question."""
    few = len(values) >= FEW and len(set(map(str, values))) <= min(MOST_LABELS, len(values) // 4)
    return few and not any(str(value).rstrip().endswith(_MARKS) for value in values)


def separator_of(texts: Sequence[Any]) -> str:
    """What stands between several sentences in most cells; empty where they hold one each, or are lists."""
    for mark in CAPTION_SEPARATORS:
        several = [[part.split() for part in text.split(mark)] for text in texts if isinstance(text, str)]
        full = sum(len(parts) > 1 and sum(map(len, parts)) >= 3 * len(parts) for parts in several)
        if full > len(texts) / 2:
            return mark
    return ""


def _numbered(name: str) -> str:
    """A column's name without the number that it ends in."""
    return re.sub(r"[\s_-]*[0-9]+$", "#", name)


def is_hinted(role: str, name: str) -> bool:
    """Whether the name of a column says that it has a role, such as ``picture`` or ``label``."""
    return bool(role) and re.search(_HINTS[role], name.lower()) is not None


_NO_SPACES = re.compile("[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]")
"""Letters of languages that write no spaces: Thai, Lao, Japanese, Chinese."""


def _words(values: Sequence[Any]) -> float:
    """Words of a cell, on average; 0 where most cells are not text. Of a list, the words of its first text."""
    first = [value[0] if isinstance(value, list) and value else value for value in values]
    texts = [value for value in first if isinstance(value, str)]
    words = sum(len(text.split()) + len(_NO_SPACES.findall(text)) / 2 for text in texts)
    return words / len(values) if len(texts) > 0.9 * len(values) else 0.0


def _is_address(values: Sequence[Any]) -> bool:
    return sum(str(value).startswith(("http://", "https://")) for value in values) > len(values) / 2


def _is_split(values: Sequence[Any]) -> bool:
    distinct = {str(value).lower() for value in values}
    return 1 < len(distinct) <= 8 and sum(map(bool, map(part_of, distinct))) >= 2


def _is_boxes(values: Sequence[Any]) -> bool:
    return all(_is_box(value) or (isinstance(value, list) and all(map(_is_box, value))) for value in values)


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(type(number) in (int, float) for number in value)


def _is_words_list(values: Sequence[Any]) -> bool:
    return all(isinstance(value, list) and all(isinstance(word, str | int) for word in value) for value in values)


def _is_answers(values: Sequence[Any]) -> bool:
    """Answers, lists of people's answers, or objects of scores; no numbers of rows."""
    plain = [value for value in values if isinstance(value, str | int | float)]
    known = all(isinstance(value, str | int | float | list | dict) for value in values)
    return known and not _is_row_number(values) and (len(plain) < len(values) or _repeats(plain))


def _answer_like(values: Sequence[Any]) -> bool:
    return _is_short(values) and _repeats(values) and not _is_row_number(values)


def _label_like(values: Sequence[Any]) -> bool:
    distinct = {str(value) for value in values}
    if _is_row_number(values) or (len(distinct) > 20 and all(as_number(value) is not None for value in values)):
        return False
    return len(distinct) > 1 and _is_label(values) and not _has_fractions(values)


def _is_short(values: Sequence[Any]) -> bool:
    plain = all(isinstance(value, str | int | float | bool) for value in values)
    return plain and sum(len(str(value).split()) for value in values) <= 3 * len(values) and not _is_address(values)


def _is_label(values: Sequence[Any]) -> bool:
    distinct = {str(value) for value in values}
    return _is_short(values) and len(distinct) <= max(2, min(MOST_LABELS, len(values) // 2))


def _is_verdict(values: Sequence[Any]) -> bool:
    """Two or three words for right and wrong, whatever the column is called."""
    known = {"true", "false", "yes", "no", "0", "1", "entailment", "neutral", "contradiction", "right", "wrong"}
    distinct = {str(value).lower() for value in values}
    return 2 <= len(distinct) <= 3 and distinct <= known


def _repeats(values: Sequence[Any]) -> bool:
    """Whether values occur more than once: ids and numbers of rows do not, and nothing can be learnt from them."""
    return len(values) < FEW or len(set(map(str, values))) < len(values)


def _is_row_number(values: Sequence[Any]) -> bool:
    """Whether values are numbers that grow from row to row."""
    numbers = [as_number(value) for value in values]
    grow = sum(one is not None and two is not None and one < two for one, two in pairwise(numbers))
    return len(values) >= FEW and grow >= 0.9 * (len(values) - 1)  # in the next part they begin anew


def as_number(value: Any) -> float | None:
    """A cell as a finite number; None where it is none."""
    if isinstance(value, bool):
        return None
    try:
        return number if math.isfinite(number := float(value)) else None
    except (TypeError, ValueError):
        return None


def _has_fractions(values: Sequence[Any]) -> bool:
    return any((number := as_number(value)) is not None and number != int(number) for value in values[:1000])
