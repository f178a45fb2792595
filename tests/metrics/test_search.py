"""Search: exact, whatever the blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.metrics.search import block_rows, search, search_faiss


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 5),
    st.integers(1, 700),
    st.integers(1, 12),
    st.integers(0, 9999),
    st.booleans(),
    st.sampled_from([0, 64]),
)
def test_the_best_are_those_of_the_whole_matrix(
    asked: int, count: int, k: int, seed: int, coarse: bool, memory: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    queries, vectors = torch.randn(asked, 8, generator=draw), torch.randn(count, 8, generator=draw)
    if coarse:  # many ties
        queries, vectors = queries.round(), vectors.round()
    scores, rows = search(queries, vectors, k, memory_mb=memory)  # in the smallest blocks, or at once
    whole = queries @ vectors.T
    order = whole.sort(dim=1, descending=True, stable=True)
    torch.testing.assert_close(scores, order.values[:, : min(k, count)])
    torch.testing.assert_close(whole.gather(1, rows), scores)  # products in blocks may differ in their last bit
    if coarse:  # whole numbers have no last bit
        assert torch.equal(rows, order.indices[:, : min(k, count)]), "of equal scores the lower row"
    assert all(len(set(row)) == len(row) for row in rows.tolist())


def test_arrays_and_maps_are_read_in_blocks(tmp_path) -> None:
    stored = np.memmap(tmp_path / "v", np.float16, "w+", shape=(1000, 4))
    stored[:] = np.random.default_rng(0).standard_normal((1000, 4))
    scores, rows = search(torch.eye(4), stored, 3, memory_mb=0)
    assert rows[0, 0] == int(stored[:, 0].argmax())
    assert scores.shape == (4, 3)


@pytest.mark.parametrize(("asked", "count"), [(0, 4), (2, 0), (0, 0)])
def test_no_query_and_no_vector_find_nothing(asked: int, count: int) -> None:
    scores, rows = search(torch.zeros(asked, 3), torch.zeros(count, 3), 2)
    assert scores.shape == rows.shape == (asked, min(2, count))


def test_memory_bounds_the_block() -> None:
    for queries in (1, 1000):
        rows = block_rows(queries, 256, 64)
        assert rows * 4 * (256 + 3 * queries) <= 64 * 2**20


@pytest.mark.parametrize("count", [3, 5000])
def test_faiss_finds_the_same(count: int) -> None:
    pytest.importorskip("faiss")
    draw = torch.Generator().manual_seed(5)
    queries, vectors = torch.randn(20, 32, generator=draw), torch.randn(count, 32, generator=draw)
    scores, rows = search(queries, vectors, 10)
    found, places = search_faiss(queries, vectors, 10, rows=1000)
    torch.testing.assert_close(found, scores, rtol=1e-5, atol=1e-5)
    assert torch.equal(places, rows)
