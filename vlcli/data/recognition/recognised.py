"""Records data that a reader can read in a folder, or a question about data that are unclear."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

from vlcli.plain import as_list, comma_list

# Words for the parts of a data set
PART_WORDS = {
    "train": ("training", "trainval", "train", "trn", "nominival"),
    "validation": ("validation", "validate", "valid", "minival", "val", "dev", "holdout"),
    "test": ("testing", "testdev", "testa", "testb", "test", "tst", "t10k"),
}
_WORDS = "|".join(sorted((word for words in PART_WORDS.values() for word in words), key=len, reverse=True))
_PART = re.compile(rf"(?<![a-z])({_WORDS})(?=(?:set|data|split|images|imgs|labels)?(?![a-z]))", re.IGNORECASE)

_PARTITION = re.compile(r"partition|split|subset|fold")


def part_of(word: str) -> str:
    """Return the part (``train``, ``validation``, ``test``) of a word; empty where it is none."""
    return next((part for part, words in PART_WORDS.items() if word.lower() in words), "")


def part_in(path: str) -> str:
    """Return the part that a path names, by its file's name first, then its folders; empty where there is none."""
    hits = map(_PART.search, reversed(Path(path).parts))
    return next((part_of(hit[1]) for hit in hits if hit), "")


def parts_of(splits: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options that choose each part where splits have these names; empty without training and another part.

    ``trainval`` beside ``train`` repeats its rows and is left out.
    """
    names: dict[str, list[str]] = {}
    lower = list(map(str.lower, splits))
    for split, word in zip(splits, lower, strict=True):
        repeats = "trainval" in word and word.replace("trainval", "train") in lower
        part = "train" if split == "restval" else part_of(split) or part_in(split)  # Karpathy's rest of val
        if part and not repeats:
            names.setdefault(part, []).append(split)
    if exact := list(filter(part_of, names.get("test", []))):  # RSVQA's test_phili is another test
        names["test"] = exact
    chosen = {part: {"split": words[0] if len(words) == 1 else words} for part, words in names.items()}
    return chosen if {"train"} < set(chosen) else {}


def parts_by(values: Sequence[str], name: str) -> dict[str, str]:
    """Return the word for each part in a column of parts; empty where it is none.

    Args:
        name: of column and file: only under one such as ``partition`` are 0, 1 and 2 the parts (CelebA), or 1, 2 and 3
            with most rows in the first (OCR-VQA); folds are none.
    """
    distinct, name = sorted(set(values)), name.lower()
    counted = distinct == ["1", "2", "3"] and "fold" not in name and max(distinct, key=list(values).count) == "1"
    if (distinct == ["0", "1", "2"] or counted) and _PARTITION.search(name):
        return dict(zip(("train", "validation", "test"), distinct, strict=True))
    words = {part_of(word): word for word in reversed(distinct) if part_of(word)}
    return words if len(words) == len(distinct) > 1 else {}


def split_names(files: Sequence[str]) -> tuple[str, list[str]]:
    """Return one name with ``{split}`` for several files, and each file's split: the word for its part, else all that
    differs.
    """
    words = [hit[1] if (hit := _PART.search(file)) else "" for file in files]
    by_word = {file.replace(word, "{split}") if word else file for file, word in zip(files, words, strict=True)}
    if len(by_word) == 1 and all(words):
        return by_word.pop(), words
    start = _common_start(files)
    end = _common_start([file[len(start) :][::-1] for file in files])[::-1]
    return f"{start}{{split}}{end}", [file[len(start) : len(file) - len(end)] for file in files]


def _common_start(names: Sequence[str]) -> str:  # without the half word that it ends in
    return re.sub(r"[^\W_]+\Z", "", os.path.commonprefix(names))  # noqa: RUF071 (of letters)


KINDS = {
    "vqa": "questions with answers",
    "pairs": "statements about two pictures, with labels",
    "statements": "sentences with labels",
    "captions": "captions",
    "referring": "expressions, each with a box",
    "labels": "pictures with classes",
    "multilabel": "pictures with several classes each",
    "boxes": "labelled boxes",
}
"""Descriptions of data sets by kind."""


@dataclass
class Recognised:
    """One data set of a folder, or a question about files that annotate pictures and are not understood.

    Attributes:
        kind: one of :data:`KINDS`; empty for a question.
        entry: name and options of the reader of all parts; an option may hold ``{split}``.
        files: annotation files, relative to the folder; they are hidden from other readers.
        columns: column or field by role (``image``, ``text``, ``answers``, ``label``, ``boxes``), to be shown.
        parts: options that choose each part (``train``, ``validation``, ``test``), where the data name their parts.
        reasons: reason for an option, by its name; ``parts``: what names the parts.
        notes: warnings.
        unused: unused files or columns: "FILE: reason".
        question: about unclear data, with the options or changes that settle it; such data are not read.
        title: name in messages; empty: the files.
        fallback: whether it counts only where no table annotates the folder's pictures.
    """

    kind: str
    entry: dict[str, Any]
    files: list[str]
    columns: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    question: str = ""
    title: str = ""
    fallback: bool = False
    has_sentences: bool = False

    @property
    def where(self) -> str:
        return self.title or comma_list(self.files, 4)

    @property
    def splits(self) -> list[str]:
        """Every split that ``parts`` names, each once; empty where parts are chosen otherwise."""
        named = (as_list(options.get("split")) for options in self.parts.values())
        return list(dict.fromkeys(chain.from_iterable(named)))

    def name_files(self, option: str = "file", splits: Sequence[str] | None = None) -> Recognised:
        """Set the reader's option that names the files, ``{split}`` for their parts; return the record.

        ``splits`` are the words by which a single file divides its rows.
        """
        self.entry[option] = self.files[0]
        if splits is None and len(self.files) > 1:
            self.entry[option], splits = split_names(self.files)
            self.reasons["parts"] = "the files are named after the parts"
        self.parts = parts_of(splits or [])
        if self.parts and (others := [split for split in splits or () if split not in self.splits]):
            self.unused.append(f"{', '.join(others)}: no part of {self.where}; split: {others[0]} reads its rows")
        if splits and not self.parts:
            self.entry["split"] = list(splits)
        if len(self.files) > 1 and not self.parts:
            self.notes.append(f"nothing in the names of {self.where} says which is for training: they are read as one")
        return self

    def take_lists(self, lists: dict[str, str]) -> None:
        """Choose the parts by lists of pictures, given as ``FILE`` or ``FILE=WORD`` by part."""
        files = list(dict.fromkeys(name.partition("=")[0] for name in lists.values()))
        self.parts = {part: {"take": f"in:{name}"} for part, name in lists.items()}
        self.reasons["parts"] = f"{', '.join(files)} list the pictures of the parts"
        self.files += files
