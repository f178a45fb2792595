"""What to learn from a folder, with which parts held out, from which features, with how large a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from vlcli.builders.readers import build_reader
from vlcli.data.reader import Reader
from vlcli.data.recognition.recognised import Recognised
from vlcli.data.sample import Example
from vlcli.data.take import select
from vlcli.errors import DataError, UsageError
from vlcli.starter.machine import Machine
from vlcli.starter.seen import Row
from vlcli.starter.weights import Weights

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
"""What can be learnt: the kind of data it needs, and what it is in words; the first that fits is chosen."""
OF_IMAGES = ("image-classification", "multi-label")
"""Goals whose model reads pixels and nothing else."""
FEWEST = 10
"""Pictures below this number cannot be divided."""
STEPS, FEWEST_EPOCHS = 3200, 12
"""The longest training of stages that stop by themselves: so many steps, so many epochs at least."""
SHORT_STEPS, SHORT_EPOCHS = 800, 3
"""The same of stages that train to their end: contrast, captions, detectors."""
MOST_EPOCHS = 100
"""The longest training. After 30 epochs over 115 questions, a model still gave all of them one answer."""
POOLED_MOST = 20_000
"""Training examples below which pooled features and one hidden layer learn more than a transformer (docs/init.md)."""
EYES_STEPS, EYES_BATCH = 600, 16
"""How long a small network learns to see from labelled boxes."""
ALPHABET = 100
"""Entries of a vocabulary that are single letters and signs."""


@dataclass
class Part:
    """One part of a data set.

    Attributes:
        options: what chooses it among all.
        examples: how many it has.
        pictures: how many different pictures.
        names: their paths.
    """

    options: dict[str, Any]
    examples: int
    pictures: int
    names: frozenset[str] = frozenset()


@dataclass
class Size:
    """How large the model is.

    Attributes:
        hidden: width.
        heads: attention heads.
        layers: of text, image, and both.
        why: in words.
    """

    hidden: int
    heads: int
    layers: tuple[int, int, int]
    why: str


@dataclass
class Plan:
    """Everything a recipe needs.

    Attributes:
        goal: one of :data:`GOALS`.
        source: the data it is learnt from.
        parts: train, validation and test.
        more: further data sets of the same kind, which are learnt from together with the first.
        captions: captions to pre-train on.
        boxes: files of given boxes.
        labelled: labelled boxes on which a backbone can be trained.
        weights: of a backbone.
        size: of the model.
        machine: what it runs on.
        vocabulary: word pieces.
        length: of sentences, in word pieces.
        epochs: the longest training.
        batch: examples of a training step.
        sizes: median width and height of the pictures in pixels.
        min_count: of answers, where the goal has an answer table.
        one_answer: whether every question has a single answer.
        classes: different answers or labels.
        candidates: boxes of a picture, on average, where one of them is chosen.
        drop: whether examples without a usable picture are left out.
        rows: some of the data, as they are understood.
        aside: files that are not used, each with the reason.
        notes: what a person should know.
    """

    goal: str
    source: Recognised
    parts: dict[str, Part]
    machine: Machine
    size: Size
    more: list[Recognised] = field(default_factory=list)
    captions: list[Recognised] = field(default_factory=list)
    boxes: list[str] = field(default_factory=list)
    labelled: Recognised | None = None
    weights: Weights | None = None
    vocabulary: int = 1000
    length: int = 20
    epochs: int = 10
    batch: int = 32
    sizes: tuple[int, int] = (0, 0)
    min_count: int = 1
    one_answer: bool = True
    classes: int = 2
    candidates: float = 0.0
    drop: bool = False
    rows: list[Row] = field(default_factory=list)
    aside: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The readers' entries of all data that are learnt from."""
        return [dict(source.entry) for source in (self.source, *self.more)]

    @property
    def features(self) -> str:
        """Where image features come from: ``weights``, ``boxes`` (a network trained on them here) or ``pixels``."""
        return "weights" if self.weights else "boxes" if self.labelled else "pixels"


def goals_of(sources: Sequence[Recognised]) -> dict[str, Recognised]:
    """What can be learnt from these data, best first."""
    by_kind: dict[str, Recognised] = {}
    for source in sources:
        by_kind.setdefault(source.kind, source)
    return {goal: by_kind[kind] for goal, (kind, _) in GOALS.items() if kind in by_kind}


def choose(goals: dict[str, Recognised], wanted: str | None) -> str:
    """The goal that is asked for, else the first.

    Raises:
        UsageError: the data do not allow the one that is asked for.
    """
    if wanted is None:
        return next(iter(goals))
    if wanted not in goals:
        raise UsageError("These data do not fit the task.", got=wanted, expected=", ".join(goals) or "no task fits")
    return wanted


def read(source: Recognised, root: Path) -> tuple[Reader, list[Example]]:
    """All examples of a data set, read by the reader that the recipe names."""
    reader = build_reader(whole(source), root)
    return reader, list(reader.examples())


def whole(source: Recognised) -> dict[str, Any]:
    """The entry that reads every part."""
    return {**source.entry, **({"split": source.splits} if source.splits else {})}


def divide(source: Recognised, examples: Sequence[Example], root: Path) -> dict[str, Part]:
    """Training, validation and test parts, none of which shares a picture with another.

    Raises:
        DataError: there are too few pictures, or a part is empty.
    """
    number = len({name for example in examples for name in example.images})
    if number < FEWEST:
        got, hint = f"{number} pictures", "add pictures with their rows, and call init again"
        raise DataError("There are too few pictures to hold some out.", got=got, expected=f"{FEWEST}", hint=hint)
    options = _named_parts(source) if source.parts else _shares(number)
    found = {}
    for part, chosen in options.items():
        own = bool(source.parts)
        reader, rows = (
            _rows({**source.entry, **chosen}, root) if own else (None, select(examples, chosen["take"], root))
        )
        pictures = {name for example in rows for name in example.images}
        paths = frozenset(str(reader.locate(name)) for name in pictures) if reader else frozenset(pictures)
        found[part] = Part(chosen, len(rows), len(pictures), paths)
    empty = [part for part, one in found.items() if not one.examples]
    if empty:
        raise DataError(f"The part {empty[0]!r} would be empty.", where=source.where, got=f"{number} pictures")
    return found


def _rows(entry: dict[str, Any], root: Path) -> tuple[Reader, list[Example]]:
    reader = build_reader(entry, root)
    return reader, list(reader.examples())


def _shares(number: int) -> dict[str, dict[str, Any]]:
    """Shares by picture, the same whichever way the table is sorted."""
    first, second = (0.7, 0.8) if number < 1000 else (0.8, 0.9) if number < 20_000 else (0.9, 0.95)
    return {
        "train": {"take": f"first:{first}"},
        "validation": {"take": f"between:{first}:{second}"},
        "test": {"take": f"after:{second}"},
    }


def _named_parts(source: Recognised) -> dict[str, dict[str, Any]]:
    """The parts that the data name; where there are two, validation is cut from the training part."""
    named = source.parts
    if "validation" in named and "test" in named:
        return {part: dict(named[part]) for part in ("train", "validation", "test")}
    held = named.get("test", named.get("validation", {}))
    train = {**named["train"], "take": "first:0.9"}
    return {"train": train, "validation": {**named["train"], "take": "after:0.9"}, "test": dict(held)}


def size_for(examples: int, machine: Machine, pixels: bool) -> Size:
    """A model that the data can fill and the machine can train.

    Args:
        examples: of training.
        machine: where.
        pixels: whether it reads pixels, which takes a wider model.
    """
    steps = (
        (5_000, 96, 4, (2, 1, 2)),
        (50_000, 192, 6, (3, 2, 3)),
        (500_000, 384, 6, (4, 3, 4)),
        (math.inf, 768, 12, (9, 5, 5)),
    )
    by_data = next(step for step in steps if examples < step[0])
    most = 768 if machine.gpu else 192
    chosen = by_data if by_data[1] <= most else next(step for step in reversed(steps) if step[1] <= most)
    why = f"{examples:,} training examples"
    why += "" if chosen is by_data else f", and {machine.text}: a GPU would allow {by_data[1]}"
    hidden = max(chosen[1], 128) if pixels and chosen[1] < 128 else chosen[1]
    return Size(hidden, chosen[2], chosen[3], why)


def epochs_for(examples: int, batch: int, stops: bool = True) -> int:
    """The epochs of a training; a generous bound where it stops when validation no longer improves."""
    steps, fewest = (STEPS, FEWEST_EPOCHS) if stops else (SHORT_STEPS, SHORT_EPOCHS)
    return max(fewest, min(MOST_EPOCHS, round(steps * batch / max(1, examples))))


def patience_for(epochs: int) -> int:
    """Validations without a better score after which a training stops: more of them where an epoch has few steps."""
    return max(4, epochs // 5)


def text_facts(examples: Sequence[Example]) -> tuple[int, int]:
    """Size of the vocabulary and length of sentences that the texts ask for."""
    texts = [text for example in examples for text in (example.text, *example.choices) if text]
    words = {word.strip(".,?!").lower() for text in texts for word in text.split()}
    lengths = sorted(len(text.split()) for text in texts) or [8]
    long = lengths[int(0.99 * (len(lengths) - 1))]
    sizes = (300, 1000, 3000, 10_000, 30_000)
    vocabulary = next((size for size in sizes if len(words) + ALPHABET <= size), sizes[-1])  # words stay whole
    return vocabulary, max(8, min(128, round(1.4 * long) + 3))


def answers_facts(examples: Sequence[Example]) -> tuple[int, bool, int]:
    """From how many questions an answer counts, whether every question has one answer, and how many answers remain."""
    counts: dict[str, int] = {}
    for example in examples:
        scores = example.targets.get("answers") or {}
        if scores:
            best = max(scores, key=lambda answer: scores[answer])
            counts[best] = counts.get(best, 0) + 1
    one = all(len(example.targets.get("raw_answers") or [1]) == 1 for example in examples)
    least = 1 if len(examples) < POOLED_MOST else 3 if len(examples) < 50_000 else 9
    return least, one, sum(count >= least for count in counts.values())
