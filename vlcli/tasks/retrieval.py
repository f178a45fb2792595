"""Retrieval: find the picture of a sentence, and the sentences of a picture."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcli.errors import ComponentError
from vlcli.metrics import ranking as metric
from vlcli.registry import Spec
from vlcli.tasks.base import Result, Runner, Task
from vlcli.tasks.ranking import Library, collect, score_pairs

Scores = NDArray[np.float32]


class Retrieval(Task):
    """Rank all pictures for each sentence and all sentences for each picture; recall at 1, 5 and 10.

    The matching objective scores every pair; with ``first`` and ``candidates`` it scores only those that the first
    stage's vectors rank highest (for each sentence and for each picture), the others keep the first stage's order.

    Args:
        objective: what scores a fused pair; None ranks by the first stage alone.
        first: an objective that gives each sentence and each picture a vector.
        candidates: how many of the first stage's best are scored in pairs; None: all.
        block: pairs fused at a time.
        hard_negatives: fine-tuning draws so many wrong pictures and sentences from the batch, the likeliest first;
            0: random sentences of the data.
        ks: how far down the list recall looks.
    """

    paper = "Karpathy and Fei-Fei 2015 (protocol); ALBEF, Li et al. 2021, section 5 (re-ranking)"
    metric = "r_mean"
    eval_split = "test"

    def __init__(
        self,
        *,
        objective: str | None = "matching",
        first: str | None = None,
        candidates: int | None = None,
        block: int = 128,
        hard_negatives: int = 0,
        ks: tuple[int, ...] = (1, 5, 10),
    ) -> None:
        if first is None and (objective is None or candidates is not None):
            raise ComponentError(
                "A ranking needs something to rank by.", where="task retrieval", expected="`first: OBJECTIVE`"
            )
        self.objective, self.first, self.candidates = objective, first, candidates
        self.block, self.hard_negatives, self.ks = block, hard_negatives, tuple(ks)

    def objectives(self) -> list[Spec]:
        """Matching of a sentence and a picture; its head goes by one name whichever way negatives are drawn."""
        if self.hard_negatives:
            return [{"name": "hard-matching", "as": "matching", "negatives": self.hard_negatives}]
        return [{"name": "matching"}]

    def dataset(self) -> Spec:
        """A Karpathy split file."""
        return {"name": "karpathy"}

    def evaluate(self, runner: Runner) -> Result:
        """Encode everything once, score the pairs, rank both ways."""
        library = collect(runner, self.first, encode=self.objective is not None)
        forth, back = self._scores(runner, library)
        relevant = library.relevant()
        image = metric.recall(forth, relevant, self.ks)
        text = metric.recall(back.T, relevant.T, self.ks)
        found = {f"image/{name}": value for name, value in image.items()} | {f"text/{k}": v for k, v in text.items()}
        hits = [value for name, value in found.items() if "r@" in name]
        found |= {
            "r_mean": sum(hits) / len(hits),
            "texts": float(len(library.texts)),
            "images": float(len(library.images)),
        }
        rows = _rows("image", list(library.texts), list(library.images), forth, relevant)
        rows += _rows("text", list(library.images), list(library.texts), back.T, relevant.T)
        return Result(found, rows)

    def _scores(self, runner: Runner, library: Library) -> tuple[Scores, Scores]:
        """Scores (N, M) for sentences asking, and for pictures asking; the same unless candidates are cut."""
        if self.objective is None:
            scores = library.similarity()
            return scores, scores
        if self.candidates is None:
            scores = score_pairs(runner, library, self.objective, block=self.block)
            return scores, scores
        near = library.similarity()
        by_text, by_image = top(near, self.candidates), top(near.T, self.candidates).T
        exact = score_pairs(runner, library, self.objective, by_text | by_image, self.block)
        return rerank(near, exact, by_text), rerank(near, exact, by_image)


def top(scores: Scores, count: int) -> NDArray[np.bool_]:
    """(Q, C) the ``count`` best of each row."""
    chosen = np.zeros(scores.shape, dtype=bool)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    np.put_along_axis(chosen, best, True, axis=1)
    return chosen


def rerank(near: Scores, exact: Scores, chosen: NDArray[np.bool_]) -> Scores:
    """``exact`` where ``chosen``, and below all of those the others in the order of ``near``."""
    floor = exact[chosen].min() - 1.0
    return np.where(chosen, exact, near - near.max() + floor).astype(np.float32)


def _rows(
    way: str, queries: list[str], found: list[str], scores: Scores, relevant: NDArray[np.bool_]
) -> list[dict[str, Any]]:
    """One prediction a query: the best candidate, its score, and the rank of the first right one."""
    ranks = metric.expected_rank(metric.standing(scores, relevant)).tolist()
    best = scores.argmax(1).tolist()
    return [
        {
            "key": f"{way}/{query}",
            "prediction": found[place],
            "score": float(scores[row, place]),
            "rank": ranks[row],
            "correct": bool(relevant[row, place]),
        }
        for row, (query, place) in enumerate(zip(queries, best, strict=True))
    ]
