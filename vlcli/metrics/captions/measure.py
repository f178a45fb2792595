"""All caption metrics of a set at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from vlcli.metrics.captions.bleu import bleu
from vlcli.metrics.captions.cider import Cider, DocumentFrequency
from vlcli.metrics.captions.java import lacking, meteor, spice
from vlcli.metrics.captions.rouge import rouge_l
from vlcli.metrics.captions.tokens import tokenize

Metric = Literal["bleu", "rouge_l", "cider_d", "cider", "meteor", "spice"]
NAMES: tuple[Metric, ...] = ("bleu", "rouge_l", "cider_d", "cider", "meteor", "spice")
SOME = 60
"""Captions that are tried as the one for every picture, and pictures that they are tried on."""


@dataclass
class Measured:
    """Scores of a set of captions.

    Attributes:
        metrics: ``bleu_1`` to ``bleu_4``, ``rouge_l``, ``cider_d`` (what the COCO evaluation calls CIDEr), ``cider``,
            ``meteor``, ``spice``, ``spice/object`` ..., as fractions; the two CIDErs reach 10.
        each: CIDEr-D of every caption.
        notes: one line for each metric that could not be computed.
    """

    metrics: dict[str, float]
    each: list[float]
    notes: list[str] = field(default_factory=list)


def measure(captions: Sequence[str], references: Sequence[Sequence[str]], names: Sequence[str] = NAMES) -> Measured:
    """Score captions against every picture's references."""
    said, known = [tokenize(text) for text in captions], [[tokenize(text) for text in group] for group in references]
    frequency = DocumentFrequency.of(known)
    each = Cider(frequency).score(said, known)
    metrics: dict[str, float] = {}
    if "bleu" in names:
        metrics |= {f"bleu_{n}": value for n, value in enumerate(bleu(said, known), 1)}
    if "rouge_l" in names:
        metrics["rouge_l"] = rouge_l(said, known)
    if "cider_d" in names:
        metrics["cider_d"] = sum(each) / max(len(each), 1)
    if "cider" in names:
        metrics["cider"] = Cider(frequency, d=False).mean(said, known)
    notes = {name: lacking(name) for name in ("meteor", "spice") if name in names}
    if "meteor" in notes and notes["meteor"] is None:
        metrics["meteor"] = meteor(said, known)
    if "spice" in notes and notes["spice"] is None:
        metrics |= spice(said, known)
    return Measured(metrics, each, [line for line in notes.values() if line is not None])


def same_for_all(references: Sequence[Sequence[str]]) -> tuple[str, float]:
    """Return the reference that serves best for every picture, and its CIDEr-D: what a model must surpass.

    Chosen in the very references it is scored by, so no fixed caption chosen beforehand does better by much.
    """
    known = [[tokenize(text) for text in group] for group in references]
    cider = Cider.of(known)
    texts = [text for group in references for text in group]
    tried = list(dict.fromkeys(texts[:: max(1, len(texts) // SOME)]))
    part = known[:: max(1, len(known) // SOME)]
    best = max(tried, key=lambda text: cider.mean([tokenize(text)] * len(part), part))
    return best, cider.mean([tokenize(best)] * len(known), known)
