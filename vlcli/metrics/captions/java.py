"""METEOR and SPICE through pycocoevalcap, where it, Java and its files are."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

PARTS = ("Object", "Relation", "Attribute", "Color", "Cardinality", "Size")
"""SPICE's categories (DiMBERT, Table 7)."""


def lacking(metric: str) -> str | None:
    """One line on why ``meteor`` or ``spice`` cannot be computed here; None where it can."""
    if importlib.util.find_spec("pycocoevalcap") is None:
        return f"{metric} is left out: pip install pycocoevalcap"
    if shutil.which("java") is None:
        return f"{metric} is left out: it needs Java (java is not on the path)"
    if metric == "spice" and not _spice_files():
        return (
            "spice is left out: it needs Stanford CoreNLP's files (pycocoevalcap/get_stanford_models.sh fetches them)"
        )
    return None


def _spice_files() -> bool:
    spec = importlib.util.find_spec("pycocoevalcap")
    assert spec is not None
    places = spec.submodule_search_locations or []  # it is a package without a module of its own
    return any(found for place in places for found in Path(place).glob("spice/lib/stanford-corenlp-*-models.jar"))


def meteor(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> float:
    """METEOR 1.5 of captions given as words."""
    from pycocoevalcap.meteor.meteor import Meteor

    scorer = Meteor()
    try:
        return float(scorer.compute_score(*_as_they_want(candidates, references))[0])
    finally:
        scorer.meteor_p.kill()


def spice(candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]) -> dict[str, float]:
    """SPICE, and by category where any caption has one: ``spice``, ``spice/object`` ..."""
    from pycocoevalcap.spice.spice import Spice

    total, each = Spice().compute_score(*_as_they_want(candidates, references))
    found = {"spice": float(total)}
    for part in PARTS:
        values = [_f(one.get(part, {})) for one in each]
        kept = [value for value in values if value is not None]
        if kept:
            found[f"spice/{part.lower()}"] = sum(kept) / len(kept)
    return found


def _f(part: Mapping[str, float]) -> float | None:
    value = part.get("f")
    return None if value is None or value != value else float(value)  # noqa: PLR0124 (NaN: nothing of this kind)


def _as_they_want(
    candidates: Sequence[Sequence[str]], references: Sequence[Sequence[Sequence[str]]]
) -> tuple[dict[int, list[str]], dict[int, list[str]]]:
    known = {number: [" ".join(words) for words in group] for number, group in enumerate(references)}
    return known, {number: [" ".join(words)] for number, words in enumerate(candidates)}
