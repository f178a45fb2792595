"""What the columns of a table mean, by their content first and by their names where the content leaves it open."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from vlcli.data.readers.templates import fields_of
from vlcli.tools.starter.pictures import Naming, Pictures
from vlcli.tools.starter.tables import TableFile

PARTS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing", "minival", "holdout")
"""Words for the parts of a data set."""
_HINTS = {
    "picture": r"image|img|picture|photo|pic|file|path",
    "text": r"question|sentence|statement|hypothesis|caption|text|expression|description|query",
    "answers": r"^answers?$|^ans|_answers?$|multiple_choice_answer",
    "label": r"label|class|category|truth|target|verdict|gold",
    "split": r"split|^set$|part|fold|subset|partition|phase",
    "boxes": r"box|bbox|region",
    "box_labels": r"(box|region|object).*(label|class|name|categor)|^(labels|classes|categories|objects)$",
    "id": r"(^|_)(id|key|uid|identifier|number|index)$",
}
MOST_LABELS = 200


@dataclass
class Meaning:
    """What the columns of a table hold.

    Attributes:
        pictures: how the pictures are named; None where no column names any.
        text: column of the sentence or question.
        answers: column of answers.
        label: column of the class.
        boxes: column of boxes.
        one_box: whether each of its cells holds a single box.
        box_labels: column of their classes.
        split: column of the part.
        id: column of the row's id.
        questions: whether most sentences are questions.
        notes: what a person should know of the table.
    """

    pictures: Naming | None = None
    text: str | None = None
    answers: str | None = None
    label: str | None = None
    boxes: str | None = None
    one_box: bool = False
    box_labels: str | None = None
    split: str | None = None
    id: str | None = None
    questions: bool = False
    notes: list[str] = field(default_factory=list)


def meaning_of(table: TableFile, pictures: Pictures) -> Meaning:
    """Guess what the columns of a table hold.

    Args:
        table: its first rows.
        pictures: of the folder.
    """
    left = {name: table.values(name) for name in table.columns}
    left = {name: values for name, values in left.items() if values}
    found = Meaning()
    found.pictures = _pictures(table, pictures, left)
    found.split = _take(left, "split", _is_split, by_name=False)
    found.boxes = _take(left, "boxes", _is_boxes, by_name=False)
    found.one_box = found.boxes is not None and all(map(_is_box, table.values(found.boxes)))
    found.box_labels = _take(left, "box_labels", _is_words_list) if found.boxes else None
    found.answers = _take(left, "answers", _is_answers, named=True)
    found.text = _text(left)
    if found.text is not None:
        texts = [str(value) for value in table.values(found.text)]
        found.questions = sum(text.rstrip().endswith("?") or bool(_ASKS.match(text)) for text in texts) > len(texts) / 2
        left.pop(found.text, None)
    found.label = _take(left, "label", _is_label, named=True)
    if found.questions and found.answers is None:
        found.answers, found.label = found.label or _take(left, "", _is_short), None
    found.label = found.label or _take(left, "", _is_verdict)
    found.id = _take(left, "id", _is_unique, named=True)
    return found


_ASKS = re.compile(r"(what|who|where|when|why|how|which|is|are|was|were|do|does|did|can|has|have)\b", re.IGNORECASE)


def _pictures(table: TableFile, pictures: Pictures, left: dict[str, list[Any]]) -> Naming | None:
    """The column (or the two) that names pictures; else file names of which a column is a part."""
    beside = table.path.parent
    found = {name: naming for name, values in left.items() if (naming := pictures.named_by(name, values, beside))}
    if all(naming.share < 1 for naming in found.values()):  # a folder may stand in a column of its own
        both = pictures.by_two_columns(table.rows, list(left), beside)
        if both is not None and all(naming.share < both.share for naming in found.values()):
            for name in fields_of(both.sources[0]):
                left.pop(name, None)
            return both
    ranked = sorted(found, key=lambda name: (-round(found[name].share, 1), not _hinted("picture", name)))
    if ranked:
        pair = [name for name in ranked if _hinted("picture", name) and found[name].share > 0.5][:2]
        one = found[ranked[0]]
        if len(pair) == 2 and found[pair[0]].folder == found[pair[1]].folder and _are_a_pair(table, pair):
            ordered = sorted(pair, key=table.columns.index)
            one = Naming(tuple(ordered), found[pair[0]].folder, min(found[name].share for name in pair))
        for name in one.sources:
            left.pop(name, None)
        return one
    for name, values in left.items():
        naming = pictures.by_template(name, values) if not _is_split(values) else None
        if naming is not None:
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
    names = sorted(left, key=lambda name: not (role and _hinted(role, name))) if by_name or role else list(left)
    for name in names:
        if (not named or _hinted(role, name)) and fits(left[name]):
            del left[name]
            return name
    return None


def _text(left: dict[str, list[Any]]) -> str | None:
    """The column of sentences: a name that says so, else the one with the most words."""
    texts = {name: values for name, values in left.items() if _words(values) >= 2 and not _is_address(values)}
    named = [name for name in texts if _hinted("text", name)]
    order = _HINTS["text"].split("|")
    rank = {name: next((i for i, word in enumerate(order) if word in name.lower()), 99) for name in named}
    if named:
        return min(named, key=lambda name: rank[name])
    long = {name: values for name, values in texts.items() if _words(values) >= 3}
    return max(long, key=lambda name: _words(long[name]), default=None)


def _hinted(role: str, name: str) -> bool:
    return bool(role) and re.search(_HINTS[role], name.lower()) is not None


def _words(values: Sequence[Any]) -> float:
    texts = [value for value in values if isinstance(value, str)]
    return sum(len(text.split()) for text in texts) / len(values) if len(texts) > 0.9 * len(values) else 0.0


def _is_address(values: Sequence[Any]) -> bool:
    return sum(str(value).startswith(("http://", "https://")) for value in values) > len(values) / 2


def _is_split(values: Sequence[Any]) -> bool:
    distinct = {str(value).lower() for value in values}
    return 1 < len(distinct) <= 8 and sum(word in PARTS for word in distinct) >= 2


def _is_boxes(values: Sequence[Any]) -> bool:
    return all(_is_box(value) or (isinstance(value, list) and all(map(_is_box, value))) for value in values)


def _is_box(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and all(type(number) in (int, float) for number in value)


def _is_words_list(values: Sequence[Any]) -> bool:
    return all(isinstance(value, list) and all(isinstance(word, str | int) for word in value) for value in values)


def _is_answers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str | int | float | list | dict) for value in values)


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


def _is_unique(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str | int) for value in values) and len(set(map(str, values))) == len(values)
