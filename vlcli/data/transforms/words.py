"""Swaps left and right in sentences and answers of mirrored pictures."""

from __future__ import annotations

import re
from typing import Any

_SIDES = re.compile(r"(left|right)", re.IGNORECASE)
_WORD = re.compile(r"\b(left|right)(?=\b|most\b|hand\b|ward\b|wards\b|side\b)", re.IGNORECASE)
_STRINGS = ("answers", "answer", "raw_answers", "full_answer")


def names_sides(text: str | None) -> bool:
    """Whether a sentence says left or right."""
    return text is not None and _WORD.search(text) is not None


def mirrored(text: str) -> str:
    """Swap left and right in a sentence (leftmost, right-hand ... too), capitals kept.

    >>> mirrored("The leftmost cup, right of a bright plate")
    'The rightmost cup, left of a bright plate'
    """
    return _WORD.sub(lambda match: _SIDES.sub(_other, match[0]), text)


def mirrored_targets(targets: dict[str, Any]) -> dict[str, Any]:
    """Swap left and right in the answers among an example's targets."""
    return {name: _mirrored(value) if name in _STRINGS else value for name, value in targets.items()}


def _mirrored(value: Any) -> Any:
    if isinstance(value, str):
        return mirrored(value)
    if isinstance(value, dict):
        return {_mirrored(key): score for key, score in value.items()}
    if isinstance(value, list):
        return [_mirrored(item) for item in value]
    return value


def _other(match: re.Match[str]) -> str:
    word = "right" if match[0].lower() == "left" else "left"
    return word.upper() if match[0].isupper() else word.capitalize() if match[0][0].isupper() else word
