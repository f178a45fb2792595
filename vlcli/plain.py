"""Converts values to plain Python values, and names to text for messages."""

from collections.abc import Iterable
from typing import Any


def to_plain(value: Any) -> Any:
    """Convert a tensor, an array or a NumPy scalar to lists or a number; return any other value as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def as_list(value: Any) -> list[Any]:
    """Return a list as it is, None as an empty list and any other value as a list of one item."""
    return value if isinstance(value, list) else [] if value is None else [value]


def comma_list(names: Iterable[str], limit: int) -> str:
    """Join the first ``limit`` names with commas and count the rest: ``"a, b and 7 more"``."""
    every = list(names)
    return ", ".join(every[:limit]) + (f" and {len(every) - limit:,} more" if len(every) > limit else "")
