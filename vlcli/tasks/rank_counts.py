"""Ranks the right pictures of each sentence and the right sentences of each picture, a few queries at a time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from vlcli.data.sides import Sides
from vlcli.errors import DataError
from vlcli.metrics.ranking import Standing, expected_rank, joined, standing
from vlcli.metrics.search import products, search
from vlcli.tasks.ranking import Exact, Scoring

Way = Literal["image", "text"]  # which side is ranked
WAYS: tuple[Way, Way] = ("image", "text")
Indices = NDArray[np.int64]


@dataclass
class Group:
    """Indices of the sentences and the pictures that are ranked among themselves: all, or a fold."""

    texts: Indices
    images: Indices

    def sides(self, way: Way) -> tuple[Indices, Indices]:
        return (self.texts, self.images) if way == "image" else (self.images, self.texts)


def groups_of(sides: Sides, folds: int | None) -> list[Group]:
    """Return all, then ``folds`` parts of the pictures, with their sentences. Raises DataError: too many folds."""
    groups = [Group(np.arange(len(sides.text_keys)), np.arange(len(sides.image_keys)))]
    if folds and folds > len(sides.image_keys):
        raise DataError("There are fewer pictures than folds.", got=f"{len(sides.image_keys)} pictures, {folds} folds")
    for images in np.array_split(groups[0].images, folds) if folds else ():
        inside = (sides.pairs[:, 1] >= images[0]) & (sides.pairs[:, 1] <= images[-1])
        groups.append(Group(np.unique(sides.pairs[inside, 0]), images))
    return groups


@dataclass
class _Subset:
    # Some rows of an array, read by slices as the array itself
    whole: NDArray[Any]
    rows: Indices

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), self.whole.shape[1]

    def __getitem__(self, part: slice) -> NDArray[Any]:
        rows = self.rows[part]
        run = len(rows) and rows[-1] - rows[0] + 1 == len(rows)  # is read without a copy
        return np.asarray(self.whole[rows[0] : rows[-1] + 1] if run else self.whole[rows])


@dataclass
class Ranking:
    """Ranks both ways in bounded memory."""

    sides: Sides  # names, and what belongs together
    # of the first stage, if any: sentences (N, D) and pictures (M, D), in memory or mapped
    vectors: tuple[NDArray[np.float32], NDArray[np.float32]] | None
    memory: int  # MiB of scores at a time
    # number of the first stage's best that are scored in pairs; None: all, or none where nothing is
    candidates: int | None = None
    scoring: Scoring = "odds"  # rank candidates by log odds, logit or sum

    def codes(self, groups: list[Group]) -> Indices:
        """Return the sorted pairs to score (sentence times M, plus picture) of every group and both ways."""
        codes = [np.zeros(0, np.int64)]
        for group in groups:
            for way in WAYS:
                for queries, best in self._nearest(way, group):
                    codes.append(np.unique(self._code(way, queries[:, None], group.sides(way)[1][best])))
        return np.unique(np.concatenate(codes))

    def stand(self, way: Way, group: Group, exact: Exact | None, rows: list[dict[str, Any]] | None = None) -> Standing:
        """Return the standing of the best right candidate of each query; ``rows`` receives a row per query."""
        parts, names = [], (self.sides.text_keys, self.sides.image_keys)
        query_names, names_of = names if way == "image" else names[::-1]
        candidates = group.sides(way)[1]
        for queries, scores in self._scores(way, group, exact):
            relevant = self._relevant(way, queries, candidates)
            parts.append(standing(scores, relevant))
            if rows is None:
                continue
            best, ranks = scores.argmax(1), expected_rank(parts[-1])
            for row, query in enumerate(queries.tolist()):
                rows.append(
                    {
                        "key": f"{way}/{query_names[query]}",
                        "prediction": names_of[candidates[best[row]]],
                        "score": float(scores[row, best[row]]),
                        "rank": float(ranks[row]),
                        "correct": bool(relevant[row, best[row]]),
                    }
                )
        return joined(parts)

    def _scores(self, way: Way, group: Group, exact: Exact | None) -> Iterator[tuple[Indices, NDArray[np.floating]]]:
        # a few queries at a time with their scores of all candidates (q, C)
        candidates = group.sides(way)[1]
        if exact is not None and self.candidates is not None:
            for queries, best in self._nearest(way, group):
                near = self._near(way, queries, candidates)
                scores = exact.of(self._code(way, queries[:, None], candidates[best]))
                if self.scoring == "sum":
                    scores = scores + np.take_along_axis(near, best, 1)
                yield queries, rerank(near, best, scores)
            return
        for queries in self._queries(way, group):
            if exact is None:
                yield queries, self._near(way, queries, candidates)
            else:
                scores = exact.of(self._code(way, queries[:, None], candidates[None]))
                yield queries, scores + self._near(way, queries, candidates) if self.scoring == "sum" else scores

    def _nearest(self, way: Way, group: Group) -> Iterator[tuple[Indices, Indices]]:
        # queries, and where among the group's candidates those stand that the first stage ranks highest (q, k)
        assert self.candidates is not None
        for queries in self._queries(way, group):
            vectors, subset = self._vectors(way, queries, group.sides(way)[1])
            yield queries, search(vectors, subset, self.candidates, memory_mb=self.memory)[1].numpy()

    def _near(self, way: Way, queries: Indices, candidates: Indices) -> NDArray[np.float32]:
        # (q, C) products of the first stage's vectors
        scores = np.empty((len(queries), len(candidates)), np.float32)
        for start, part in products(*self._vectors(way, queries, candidates), self.memory):
            scores[:, start : start + part.shape[1]] = part.numpy()
        return scores

    def _queries(self, way: Way, group: Group) -> Iterator[Indices]:
        # runs of queries whose scores of all candidates, some times over, fit into memory
        queries, candidates = group.sides(way)
        step = max(1, self.memory * 2**20 // (32 * len(candidates)))
        for start in range(0, len(queries), step):
            yield queries[start : start + step]

    def _vectors(self, way: Way, queries: Indices, candidates: Indices) -> tuple[torch.Tensor, _Subset]:
        assert self.vectors is not None
        ours, others = self.vectors if way == "image" else self.vectors[::-1]
        return torch.from_numpy(np.ascontiguousarray(ours[queries], np.float32)), _Subset(others, candidates)

    def _code(self, way: Way, queries: Indices, candidates: Indices) -> Indices:
        texts, images = (queries, candidates) if way == "image" else (candidates, queries)
        return texts * len(self.sides.image_keys) + images

    def _relevant(self, way: Way, queries: Indices, candidates: Indices) -> NDArray[np.bool_]:
        # (q, C) which belong together; both lists of indices are sorted
        query, answer = self.sides.pairs.T[:: 1 if way == "image" else -1]
        inside = np.isin(query, queries) & np.isin(answer, candidates)
        relevant = np.zeros((len(queries), len(candidates)), dtype=bool)
        relevant[np.searchsorted(queries, query[inside]), np.searchsorted(candidates, answer[inside])] = True
        return relevant


def rerank(near: NDArray[np.floating], columns: Indices, scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Put ``scores`` (q, k) at ``columns``, and below them the others in the order of ``near`` (q, C)."""
    ranks = near.astype(np.float64)  # so that what is nearly equal stays apart below
    ranks += scores.min() - 1.0 - ranks.max()
    np.put_along_axis(ranks, columns, scores.astype(np.float64), 1)
    return ranks


def by_chance(sides: Sides, way: Way) -> Standing:
    """Return the standing of each sentence (``image``) or picture if all scores are equal."""
    turn = 1 if way == "image" else -1
    queries, total = (len(sides.text_keys), len(sides.image_keys))[::turn]
    right = np.bincount(sides.pairs.T[::turn][0], minlength=queries)
    return Standing(np.zeros(queries, np.int64), total - right, right, total)
