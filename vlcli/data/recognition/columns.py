"""Guesses what the columns of a table mean, by their content first, then by their names."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from vlcli.data.files import grouped, is_picture_file
from vlcli.data.recognition import values as cells
from vlcli.data.recognition.pictures import Naming, Pictures
from vlcli.data.recognition.recognised import part_in, parts_by
from vlcli.data.recognition.tables import TableFile
from vlcli.images.boxes import image_id
from vlcli.plain import as_list

_HINTS = {
    "picture": r"image|img|picture|photo|pic|file|path|bild|foto|imagen|immagine|datei|archivo|fichier",
    "text": r"question|frage|pregunta|domanda|vraag|pergunta|sentence|statement|hypothesis|caption|text|expression|"
    r"description|query|satz|aussage|beschreibung|légende|legende|descri|phrase|frase|titel",
    "answers": r"^ans(?!.*(type|source|ids?$|confidence|box|able$|page))|_answers?$|antwort|"
    r"r[ée]ponse|respuesta|risposta|resposta",
    "label": r"label|class|category|truth|target|verdict|gold|klasse|kategorie|etikett|[ée]tiquet|clase|categor",
    "split": r"split|^set$|part|fold|subset|partition|phase",
    "boxes": r"box|bbox|region",
    "box_labels": r"(box|region|object).*(label|class|name|categor)|^(labels|classes|categories|objects)$",
    "tags": r"^accept$|labels|tags|classes|categories|genres|attributes|concepts|schlagw|kategorien|etiquetas",
    "kind": r"(^|[_\W])(type|kind|source|dataset|split|set)s?\W*$",  # of a question, or where it is from
    "source": r"(^|[_\W])(source|dataset)s?\W*$",
    "id": r"(^|[_\W])(id|key|uid|identifier|number|index|nr|no|nummer|num)\W*$",
}
# Question marks of several scripts.
_MARKS = ("?", "？", "؟", ";?")
_CAPTION_SEPARATORS = ("\n", "|", ";")  # separators of several sentences in one cell
# Names of four columns that hold a box, by their format.
_FOURS = {
    "xyxy": ("xmin ymin xmax ymax", "x1 y1 x2 y2", "x0 y0 x1 y1", "left top right bottom"),
    "xywh": ("x y w h", "x y width height", "xmin ymin width height", "left top width height"),
}
_ASKS = re.compile(
    r"(what|who|where|when|why|how|which|is|are|was|were|do|does|did|can|has|have|was|wer|wie|welche[rsn]?|wo|ist|sind|"
    r"qué|cuál|cómo|dónde|quel(le)?s?|combien|est-ce|cosa|quale)\b",
    re.IGNORECASE,
)
Left = dict[str, list[Any]]
"""Values of the columns that have no role yet, by name."""


@dataclass
class Meaning:
    """Roles of the columns of a table."""

    pictures: Naming | None = None
    text: str | None = None
    more_texts: Sequence[str] = ()  # columns of further sentences, whose names differ by a number
    separator: str = ""  # between several sentences in a cell; empty: a cell holds one
    answers: str | None = None
    choices: str | list[str] | None = None  # `answers` counts them from 0; a list: a column for each
    label: str | None = None
    labels: Sequence[str] = ()  # several labels: a flag for each class, or a single column of class names
    several: str = ""  # between class names in a cell; empty: cells are lists
    boxes: str | list[str] | None = None  # a list: four columns of one box a row
    box_format: str = ""
    one_box: bool = False  # whether each cell holds a single box
    box_labels: str | None = None
    split: str | None = None
    questions: bool = False  # whether most sentences are questions
    unclear: str = ""  # a sentence on what is not understood
    unused: Sequence[str] = ()

    @property
    def columns(self) -> dict[str, Any]:
        """Column, or list of columns, by role."""
        sources = list(self.pictures.sources) if self.pictures else []
        image = sources[0] if len(sources) == 1 else sources
        text = [self.text, *self.more_texts] if self.text and self.more_texts else self.text
        columns = vars(self) | {"image": image, "text": text, "label": list(self.labels) or self.label}
        roles = ("image", "text", "answers", "choices", "label", "boxes", "box_labels", "split")
        return {role: columns[role] for role in roles if columns[role] not in (None, [])}  # "" is pandas' index


def meaning_of(table: TableFile, pictures: Pictures, wanted: Mapping[str, str]) -> Meaning:
    """Guess what the columns of a table hold.

    Args:
        wanted: columns that the user names, by role. If ``text``, ``answers`` or ``label`` is named, the other two are
            not guessed, except the question to an answer.
    """
    values = {name: [one for one in table.values(name) if one not in ([], {})] for name in table.columns}
    left = {name: column for name, column in values.items() if column}
    meaning = Meaning(_pictures(table, pictures, left, wanted.get("image")))
    numbered = (name for name in left if parts_by(list(map(str, left[name])), name))
    meaning.split = _take(left, "split", cells.is_split) or next(numbered, None)
    left.pop(meaning.split or "", None)
    chosen = {role: wanted[role] for role in ("text", "answers", "label") if role in wanted}
    if chosen:
        _choose(meaning, left, chosen)
    else:
        _guess(meaning, table, left, pictures)
    if (answers := meaning.answers) is not None:
        meaning.choices = _take(left, "", lambda lists: _are_choices(lists, table.values(answers)))
        meaning.choices = meaning.choices or _choice_columns(table, left, answers)
    meaning.unclear = _empty(meaning, values) or meaning.unclear
    meaning.unused = [name for name in left if not cells.is_row_number(left[name])]
    return meaning


def _choose(meaning: Meaning, left: Left, chosen: Mapping[str, str]) -> None:
    for role, column in chosen.items():
        if len(several := cells.columns_in([column], left)) > 1:
            meaning.labels = several
            if wrong := [name for name in several if role != "label" or not cells.are_flags(left.pop(name))]:
                meaning.unclear = f"several columns of a --{role} say 0 or 1, true or false: {wrong[0]} does not"
            continue
        values = left.pop(column, None)
        if values is None:
            meaning.unclear = f"the column {column} is empty"
        if role == "label" and (mark := cells.names_mark(values or ())) is not None:
            meaning.labels, meaning.several = [column], mark
        else:
            setattr(meaning, role, column)
    if "answers" in chosen and "text" not in chosen:
        meaning.text = _text(left)
        left.pop(meaning.text or "", None)


def _guess(meaning: Meaning, table: TableFile, left: Left, pictures: Pictures) -> None:
    form, four = _one_column(left) or _four_columns(left)
    meaning.boxes = None if four else _take(left, "boxes", cells.are_boxes)
    if meaning.boxes is not None:
        meaning.box_labels = _take(left, "box_labels", cells.are_word_lists)
    numbers = {name: left.pop(name) for name in four}
    meaning.answers = _take(left, "answers", cells.are_answers, named=True)
    meaning.text = _text(left)
    if meaning.text is not None:
        texts, start = left.pop(meaning.text), _numbered(meaning.text)
        meaning.questions = _are_questions(texts)
        alike = [name for name in left if _numbered(name) == start and cells.count_words(left[name]) >= 2]
        meaning.more_texts = [name for name in alike if _are_questions(left[name]) == meaning.questions]
        for name in meaning.more_texts:
            del left[name]
        meaning.separator = "" if meaning.questions else separator_of(texts)
    if meaning.questions and meaning.answers is None:
        meaning.answers = _only_one(meaning, left, "answer", cells.is_answer_like)
        if meaning.answers is None and not meaning.unclear:
            meaning.unclear = f"{meaning.text} holds questions, and no column their answers"
    elif meaning.answers is None and meaning.boxes is None:
        named = [name for name in left if is_hinted("label", name) and cells.is_label_like(left[name])]
        if meaning.text is not None and not named:
            meaning.label = _take(left, "", cells.is_verdict)
        elif meaning.text is not None or not _several(meaning, left, named):
            meaning.label = _only_one(meaning, left, "label", cells.is_label_like)
    _place_boxes(meaning, table, left, form, numbers, pictures)


def _place_boxes(meaning: Meaning, table: TableFile, left: Left, form: str, numbers: Left, pictures: Pictures) -> None:
    """Say what the box of ``numbers`` is, one column or four: of an expression, of an object, or nothing."""
    four = list(numbers)
    sides = [number for values in numbers.values() for value in values for number in as_list(value)]
    shares = bool(four) and max(cells.as_number(side) or 0 for side in sides) <= 1
    sources = meaning.pictures.sources if meaning.pictures else ()
    names = [str(row.get(sources[0])) for row in table.rows if len(sources) == 1]
    several = any(count > len(pictures.by_id.get(image_id(name), [name])) for name, count in Counter(names).items())
    said = grouped((name, repr(row.get(str(meaning.boxes)))) for name, row in zip(names, table.rows, strict=False))
    if meaning.boxes and meaning.text and not meaning.answers and any(len({*some}) > 1 for some in said.values()):
        one = "an expression has one box, as four columns or a list of four numbers"
        meaning.unclear = f"{meaning.boxes} are other boxes in each row of a picture, and {one}"
    elif shares and (meaning.text is not None or form == "xywh"):
        meaning.unclear = f"{', '.join(four)} hold boxes as shares of the picture: write them in pixels"
    elif four and meaning.text is not None and meaning.answers is None:
        plain = len(four) == 1 and form == "xyxy"
        meaning.boxes, meaning.box_format, meaning.one_box = four[0] if plain else four, form, True
    elif four and meaning.text is None and (len(four) == 1 or several):
        meaning.boxes, meaning.box_format = four, "shares" if shares else form
        one_class = next((name for name in left if is_hinted("label", name)), None)  # all boxes may be of one class
        meaning.box_labels, meaning.label = meaning.label or one_class, None
        left.pop(one_class or "", None)
    else:
        left |= numbers


def _are_choices(lists: Sequence[Any], answers: Sequence[Any]) -> bool:
    rows = zip(answers, lists, strict=False)
    alike = cells.are_word_lists(lists) and len(lists) == len(answers)
    return alike and all(type(at) is int and 0 <= at < len(words) and at not in words for at, words in rows)


def _choice_columns(table: TableFile, left: Left, answers: str) -> list[str] | None:
    """Take columns such as ``A`` to ``D`` or ``option1`` to ``option4``, if every answer names or repeats one."""
    hits = filter(None, (re.fullmatch(r"(.*?)[ _-]?([A-Ha-h]|[0-8])", name) for name in left))
    for names in grouped((hit[1].lower(), hit[0]) for hit in hits).values():
        letters = {name[-1].upper() for name in names}
        letters = set() if "1" in letters and "0" not in letters else letters  # readers count places from 0
        answered = [row for row in table.rows if row.get(answers) not in (None, "")]
        rows = [(str(row[answers]), [str(row.get(name)) for name in names]) for row in answered]
        if len(names) > 1 and all(word.upper() in letters or word in words for word, words in rows):
            for name in names:
                del left[name]
            return names
    return None


def _one_column(left: Left) -> tuple[str, list[str]] | None:
    for name in sorted(left, key=lambda name: not is_hinted("boxes", name)):
        if left[name] and all(map(cells.is_box, left[name])):
            wrong = sum(x2 <= x1 or y2 <= y1 for x1, y1, x2, y2 in left[name])  # corners of no box
            return "xywh" if wrong > len(left[name]) / 10 else "xyxy", [name]
    return None


def _four_columns(left: Left) -> tuple[str, list[str]]:
    letters = {name: re.sub(r"[^a-z0-9]", "", name.lower()) for name in left}
    plain = {re.sub(r"^(bbox|box|roi|rect)", "", word): name for name, word in letters.items()}
    for form, names in ((form, names.split()) for form, fours in _FOURS.items() for names in fours):
        four = [plain[name] for name in names if name in plain]
        if len(four) == 4 and all(cells.as_number(value) is not None for name in four for value in left[name]):
            return form, four
    four = [name for name in left if re.match(r"value\d", name) and None not in map(cells.as_number, left[name])]
    sides = zip(*(map(float, left[name]) for name in four), strict=False)
    corners = len(four) == 4 and all(x1 < x2 and y1 < y2 for x1, y1, x2, y2 in sides)
    return ("xyxy", four) if corners else ("", [])  # AutoML's and RetinaNet's tables have no header


def _are_questions(texts: Sequence[Any]) -> bool:
    asked = [str(text).rstrip().endswith(_MARKS) or _ASKS.match(str(text)) is not None for text in texts]
    return sum(asked) > len(texts) / 2


def _only_one(meaning: Meaning, left: Left, role: str, fits: Callable[[Sequence[Any]], bool]) -> str | None:
    """Take the column of answers or labels: the one that is called so, else the only one that fits."""
    others = ("source",) if role == "label" else ("kind", "id")
    able = [name for name in left if fits(left[name]) and not any(is_hinted(other, name) for other in others)]
    named = [name for name in able if is_hinted(role if role == "label" else "answers", name)]
    exact = [name for name in named if name.lower() in ("label", "class", "answer", "category", "target")]
    able = exact[:1] or named or able
    if len(able) > 1:
        columns = " and ".join([", ".join(able[:-1]), able[-1]])
        meaning.unclear = f"the columns {columns} could each be the {role}: choose with --{role} COLUMN"
    elif able:
        name = _in_words(left, able[0]) if role == "label" else able[0]
        del left[name]
        return name
    return None


def _in_words(left: Left, name: str) -> str:
    """Return the column with a word for each number of a column; without any, the column itself."""
    numbers = left[name]
    if any(cells.as_number(value) is None for value in numbers):
        return name
    for other, words in left.items():
        pairs = {(str(number), str(word)) for number, word in zip(numbers, words, strict=False)}
        alike = len(words) == len(numbers) and all(len(set(one)) == len(pairs) for one in zip(*pairs, strict=True))
        if alike and cells.is_label_like(words) and all(cells.as_number(word) is None for word in words):
            return other
    return name


def _several(meaning: Meaning, left: Left, named: Sequence[str]) -> bool:
    """Take the columns of several labels a row: one of names, or two or more of flags."""
    for name in filter(lambda name: is_hinted("tags", name) or is_hinted("label", name), left):
        mark = cells.names_mark(left[name])
        if not meaning.labels and (mark == "" or (mark and is_hinted("tags", name))):
            meaning.labels, meaning.several = [name], mark
    flags = [name for name in left if cells.are_flags(left[name])]
    able = {name for name in left if cells.is_label_like(left[name])}
    most = able <= set(flags) or len(flags) > max(2, 2 * len(able - set(flags)))  # CheXpert: sex beside findings
    if not meaning.labels and not named and len(flags) > 1 and able and most:
        meaning.labels = flags
    for name in meaning.labels:
        left.pop(name)
    return bool(meaning.labels)


def _empty(meaning: Meaning, values: Mapping[str, Sequence[Any]]) -> str:
    if meaning.answers or meaning.label or meaning.labels or meaning.boxes:
        return ""
    known = list(chain.from_iterable(map(as_list, meaning.columns.values())))
    for name in (one for one in values if one not in known and (is_hinted("answers", one) or is_hinted("label", one))):
        if not values[name]:
            return f"the column {name} is empty"
        if (meaning.questions or cells.is_short(values[name])) and not cells.has_repeats(values[name]):
            way = f"; as captions they can be: --text {name}" if meaning.questions else ""
            return f"the column {name} has another value in every row, so that nothing can be learnt from it{way}"
        if len(set(map(str, values[name]))) == 1 and (meaning.text is None or name.lower() == "label"):
            return f"the column {name} has the same value in every row"
    return ""


def _pictures(table: TableFile, pictures: Pictures, left: Left, wanted: str | None) -> Naming | None:
    """Take the column or the two that name pictures, else one that is a part of file names."""
    beside, part = table.path.parent, part_in(table.path.name)
    able = {wanted: left.get(wanted, [])} if wanted else left
    found = {name: pictures.named_by(name, values, beside, part) for name, values in able.items()}
    namings = {name: one for name, one in found.items() if one is not None}
    naming = None if wanted else _in_folders(table, pictures, left, namings)
    if naming is None:
        naming = _by_names(table, left, namings, wanted) if namings else _by_parts(pictures, able, beside, wanted)
    for source in naming.sources if naming else ():
        fields = re.findall(r"{([^{}:]+)", source) or [source]
        for name in fields:
            if len(fields) == 1 or not is_hinted("label", name):  # a folder may be the class
                left.pop(name, None)
    return naming


def _in_folders(table: TableFile, pictures: Pictures, left: Left, namings: Mapping[str, Naming]) -> Naming | None:
    """Return how a column of folders and one of names name more pictures than any column does."""
    clear = [one for one in namings.values() if not one.ambiguous]
    if any(one.share == 1 and not one.also for one in clear):
        return None
    words = [name for name in left if cells.count_words(left[name]) < 3]
    both = pictures.by_two_columns(table.rows, words, table.path.parent)
    better = both and all(both.share > one.share or (one.also and not both.also) for one in clear)
    return both if better else None


def _by_names(table: TableFile, left: Left, namings: Mapping[str, Naming], wanted: str | None) -> Naming | None:
    """Return the best naming, or that of two columns of different pictures."""
    rows = {name for name in left if not is_hinted("picture", name) and None not in map(cells.as_number, left[name])}
    order = {name: (name in rows, -round(namings[name].share, 1), not is_hinted("picture", name)) for name in namings}
    ranked = sorted(namings, key=lambda name: order[name])
    other = [one for name, one in left.items() if is_hinted("picture", name) and not cells.is_address(one)]
    if not wanted and {*ranked} <= rows and any(map(_are_files, other)):
        return None  # numbers of rows may be names of other pictures
    exact = [name for name in ranked if namings[name].share > 0.9 and cells.count_words(left.get(name, []))]
    files = [name for name in ranked if is_hinted("picture", name) or name in exact or _are_files(left.get(name, []))]
    pair = sorted([name for name in files if namings[name].share > 0.5][:2], key=table.columns.index)
    folders = {namings[name].folder for name in pair}
    same = any(len({image_id(str(row.get(one))) for one in pair}) < 2 for row in table.rows[:100])  # an id beside it
    if len(pair) == 2 > len(folders) and not same:
        return Naming(tuple(pair), folders.pop(), min(namings[name].share for name in pair))
    return namings[ranked[0]]


def _by_parts(pictures: Pictures, able: Left, beside: Path, wanted: str | None) -> Naming | None:
    """Return how a column holds a part of file names, or the number that ends them."""
    parts = {name: values for name, values in able.items() if not cells.is_split(values)}
    whole = [name for name, values in parts.items() if _are_files(values)]
    by_part = (pictures.by_template(name, parts[name]) for name in (whole or parts))
    hinted = [name for name in able if wanted or is_hinted("picture", name)]
    by_number = (pictures.named_by(name, able[name], beside, by_number=True) for name in hinted)
    return next((one for one in chain(by_part, by_number) if one is not None), None)


def _are_files(values: Sequence[Any]) -> bool:
    return bool(values) and all(map(is_picture_file, map(str, values)))


def _take(left: Left, role: str, fits: Callable[[Sequence[Any]], bool], *, named: bool = False) -> str | None:
    """Take the first column that fits, those called like the role first; ``named``: only those."""
    order = sorted(left, key=lambda name: (name.lower().rstrip("s") != role.rstrip("s"), not is_hinted(role, name)))
    fitting = (name for name in order if (not named or is_hinted(role, name)) and fits(left[name]))
    if (name := next(fitting, None)) is not None:
        del left[name]
    return name


def _text(left: Left) -> str | None:
    counts = {name: cells.count_words(values) for name, values in left.items() if not cells.is_address(values)}
    order = _HINTS["text"].split("|")
    # of two names with the same word the shorter: KVQA's Questions, not its ParaQuestions
    if named := sorted((name for name, count in counts.items() if count >= 2 and is_hinted("text", name)), key=len):
        return min(named, key=lambda name: next((i for i, word in enumerate(order) if word in name.lower()), 99))
    long = [name for name, count in counts.items() if count >= 3 and not _is_class_name(left[name])]
    return max(long, key=lambda name: counts[name], default=None)


def _is_class_name(values: Sequence[Any]) -> bool:
    few = len(values) >= cells.FEW and len(set(map(str, values))) <= min(cells.MOST_LABELS, len(values) // 4)
    return few and not any(str(value).rstrip().endswith(_MARKS) for value in values)


def separator_of(texts: Sequence[Any]) -> str:
    """Return the separator of the sentences in most cells; empty: one sentence a cell, or lists."""
    for mark in _CAPTION_SEPARATORS:
        several = [[part.split() for part in text.split(mark)] for text in texts if isinstance(text, str)]
        if sum(len(parts) > 1 and sum(map(len, parts)) >= 3 * len(parts) for parts in several) > len(texts) / 2:
            return mark
    return ""


def _numbered(name: str) -> str:  # without the number that it ends in
    return re.sub(r"[\s_-]*[0-9]+$", "", name)


def is_hinted(role: str, name: str) -> bool:
    """Return whether a column is called like a role: ``picture``, ``label``, ..."""
    return bool(role) and re.search(_HINTS[role], name.lower()) is not None
