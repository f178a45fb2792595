"""METEOR and SPICE through pycocoevalcap, where it, Java and its files are."""

from __future__ import annotations

import importlib.util
import math
import shutil
from collections.abc import Sequence
from pathlib import Path

PARTS = ("Object", "Relation", "Attribute", "Color", "Cardinality", "Size")
"""SPICE's categories (DiMBERT, Table 7)."""


def lacking(metric: str) -> str | None:
    """Return one line on why ``meteor`` or ``spice`` cannot be computed here; None where it can."""
    if importlib.util.find_spec("pycocoevalcap") is None:
        return f"{metric} is left out: pip install pycocoevalcap"
    if shutil.which("java") is None:
        return f"{metric} is left out: it needs Java (java is not on the path)"
    spec = importlib.util.find_spec("pycocoevalcap")
    folders = (spec.submodule_search_locations if spec else None) or []  # a package without a module of its own
    if metric != "spice" or any(any(Path(one).glob("spice/lib/stanford-corenlp-*-models.jar")) for one in folders):
        return None
    return "spice is left out: it needs Stanford CoreNLP's files (pycocoevalcap/get_stanford_models.sh fetches them)"


def meteor(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> float:
    """Return METEOR 1.5 of captions as words."""
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()
    try:
        return float(scorer.compute_score(*_by_number(candidates, references))[0])
    finally:
        scorer.meteor_p.kill()


def spice(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> dict[str, float]:
    """Return SPICE, and by category where any caption has one: ``spice``, ``spice/object`` ..."""
    from pycocoevalcap.spice.spice import Spice

    total, each = Spice().compute_score(*_by_number(candidates, references))
    scores = {"spice": float(total)}
    for part in PARTS:
        values = [float(one.get(part, {}).get("f", math.nan)) for one in each]
        if kept := [value for value in values if not math.isnan(value)]:  # NaN: nothing of this kind
            scores[f"spice/{part.lower()}"] = sum(kept) / len(kept)
    return scores


def _by_number(
    candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    known = {number: [" ".join(words) for words in group] for number, group in enumerate(references)}
    return known, {number: [" ".join(words)] for number, words in enumerate(candidates)}
