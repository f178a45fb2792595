"""BLEU: the share of word runs that references have, too (Papineni et al. 2002)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from vlcli.metrics.captions.tokens import Grams, Words, grams

NEARLY_NONE, SPARE = 1e-15, 1e-9
"""Added by the COCO caption evaluation to numerator and denominator, so that no fraction divides by zero."""


def bleu(candidates: Sequence[Words], references: Sequence[Sequence[Words]], longest: int = 4) -> list[float]:
    """Return BLEU-1 to BLEU-``longest`` of a whole set, with each caption's closest reference length."""
    right, total = [0] * longest, [0] * longest
    length = closest = 0
    for words, known in zip(candidates, references, strict=True):
        most: Grams = Grams()
        for reference in known:
            most |= grams(reference, longest)
        for run, count in grams(words, longest).items():
            right[len(run) - 1] += min(count, most.get(run, 0))
        for n in range(longest):
            total[n] += max(0, len(words) - n)
        length += len(words)
        closest += min((abs(len(reference) - len(words)), len(reference)) for reference in known)[1]
    ratio = (length + NEARLY_NONE) / (closest + SPARE)
    brevity = math.exp(1 - 1 / ratio) if ratio < 1 else 1.0
    scores, product = [], 1.0
    for n in range(longest):
        product *= (right[n] + NEARLY_NONE) / (total[n] + SPARE)
        scores.append(product ** (1 / (n + 1)) * brevity)
    return scores
