"""ROUGE-L: the longest common subsequence with a reference (Lin 2004)."""

from __future__ import annotations

from collections.abc import Sequence

from vlcli.metrics.captions.tokens import Words

RECALL_WEIGHT = 1.2
"""Beta of the F measure in the COCO caption evaluation."""


def rouge_l(candidates: Sequence[Words], references: Sequence[Sequence[Words]]) -> float:
    """Return the mean over captions of F between the best precision and the best recall of any reference."""
    scores = [_score(words, known) for words, known in zip(candidates, references, strict=True)]
    return sum(scores) / max(len(scores), 1)


def _score(words: Words, references: Sequence[Words]) -> float:
    common = [longest_common(words, reference) for reference in references]
    precision = max(common) / max(len(words), 1)
    recall = max(length / max(len(reference), 1) for length, reference in zip(common, references, strict=True))
    if not precision or not recall:
        return 0.0
    square = RECALL_WEIGHT**2
    return (1 + square) * precision * recall / (recall + square * precision)


def longest_common(left: Words, right: Words) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(right) + 1)
    for word in left:
        before = 0
        for column, other in enumerate(right, 1):
            above = row[column]
            row[column] = before + 1 if word == other else max(above, row[column - 1])
            before = above
    return row[-1]
