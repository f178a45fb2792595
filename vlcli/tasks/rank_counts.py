"""Where the right pictures of a sentence stand, and the right sentences of a picture, a few queries at a time."""

from __future__ import annotations

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

Way = Literal["image", "text"]
Places = NDArray[np.int64]


@dataclass
class RankingVectors:
    """The first stage's vectors, in memory or mapped.

    Attributes:
        text: (N, D).
        image: (M, D).
    """

    text: NDArray[np.float32]
    image: NDArray[np.float32]


@dataclass
class Group:
    """Sentences and pictures that are ranked among themselves: all, or a fold.

    Attributes:
        texts: places of its sentences.
        images: places of its pictures.
    """

    texts: Places
    images: Places


def groups_of(sides: Sides, folds: int | None) -> list[Group]:
    """All of it, then ``folds`` parts of the pictures in their order, each with its sentences.

    Raises:
        DataError: there are fewer pictures than folds.
    """
    groups = [Group(np.arange(len(sides.text_keys)), np.arange(len(sides.image_keys)))]
    if folds and folds > len(sides.image_keys):
        raise DataError("There are fewer pictures than folds.", got=f"{len(sides.image_keys)} pictures, {folds} folds")
    for images in np.array_split(groups[0].images, folds) if folds else ():
        inside = (sides.pairs[:, 1] >= images[0]) & (sides.pairs[:, 1] <= images[-1])
        groups.append(Group(np.unique(sides.pairs[inside, 0]), images))
    return groups


@dataclass
class _Subset:
    whole: NDArray[Any]
    places: Places

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.places), int(self.whole.shape[1])

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        places = self.places[rows]
        if len(places) and places[-1] - places[0] + 1 == len(places):  # a run is read without a copy
            return np.asarray(self.whole[places[0] : places[-1] + 1])
        return np.asarray(self.whole[places])


@dataclass
class Ranking:
    """Ranks both ways in bounded memory.

    Attributes:
        sides: names, and what belongs together.
        vectors: of the first stage, if any.
        memory: MiB of scores at a time.
        candidates: how many of the first stage's best are scored in pairs; None: all, or none where nothing is.
        scoring: what a candidate is ranked by.
    """

    sides: Sides
    vectors: RankingVectors | None
    memory: int
    candidates: int | None = None
    scoring: Scoring = "odds"

    def codes(self, groups: list[Group]) -> Places:
        """The pairs that are to be scored, of every group and both ways: sentence times M, plus picture; sorted."""
        found = [np.zeros(0, np.int64)]
        for group in groups:
            for way in ("image", "text"):
                for queries, places in self._nearest(way, group):
                    found.append(np.unique(self._code(way, queries[:, None], self._others(way, group)[places])))
        return np.unique(np.concatenate(found))

    def stand(self, way: Way, group: Group, exact: Exact | None, rows: list[dict[str, Any]] | None = None) -> Standing:
        """Where the best right candidate of each query stands; ``rows`` is given one prediction a query."""
        parts, names = [], (self.sides.text_keys, self.sides.image_keys)
        asked, found = names if way == "image" else names[::-1]
        others = self._others(way, group)
        for queries, scores in self._scores(way, group, exact):
            relevant = self._relevant(way, queries, others)
            place = standing(scores, relevant)
            parts.append(place)
            best, ranks = scores.argmax(1), expected_rank(place)
            for row, query in enumerate(queries.tolist() if rows is not None else ()):
                assert rows is not None
                rows.append(
                    {
                        "key": f"{way}/{asked[query]}",
                        "prediction": found[others[best[row]]],
                        "score": float(scores[row, best[row]]),
                        "rank": float(ranks[row]),
                        "correct": bool(relevant[row, best[row]]),
                    }
                )
        return joined(parts)

    def _scores(self, way: Way, group: Group, exact: Exact | None) -> Iterator[tuple[Places, NDArray[np.floating]]]:
        others = self._others(way, group)
        if exact is not None and self.candidates is None:
            for queries in self._queries(way, group):
                codes = self._code(way, queries[:, None], others[None])
                near = self._near(way, queries, others) if self.scoring == "sum" else 0
                yield queries, exact.of(codes) + near
        elif exact is None:
            for queries in self._queries(way, group):
                yield queries, self._near(way, queries, others)
        else:
            for queries, places in self._nearest(way, group):
                near = self._near(way, queries, others)
                scores = exact.of(self._code(way, queries[:, None], others[places]))
                if self.scoring == "sum":
                    scores = scores + np.take_along_axis(near, places, 1)
                yield queries, rerank(near, places, scores)

    def _nearest(self, way: Way, group: Group) -> Iterator[tuple[Places, Places]]:
        assert self.vectors is not None
        assert self.candidates is not None
        own, other = self._vectors(way)
        subset = _Subset(other, self._others(way, group))
        for queries in self._queries(way, group):
            asked = torch.from_numpy(np.ascontiguousarray(own[queries], np.float32))
            yield queries, search(asked, subset, self.candidates, memory_mb=self.memory)[1].numpy()

    def _near(self, way: Way, queries: Places, others: Places) -> NDArray[np.float32]:
        own, other = self._vectors(way)
        asked = torch.from_numpy(np.ascontiguousarray(own[queries], np.float32))
        scores = np.empty((len(queries), len(others)), np.float32)
        for start, part in products(asked, _Subset(other, others), self.memory):
            scores[:, start : start + part.shape[1]] = part.numpy()
        return scores

    def _queries(self, way: Way, group: Group) -> Iterator[Places]:
        asked = group.texts if way == "image" else group.images
        count = len(self._others(way, group))
        step = max(1, self.memory * 2**20 // (32 * count))
        for start in range(0, len(asked), step):
            yield asked[start : start + step]

    def _vectors(self, way: Way) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        assert self.vectors is not None
        found = self.vectors.text, self.vectors.image
        return found if way == "image" else found[::-1]

    def _others(self, way: Way, group: Group) -> Places:
        return group.images if way == "image" else group.texts

    def _code(self, way: Way, queries: Places, others: Places) -> Places:
        texts, images = (queries, others) if way == "image" else (others, queries)
        return texts * len(self.sides.image_keys) + images

    def _relevant(self, way: Way, queries: Places, others: Places) -> NDArray[np.bool_]:
        ask, answer = (self.sides.pairs[:, 0], self.sides.pairs[:, 1])[:: 1 if way == "image" else -1]
        rows, columns = np.searchsorted(queries, ask), np.searchsorted(others, answer)
        inside = np.isin(ask, queries) & np.isin(answer, others)
        made = np.zeros((len(queries), len(others)), dtype=bool)
        made[rows[inside], columns[inside]] = True
        return made


def rerank(near: NDArray[np.floating], places: Places, scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """``scores`` (q, k) at ``places``, and below all of those the others (q, C) in the order of ``near``."""
    made = near.astype(np.float64)  # so that what is nearly equal stays apart below
    made += scores.min() - 1.0 - made.max()
    np.put_along_axis(made, places, scores.astype(np.float64), 1)
    return made


def by_chance(sides: Sides, way: Way) -> Standing:
    """Where the right ones stand on average if all scores are equal, for every sentence (``image``) or picture."""
    counts = len(sides.text_keys), len(sides.image_keys)
    asked, total = counts if way == "image" else counts[::-1]
    right: NDArray[np.int64] = np.bincount(sides.pairs[:, 0 if way == "image" else 1], minlength=asked)
    return Standing(np.zeros(asked, np.int64), total - right, right, total)
