"""Chooses goal, held-out parts, sizes and epochs for a folder's data, and warns about the data."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

from vlcli.builders.never_right import never_right
from vlcli.builders.readers import build_reader
from vlcli.data import Example, Reader, Recognised
from vlcli.data.holdout import groups_of, select
from vlcli.data.readers.table import Table
from vlcli.errors import DataError
from vlcli.images.shards import is_there
from vlcli.plain import comma_list
from vlcli.recipe.schema import Recipe
from vlcli.starter.machine import Machine
from vlcli.starter.seen import Row, Seen, Weights

# Kind of data that a goal needs, and its description, by goal; the first that fits is chosen
GOALS = {
    "vqa": ("vqa", "answer questions about a picture (VQA)"),
    "pairs": ("pairs", "judge sentences about two pictures, as in NLVR2"),
    "classification": ("statements", "classify sentences with their picture"),
    "referring": ("referring", "find the box that an expression speaks of (referring expressions)"),
    "retrieval": ("captions", "find pictures by sentences and sentences by pictures (retrieval)"),
    "captioning": ("captions", "write captions"),
    "image-classification": ("labels", "classify pictures"),
    "multi-label": ("multilabel", "say which classes a picture has, several or none"),
    "detection": ("boxes", "find objects (detection)"),
}
# Goals whose model reads pixels and nothing else
OF_IMAGES = ("image-classification", "multi-label")
_FEWEST = 10  # pictures below this number cannot be divided
STEPS, FEWEST_EPOCHS = 3200, 12
"""Longest training, in steps, of stages that stop by themselves, and their fewest epochs."""
SHORT_STEPS, SHORT_EPOCHS = 800, 3
"""The same of stages that train to their end: contrast, captions, detectors."""
# The longest training. After 30 epochs over 115 questions, a model still gave all of them one answer.
_MOST_EPOCHS = 100
# Training examples below which pooled features and one hidden layer learn more than a transformer (docs/init.md)
POOLED_MOST = 20_000
EYES_STEPS, EYES_BATCH = 600, 16
"""Training of the small network that learns features from labelled boxes."""
_ALPHABET = 100  # entries of a vocabulary that are single letters and signs
# Training examples below which a size is chosen, its width, heads and layers.
_SIZES = (
    (5_000, 96, 4, (2, 1, 2)),
    (50_000, 192, 6, (3, 2, 3)),
    (500_000, 384, 6, (4, 3, 4)),
    (math.inf, 768, 12, (9, 5, 5)),
)


class Part(NamedTuple):
    """One part of a data set: the reader's options that choose it, its counts, the paths of its pictures."""

    options: dict[str, Any]
    examples: int
    pictures: int
    names: frozenset[str] = frozenset()


class Size(NamedTuple):
    """Width, attention heads and layers (text, image, both) of a model, with the reason."""

    hidden: int
    heads: int
    layers: tuple[int, int, int]
    why: str


_NO_SIZE = Size(0, 0, (0, 0, 0), "")


@dataclass
class Plan:
    """Everything a recipe needs."""

    goal: str
    source: Recognised
    parts: dict[str, Part]
    machine: Machine
    more: list[Recognised]  # of the kind of `source`, learnt together with it
    size: Size = _NO_SIZE
    captions: list[Recognised] = field(default_factory=list)  # to pre-train on
    boxes: list[str] = field(default_factory=list)
    labelled: Recognised | None = None  # boxes to train a backbone on
    weights: Weights | None = None
    vocabulary: int = 1000
    length: int = 20
    epochs: int = 10
    batch: int = 32
    sizes: tuple[int, int] = (0, 0)  # median width and height of the pictures in pixels
    pictures: int = 0  # in the folder or its shards
    min_count: int = 1  # of an answer in the answer table
    one_answer: bool = True  # whether every question has a single one
    classes: int = 2
    candidates: float = 0.0  # mean number of boxes of a picture, of which one is chosen
    drop: bool = False
    rows: list[Row] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def features(self) -> str:
        """Source of image features: ``weights``, ``boxes`` (a network trained on them here) or ``pixels``."""
        return "weights" if self.weights else "boxes" if self.labelled else "pixels"


def goals_of(sources: Sequence[Recognised]) -> dict[str, Recognised]:
    """Return the data for each goal that they allow, the best goal first."""
    by_kind = {source.kind: source for source in reversed(sources)}
    return {goal: by_kind[kind] for goal, (kind, _) in GOALS.items() if kind in by_kind}


def read(source: Recognised, root: Path) -> tuple[Reader, list[Example]]:
    """Build a data set's reader of all parts, and read all examples."""
    reader = build_reader(whole(source), root)
    return reader, list(reader.examples())


# Names of columns that say whether a picture has the class of the row.
_SAYS_WHETHER = re.compile(r"confidence|present|positive|relevant|verified|value", re.IGNORECASE)


def in_several_classes(source: Recognised, root: Path) -> list[Recognised]:
    """Return a table as one of several classes a picture, if a fifth of its pictures have rows of several classes.

    Rows with 0 in a column of 0 and 1 such as ``Confidence`` are then left out.
    """
    reader, examples = read(source, root)
    classes: dict[Any, set[str]] = defaultdict(set)
    for example in examples:
        classes[tuple(example.images)].add(str(example.targets.get("label")))
    several = sum(len(some) > 1 for some in classes.values())
    if not isinstance(reader, Table) or "labels" in source.entry or several <= len(classes) / 5:
        return []
    column = source.columns["label"]
    reason = f"{several:,} of {len(classes):,} pictures have rows of several classes"
    entry, parts = {**source.entry, "label": [column], "by_picture": True}, source.parts
    rows = [row for file in reader.tables() for _, row in reader.rows(file)]
    for name in rows[0]:
        if _SAYS_WHETHER.search(name) and {str(row.get(name)) for row in rows} == {"0", "1"}:
            entry["only"] = {name: "1"}
            parts = {part: {**one, "only": {**one.get("only", {}), name: "1"}} for part, one in parts.items()}
            reason += f"; where {name} is 0, they lack it"
    columns, reasons = {**source.columns, "label": [column]}, {**source.reasons, "label": reason}
    return [replace(source, kind="multilabel", entry=entry, columns=columns, parts=parts, reasons=reasons)]


def whole(source: Recognised) -> dict[str, Any]:
    """Return the reader's entry that reads every part."""
    return {**source.entry, **({"split": source.splits} if source.splits else {})}


def divide(source: Recognised, examples: Sequence[Example], root: Path) -> dict[str, Part]:
    """Return training, validation and test parts; no two share a picture, unless the data name the parts.

    Raises:
        DataError: there are too few pictures, or a part is empty.
    """
    number = len({name for example in examples for name in example.images})
    if number < _FEWEST:
        got, hint = f"{number} pictures", "add pictures with their rows, and call init again"
        raise DataError("There are too few pictures to hold some out.", got=got, expected=f"{_FEWEST}", hint=hint)
    for held in (0.1, 0.2, 0.3):  # of a few dozen pictures a hash may hold none out
        named = _named_parts(source.parts, held) if source.parts else _shares(number, held)
        parts = {part: _part(source, options, examples, root) for part, options in named.items()}
        empty = [part for part, one in parts.items() if not one.examples]
        if not empty:
            return parts
    got, hint = f"{number} pictures; groups: {len(set(groups_of(examples)))}", "name the parts in a column: split"
    expected = f"{_FEWEST} groups of pictures that no row shows together, since no picture may be in two parts"
    raise DataError(f"The part {empty[0]!r} would be empty.", where=source.where, got=got, expected=expected, hint=hint)


def _part(source: Recognised, options: dict[str, Any], examples: Sequence[Example], root: Path) -> Part:
    if source.parts:
        listed, _, share = str(options.get("take", "")).rpartition("& ")
        take = listed.strip() or None if share.startswith(("first:", "after:")) else options.get("take")
        reader = build_reader({**source.entry, **options, "take": take}, root)
        rows = list(reader.examples()) if take == options.get("take") else select(reader.examples(), share, root)
    else:
        rows = select(examples, options["take"], root)
    names = {name for example in rows for name in example.images}
    paths = frozenset(str(reader.locate(name)) for name in names) if source.parts else frozenset(names)
    return Part(options, len(rows), len(names), paths)


def _shares(number: int, held: float) -> dict[str, dict[str, Any]]:
    first, second = (0.7, 0.8) if number < 1000 else (0.8, 0.9) if number < 20_000 else (0.9, 0.95)
    if held > 0.1:
        first, second = round(0.9 - 2 * held, 1), round(1 - held, 1)
    shares = {"train": f"first:{first}", "validation": f"between:{first}:{second}", "test": f"after:{second}"}
    return {part: {"take": share} for part, share in shares.items()}


def _named_parts(named: dict[str, dict[str, Any]], held: float) -> dict[str, dict[str, Any]]:
    if "validation" in named and "test" in named:
        return {part: named[part] for part in ("train", "validation", "test")}
    # of two parts, the smaller is the test; validation is cut from the training part
    train, test = named["train"], named.get("test", named.get("validation", {}))
    listed = f"{train['take']} & " if "take" in train else ""
    most, few = {**train, "take": f"{listed}first:{1 - held}"}, {**train, "take": f"{listed}after:{1 - held}"}
    return {"train": most, "validation": few, "test": test}


def size_for(examples: int, machine: Machine, pixels: bool) -> Size:
    """Return the size of a model for the data and the machine; a model that reads pixels is at least 128 wide."""
    by_data = next(size for size in _SIZES if examples < size[0])
    most = 768 if machine.gpu else 192
    _, hidden, heads, layers = by_data if by_data[1] <= most else _SIZES[1]
    why = f"{examples:,} training examples"
    why += "" if by_data[1] <= most else f", and {machine.text}: a GPU would allow {by_data[1]}"
    return Size(max(hidden, 128) if pixels else hidden, heads, layers, why)


def epochs_for(examples: int, batch: int, stops: bool = True) -> int:
    """Return the epochs of a training: a generous bound where it ``stops`` once validation no longer improves."""
    steps, fewest = (STEPS, FEWEST_EPOCHS) if stops else (SHORT_STEPS, SHORT_EPOCHS)
    return max(fewest, min(_MOST_EPOCHS, round(steps * batch / max(1, examples))))


def text_facts(examples: Sequence[Example]) -> tuple[int, int]:
    """Return the size of the vocabulary, and the length in word pieces that fits 99 of 100 sentences."""
    texts = [text for example in examples for text in (example.text, *example.choices) if text]
    words = {word.strip(".,?!").lower() for text in texts for word in text.split()}
    lengths = sorted(len(text.split()) for text in texts) or [8]
    long = lengths[int(0.99 * (len(lengths) - 1))]
    sizes = (300, 1000, 3000, 10_000, 30_000)
    vocabulary = next((size for size in sizes if len(words) + _ALPHABET <= size), sizes[-1])  # words stay whole
    return vocabulary, max(8, min(128, round(1.4 * long) + 3))


def answers_facts(examples: Sequence[Example]) -> tuple[int, bool, int]:
    """Return an answer's least count, whether every question has one answer, and how many answers remain."""
    scores = [example.targets.get("answers") or {} for example in examples]
    counts = Counter(max(answers, key=lambda answer: answers[answer]) for answers in scores if answers)
    one = all(len(example.targets.get("raw_answers") or [1]) == 1 for example in examples)
    least = 1 if len(examples) < POOLED_MOST else 3 if len(examples) < 50_000 else 9
    return least, one, sum(count >= least for count in counts.values())


_FEW_TESTED = 30  # test pictures below which a score says little by itself
FEW_TRAINED, HARDLY_ANY = 1000, 30
"""Training examples below which little, or nothing, can be expected."""
_NAMED = 10  # damaged pictures that a note names; `--json` lists all


def add_notes(plan: Plan, seen: Seen, readers: Sequence[Reader], examples: list[Example]) -> None:
    """Add the notes of a plan, and set whether examples without a usable picture are left out.

    Raises:
        DataError: fewer than half of the pictures are there.
    """
    files = {name: path.absolute() for reader in readers for name, path in reader.image_files().items()}
    plan.notes += plan.source.notes
    plan.notes += [f"left out {count:,} {reason}" for reader in readers for reason, count in reader.left_out.items()]
    plan.notes += _pictures(plan, seen, files)
    if encoding := plan.source.entry.get("encoding"):
        where = plan.source.where
        plan.notes.append(f"{where} is {encoding} text, not UTF-8; look whether letters with accents are right")
    for (first, one), (second, other) in combinations(plan.parts.items(), 2):
        if both := len(one.names & other.names):
            pictures = f"{both:,} of the {len(other.names):,} pictures of the {second} part"
            plan.notes.append(f"{pictures} are also in the {first} part: a score there is no score of new pictures")
    plan.notes += [*_labels(plan, examples), *_counts(plan)]
    if seen.weights is not None and plan.weights is None:
        plan.notes.append(f"the weights in {seen.weights.file} are not used: the model of this task learns from pixels")


def unknown_answers(recipe: Recipe, root: Path) -> list[str]:
    """Return lines on test examples whose answers the training part lacks."""
    return never_right(recipe, lambda _, spec: build_reader(spec, root))


def _pictures(plan: Plan, seen: Seen, files: dict[str, Path]) -> Iterator[str]:
    used = set(files.values())
    absent = sorted(name for name, path in files.items() if path not in seen.paths and not is_there(path))
    if len(absent) > len(files) / 2:
        what = "Fewer than half of the pictures that the data name are there."
        got = f"{len(files) - len(absent):,} of {len(files):,}; not there: {', '.join(absent[:3])}"
        hint = "add the pictures, or call init with the folder that holds them too"
        raise DataError(what, where=plan.source.where, got=got, hint=hint)
    if absent:
        yield f"{len(absent):,} pictures that the data name are not there, such as {absent[0]}"
    bad = sorted(seen.name(path) for path in seen.unreadable if path.absolute() in used)
    if bad:
        more = " (--json lists them)" if len(bad) > _NAMED else ""
        yield f"pictures that cannot be read: {len(bad):,}: {comma_list(bad, _NAMED)}{more}"
    plan.drop = bool(absent or bad)
    names = defaultdict(list)
    for name, path in files.items():
        names[path].append(name)
    if twice := [" and ".join(several[:2]) for several in names.values() if len(several) > 1]:
        yield (
            f"{len(twice):,} pictures have two names in the data, such as {twice[0]}: they count as two pictures, of "
            "which one may be in the training part and the other in the test part; write them alike"
        )
    idle = len(seen.paths - used - {path.absolute() for path in seen.unreadable})
    if idle:
        yield f"{idle:,} pictures of the folder are in none of these rows: nothing is learnt from them"
    if seen.checked:
        yield seen.checked


def _labels(plan: Plan, examples: list[Example]) -> Iterator[str]:
    counts = Counter(str(example.targets["label"]) for example in examples if "label" in example.targets)
    once = sum(count == 1 for count in counts.values())
    if plan.goal in ("image-classification", "classification") and once:
        every = "each class" if once == len(counts) else f"{once:,} of {len(counts):,} classes"
        yield f"{every} occurs once: what is learnt of such a class cannot be tested"
    targets: dict[Any, set[str]] = defaultdict(set)
    for example in examples:
        target = example.targets.get("label", example.targets.get("raw_answers"))
        if target is not None:
            targets[(*example.images, example.text)].add(str(target))
    if several := [key for key, values in targets.items() if len(values) > 1]:
        what = "pictures" if plan.goal == "image-classification" else "pictures with the same sentence"
        named = f", such as {several[0][0]}" if several[0][0] else ""
        yield f"rows contradict each other about {len(several):,} {what}{named}: all of these rows are learnt from"


def _counts(plan: Plan) -> Iterator[str]:
    few, tested = plan.parts["train"].examples, plan.parts["test"].pictures
    if few < HARDLY_ANY:
        yield f"nothing can be learnt from {few:,} training examples: the table shows what the baselines score"
    elif few < FEW_TRAINED:
        yield f"{few:,} training examples are few: expect little more than the most frequent answer or chance"
    if tested < _FEW_TESTED:
        yield f"test pictures are few ({tested}): read the intervals of the report with the scores"
