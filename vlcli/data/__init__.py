"""Data: readers of annotation files, tokenisation, corruption, batches.

Readers, samples and the vocabulary import without torch; :class:`Pipeline` and what makes tensors load it on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vlcli.data.reader import Reader
from vlcli.data.sample import (
    PHASES,
    Corruption,
    Donor,
    Example,
    ImageSample,
    Marks,
    Phase,
    Sample,
    TextSample,
    generator,
)

if TYPE_CHECKING:
    from vlcli.data.pipeline import Pipeline
    from vlcli.data.vocabulary import Tokenizer

_LAZY = {"Pipeline": "vlcli.data.pipeline", "Tokenizer": "vlcli.data.vocabulary"}

__all__ = [
    "PHASES",
    "Corruption",
    "Donor",
    "Example",
    "ImageSample",
    "Marks",
    "Phase",
    "Pipeline",
    "Reader",
    "Sample",
    "TextSample",
    "Tokenizer",
    "generator",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_LAZY[name]), name)
