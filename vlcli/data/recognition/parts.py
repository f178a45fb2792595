"""Recognises the parts of one data set by the names of files and splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PART_WORDS = {
    "train": ("training", "trainval", "train", "trn", "nominival"),
    "validation": ("validation", "validate", "valid", "minival", "val", "dev", "holdout"),
    "test": ("testing", "testdev", "testa", "testb", "test", "tst"),
}
"""Words for the parts of a data set."""
_WORDS = "|".join(sorted((word for words in PART_WORDS.values() for word in words), key=len, reverse=True))
_PART = re.compile(rf"(?<![a-z])({_WORDS})(?=(?:set|data|split|images|imgs)?(?![a-z]))", re.IGNORECASE)


def part_of(word: str) -> str:
    """Return the part (``train``, ``validation``, ``test``) of a word; empty where it is none."""
    return next((part for part, words in PART_WORDS.items() if word.lower() in words), "")


def part_in(path: str) -> str:
    """Return the part that a path names, by its file's name first, then its folders; empty where there is none."""
    for piece in reversed(Path(path).parts):
        if hit := _PART.search(piece):
            return part_of(hit[1])
    return ""


def parts_of(splits: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the options that choose each part where splits have these names (``train``, ``val2014``, ``restval``).

    Empty unless there are a training part and another.
    """
    names: dict[str, list[str]] = {}
    for split in splits:
        part = "train" if split == "restval" else part_of(split) or part_in(split)  # Karpathy's rest of val
        if part:
            names.setdefault(part, []).append(split)
    chosen = {part: {"split": words[0] if len(words) == 1 else words} for part, words in names.items()}
    return chosen if "train" in chosen and len(chosen) > 1 else {}


def split_names(files: Sequence[str]) -> tuple[str, list[str]]:
    """Return one name with ``{split}`` for several files, and the split of each.

    The split is the word for the part, where that alone makes the names equal; else all that differs.
    """
    words = [hit[1] if (hit := _PART.search(file)) else "" for file in files]
    by_word = {file.replace(word, "{split}") if word else file for file, word in zip(files, words, strict=True)}
    if len(by_word) == 1 and all(words):
        return by_word.pop(), words
    start = _common_start(files)
    end = _common_start([file[len(start) :][::-1] for file in files])[::-1]
    return f"{start}{{split}}{end}", [file[len(start) : len(file) - len(end)] for file in files]


def _common_start(names: Sequence[str]) -> str:
    """Return the common beginning of names, without the half word that it ends in."""
    first, last = min(names), max(names)
    same = next((i for i, letter in enumerate(first) if letter != last[i]), len(first))
    return re.sub(r"[^\W_]+\Z", "", first[:same])
