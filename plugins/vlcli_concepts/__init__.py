"""Visual concepts: words seen in pictures, by noisy-OR over regions or over a grid of cells (Fang et al. 2015)."""

from __future__ import annotations

import warnings
from typing import Any

from vlcli_concepts.extractor import ConceptExtractor
from vlcli_concepts.model import NoisyOr
from vlcli_concepts.noisy_or import log_noisy_or
from vlcli_concepts.objective import ConceptClassification

__all__ = ["ConceptClassification", "ConceptExtractor", "NoisyOr", "log_noisy_or"]


def __getattr__(name: str) -> Any:
    """The former name of a class, with a warning that says the present one."""
    if name != "Concepts":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.Concepts is called {__name__}.ConceptClassification now", FutureWarning, stacklevel=2)
    return ConceptClassification
