"""Exact search of the nearest among very many vectors, in bounded memory.

Of each block of products, only pieces with a score above a query's worst kept one are looked at again, and scores are
sorted in only when twice as many vectors have been seen: choosing costs little beside the products.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

PIECE = 64  # scores that share one maximum
PRODUCTS = 2 << 20  # bytes of a block's scores: they are looked through while they are still in the processor's cache
WAITING = 1 << 18  # scores that may wait to be sorted in
FEWEST, MOST = 1024, 1 << 16  # rows of a block, where memory allows


class Vectors(Protocol):
    """Anything with rows that slices to an array: a tensor, a numpy array or memory map, an HDF5 data set."""

    @property
    def shape(self) -> Any: ...

    def __getitem__(self, rows: slice) -> Any: ...


def search(queries: Tensor, vectors: Vectors, k: int, *, memory_mb: int = 256) -> tuple[Tensor, Tensor]:
    """Return scores (Q, k) and rows (Q, k) of the ``vectors`` (N, D) with the largest products with queries (Q, D).

    The best come first; of ties the lower row. ``memory_mb`` bounds what is held beside queries and results, in MiB.
    """
    k = min(k, int(vectors.shape[0]))
    kept = _Kept(queries, k)
    for start, scores in products(queries, vectors, memory_mb):
        kept.look(scores, start)
    kept.sort_in()
    return kept.scores, kept.rows


class _Kept:
    # The best k rows of each query (Q, D), and rows above the worst of them that wait to be sorted in
    def __init__(self, queries: Tensor, k: int) -> None:
        self.scores = torch.full((len(queries), k), -torch.inf, dtype=queries.dtype, device=queries.device)
        self.rows = torch.zeros(len(queries), k, dtype=torch.long, device=queries.device)
        self.waiting: list[tuple[Tensor, Tensor, Tensor]] = []
        self.count, self.due = 0, 0

    def look(self, scores: Tensor, start: int) -> None:
        # takes what may be among the best of a block's scores (Q, n), whose first row is ``start``
        whole, floor = scores.shape[1] // PIECE * PIECE, self.scores[:, -1:]
        pieces = scores[:, :whole].unflatten(1, (-1, PIECE)).amax(2) > floor
        query, piece = pieces.nonzero(as_tuple=True)
        if len(query) * 4 > pieces.numel():  # little is known yet
            self._add(*_top(scores, min(self.rows.shape[1], scores.shape[1])), start)
            self.due = 0
        else:
            if len(query):
                self._add(*_inside(scores, query, piece, floor), start)
            if whole < scores.shape[1]:  # the last block
                query, column = (scores[:, whole:] > floor).nonzero(as_tuple=True)
                self._add(query, column + whole, scores[query, column + whole], start)
        if start + scores.shape[1] >= self.due or self.count > WAITING:
            self.sort_in()
            self.due = 2 * (start + scores.shape[1])

    def _add(self, query: Tensor, column: Tensor, values: Tensor, start: int) -> None:
        self.waiting.append((query, column + start, values))
        self.count += len(query)

    def sort_in(self) -> None:
        # keeps the best of the kept and the waiting; of equal scores the lower row
        (asked, k), there = self.scores.shape, torch.arange(len(self.scores), device=self.rows.device)
        kept = (there.repeat_interleave(k), self.rows.flatten(), self.scores.flatten())
        query, rows, values = (torch.cat(parts) for parts in zip(kept, *self.waiting, strict=True))
        order = values.sort(descending=True, stable=True).indices
        order = order[query[order].sort(stable=True).indices]
        counts = torch.bincount(query, minlength=asked)
        rank = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[query[order]]
        order = order[rank < k]
        self.scores, self.rows = values[order].view(asked, k), rows[order].view(asked, k)
        self.waiting, self.count = [], 0


def products(queries: Tensor, vectors: Vectors, memory_mb: int = 256) -> Iterator[tuple[int, Tensor]]:
    """Yield the start of each run of vectors and its scores (Q, n); the tensor is overwritten by the next run."""
    rows = block_rows(len(queries), queries.shape[1], memory_mb, queries.element_size())
    rows = min(rows, int(vectors.shape[0]))
    scores = queries.new_empty(len(queries), rows)
    for start in range(0, int(vectors.shape[0]), max(rows, 1)):
        block = torch.as_tensor(vectors[start : start + rows]).to(queries.device, queries.dtype)  # (n, D)
        yield start, torch.mm(queries, block.T, out=scores) if len(block) == rows else queries @ block.T


def block_rows(queries: int, dim: int, memory_mb: int, size: int = 4) -> int:
    """Return how many vectors, their products, and as much again for choosing, fit into ``memory_mb`` and the cache."""
    rows = memory_mb * 2**20 // (size * (dim + 3 * queries))
    quick = min(max(PRODUCTS // (size * max(queries, 1)), FEWEST), MOST)
    return max(PIECE, min(rows, quick) // PIECE * PIECE)


def _top(scores: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    values, places = scores.topk(k, 1)
    tied = ((scores >= values[:, -1:]).sum(1) > k).nonzero()[:, 0]
    if len(tied):
        places[tied] = scores[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    places = places.sort(1).values
    query = torch.arange(len(scores), device=scores.device).repeat_interleave(k)
    return query, places.flatten(), scores.gather(1, places).flatten()


def _inside(scores: Tensor, query: Tensor, piece: Tensor, floor: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    within = torch.arange(PIECE, device=scores.device)
    rows = query * scores.shape[1] + piece * PIECE
    values = scores.take(rows[:, None] + within)  # (P, PIECE)
    chosen, column = (values > floor[query]).nonzero(as_tuple=True)
    return query[chosen], piece[chosen] * PIECE + column, values[chosen, column]


def search_faiss(queries: Tensor, vectors: Vectors, k: int, *, rows: int = 1 << 16) -> tuple[Tensor, Tensor]:
    """Search by FAISS's exact inner-product index, all vectors in memory. Raises ComponentError: FAISS is missing."""
    try:
        import faiss
    except ImportError as error:
        from vlcli.errors import ComponentError

        raise ComponentError("FAISS is not installed.", hint="pip install 'vlcli[faiss]'") from error
    index = faiss.IndexFlatIP(int(vectors.shape[1]))
    for start in range(0, int(vectors.shape[0]), rows):
        index.add(torch.as_tensor(vectors[start : start + rows]).float().numpy())
    scores, nearest = index.search(queries.float().cpu().numpy(), min(k, index.ntotal))
    return torch.from_numpy(scores), torch.from_numpy(nearest)
