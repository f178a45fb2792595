"""Exact search of the nearest among very many vectors, in bounded memory.

Products are taken block by block. Of a block only the pieces whose best score beats what a query has already found are
looked at again, so that choosing costs little beside the products themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

PIECE = 128
"""Scores that share one maximum."""
CHANCE = 1 << 20


class Vectors(Protocol):
    """Anything with rows that slices to an array: a tensor, a numpy array or memory map, an HDF5 data set."""

    shape: Any

    def __getitem__(self, rows: slice) -> Any:
        """The rows of a slice."""
        ...


def search(queries: Tensor, vectors: Vectors, k: int, *, memory_mb: int = 256) -> tuple[Tensor, Tensor]:
    """The ``k`` rows of ``vectors`` with the largest product with each query, best first; ties by the lower row.

    Args:
        queries: (Q, D).
        vectors: (N, D).
        k: how many; fewer where N is smaller.
        memory_mb: bound of what is held beside queries and results, in MiB.

    Returns:
        Scores (Q, k) and rows (Q, k).
    """
    count = int(vectors.shape[0])
    k = min(k, count)
    best = torch.full((len(queries), k), -torch.inf, dtype=queries.dtype, device=queries.device)
    found = torch.zeros(len(queries), k, dtype=torch.long, device=queries.device)
    for start, block in _blocks(vectors, queries, memory_mb):
        best, found = _merge(best, found, queries @ block.T, start, k)
    return best, found


def block_rows(queries: int, dim: int, memory_mb: int, size: int = 4) -> int:
    """Rows a block: vectors, their products, and as much again for choosing fit into ``memory_mb``."""
    rows = memory_mb * 2**20 // (size * (dim + 3 * queries))
    return max(PIECE, rows // PIECE * PIECE)


def _blocks(vectors: Vectors, queries: Tensor, memory_mb: int) -> Iterator[tuple[int, Tensor]]:
    count = int(vectors.shape[0])
    step = min(block_rows(len(queries), queries.shape[1], memory_mb, queries.element_size()), 1 << 16)
    for start in range(0, count, step):
        yield start, torch.as_tensor(vectors[start : start + step]).to(queries.device, queries.dtype)


def _merge(best: Tensor, found: Tensor, scores: Tensor, start: int, k: int) -> tuple[Tensor, Tensor]:
    """The best of what was found and of a block's scores (Q, n)."""
    queries, count = scores.shape
    whole = count // PIECE * PIECE
    floor = best[:, -1:]
    pieces = (
        scores[:, :whole].unflatten(1, (-1, PIECE)).amax(2) > floor if whole else scores.new_zeros(queries, 0).bool()
    )
    rest = scores[:, whole:] > floor if whole < count else None
    rows, columns = _above(scores, pieces, rest, floor, whole)
    if not len(rows):
        return best, found
    if len(rows) > queries * max(4 * k, 1024):  # nothing is known yet: the first block is sorted whole
        top, place = scores.topk(min(k, count), 1)
        return _best(torch.cat([best, top], 1), torch.cat([found, place + start], 1), k)
    order = torch.arange(len(rows), device=rows.device)
    first = torch.searchsorted(rows, torch.arange(queries, device=rows.device))
    width = int(torch.bincount(rows, minlength=queries).max())
    more = scores.new_full((queries, width), -torch.inf)
    where = found.new_zeros(queries, width)
    more[rows, order - first[rows]] = scores[rows, columns]
    where[rows, order - first[rows]] = columns + start
    return _best(torch.cat([best, more], 1), torch.cat([found, where], 1), k)


def _above(scores: Tensor, pieces: Tensor, rest: Tensor | None, floor: Tensor, whole: int) -> tuple[Tensor, Tensor]:
    """Query and column of every score above its query's floor, query by query."""
    query, piece = pieces.nonzero(as_tuple=True)
    if len(query) > CHANCE // PIECE * 4:
        return (scores > floor).nonzero(as_tuple=True)  # type: ignore[return-value]
    columns = piece[:, None] * PIECE + torch.arange(PIECE, device=scores.device)
    inside = scores[query[:, None], columns] > floor[query]
    rows, columns = query[:, None].expand_as(columns)[inside], columns[inside]
    if rest is not None:
        more, other = rest.nonzero(as_tuple=True)
        rows, columns = torch.cat([rows, more]), torch.cat([columns, other + whole])
        order = rows.argsort(stable=True)
        rows, columns = rows[order], columns[order]
    return rows, columns


def _best(scores: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The ``k`` best, earlier columns first where scores are equal."""
    order = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
    return scores.gather(1, order), rows.gather(1, order)


def search_faiss(queries: Tensor, vectors: Vectors, k: int, *, rows: int = 1 << 16) -> tuple[Tensor, Tensor]:
    """The same by FAISS (an exact inner-product index), which holds all vectors in memory.

    Raises:
        ComponentError: FAISS is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        from vlcli.errors import ComponentError

        raise ComponentError("FAISS is not installed.", hint="pip install faiss-cpu") from error
    index = faiss.IndexFlatIP(int(vectors.shape[1]))
    for start in range(0, int(vectors.shape[0]), rows):
        index.add(torch.as_tensor(vectors[start : start + rows]).float().numpy())
    scores, found = index.search(queries.float().cpu().numpy(), min(k, index.ntotal))
    return torch.from_numpy(scores), torch.from_numpy(found)


def named(keys: Sequence[str], rows: Tensor) -> list[list[str]]:
    """What was found, by name."""
    return [[keys[place] for place in row] for row in rows.tolist()]
