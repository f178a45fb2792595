"""ACE-RPE: worked examples, brute force, gradients, numbers that break half precision, other models."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from vlcli_ace_rpe import ACERPE, distance, grouped_cosine, log_distance, shortest_paths, shortest_paths_between

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, DataSpec, ForwardPasses, Layout
from vlcli.nn.fake import fake_batch

METRICS = {"l1": "l1", "l2": "euclidean", "linf": "chebyshev"}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Any:
    return np.load(shared / "reference" / "vlmo_golden.npz")


def by_group(array: Any) -> Tensor:
    """(M, N, G) as (1, G, M, N)."""
    return torch.from_numpy(np.asarray(array)).permute(2, 0, 1)[None]


def test_distances_of_the_worked_example(golden: Any) -> None:
    similar, threshold, sharpness = by_group(golden["ace/S"]), float(golden["ace/delta"]), float(golden["ace/tau"])
    found = distance(similar, threshold, sharpness, 100.0)
    torch.testing.assert_close(found, by_group(golden["ace/D_clamped100"]), rtol=1e-12, atol=1e-12)
    logarithm, unclamped = log_distance(similar, threshold, sharpness), by_group(golden["ace/D_unclamped"])
    finite = unclamped.isfinite()
    torch.testing.assert_close(logarithm[finite], unclamped[finite].log(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(("words", "side"), [(5, 3), (3, 3), (1, 3), (3, 1), (1, 1)])
def test_paths_of_the_worked_example(golden: Any, metric: str, words: int, side: int) -> None:
    near = by_group(golden["ace/D_clamped100"])
    found = shortest_paths(near, (2, 2), words=words, side=side, metric=METRICS[metric])
    torch.testing.assert_close(found, by_group(golden[f"ace/P_{metric}_bt{words}_side{side}"]), rtol=0, atol=1e-12)


def brute_force(near: Tensor, grid: tuple[int, int], words: int | None, side: int | None, metric: str) -> Tensor:
    """Eq. 7 term by term."""
    _, _, m, n = near.shape
    places = list(itertools.product(range(grid[0]), range(grid[1])))
    rows: list[list[Tensor]] = [[torch.full_like(near[:, :, 0, 0], torch.inf) for _ in range(n)] for _ in places]
    for (a, (y, x)), b in itertools.product(enumerate(places), range(n)):
        for (i, (v, u)), j in itertools.product(enumerate(places), range(n)):
            dy, dx = abs(y - v), abs(x - u)
            if (side is not None and max(dy, dx) > side // 2) or (words is not None and abs(b - j) > words // 2):
                continue
            step = {"euclidean": math.hypot(dy, dx), "l1": dy + dx, "chebyshev": max(dy, dx)}[metric]
            rows[a][b] = torch.minimum(rows[a][b], near[:, :, i, j] + step + abs(b - j))
    assert m == len(places)
    return torch.stack([torch.stack(row, -1) for row in rows], 2)


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3)),
    st.integers(1, 4),
    st.sampled_from([1, 3, 5, None]),
    st.sampled_from([1, 3, 5, None]),
    st.sampled_from(list(METRICS.values())),
    st.integers(0, 10_000),
)
def test_passes_are_brute_force(
    grid: tuple[int, int], count: int, words: int | None, side: int | None, metric: Any, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    near = (torch.rand(2, 2, grid[0] * grid[1], count, generator=draw, dtype=torch.float64) * 12).requires_grad_()
    near.data[torch.rand(near.shape, generator=draw) < 0.3] = 100.0  # padding and class tokens
    found, wanted = shortest_paths(near, grid, words=words, side=side, metric=metric), None
    wanted = brute_force(near, grid, words, side, metric)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-9)
    weight = torch.rand(found.shape, generator=draw, dtype=torch.float64)
    reached = found < 100  # masked pairs tie among themselves; they carry no gradient
    (ours,) = torch.autograd.grad((found * weight)[reached].sum(), near, retain_graph=True)
    (theirs,) = torch.autograd.grad((wanted * weight)[reached].sum(), near)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 10_000))
def test_regions_on_a_grid_are_a_grid(rows: int, count: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    near = (torch.rand(1, 2, rows * 2, count, generator=draw, dtype=torch.float64) * 9).requires_grad_()
    places = torch.cartesian_prod(torch.arange(float(rows)), torch.arange(2.0)).double()
    steps = torch.cdist(places, places)[None]
    dense = shortest_paths_between(near, steps, words=3)
    grid = shortest_paths(near, (rows, 2), words=3, side=None)
    torch.testing.assert_close(dense, grid, rtol=0, atol=1e-12)
    weight = torch.rand(dense.shape, generator=draw, dtype=torch.float64)
    gradients = [torch.autograd.grad((found * weight).sum(), near, retain_graph=True)[0] for found in (dense, grid)]
    torch.testing.assert_close(*gradients)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(-1, 1), min_size=1, max_size=20), st.sampled_from(["float16", "bfloat16", "float32"]))
@example([0.05], "float16")  # just below the threshold there, where the slope leaves float16
@example([0.05], "bfloat16")
def test_any_similarity_gives_finite_distances_and_gradients(values: list[float], name: str) -> None:
    similar = torch.tensor(values, dtype=getattr(torch, name)).requires_grad_()
    found = distance(similar, 0.05, 1e4, 100.0)
    found.sum().backward()
    assert found.isfinite().all()
    assert (found >= 1 - 1e-6).all()
    assert (found <= 100 + 1e-3).all()
    assert similar.grad is not None
    assert similar.grad.isfinite().all()


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_zero_vectors_and_half_precision_tokens(kind: torch.dtype) -> None:
    patches, words = torch.randn(2, 6, 16).to(kind).requires_grad_(), torch.randn(2, 4, 16).to(kind).requires_grad_()
    with torch.no_grad():
        patches[:, 0] = 0
    with torch.autocast("cpu", torch.bfloat16):
        similar = grouped_cosine(patches, words, 4)
    assert similar.dtype == torch.float32
    shortest_paths(distance(similar, 0.05, 1e4, 100.0), (2, 3)).sum().backward()
    assert patches.grad is not None
    assert patches.grad.isfinite().all()
    assert words.grad is not None
    assert words.grad.isfinite().all()


SHAPE = AttentionShape(16, 4, 2, cross=True)


def cross(position: ACERPE) -> tuple[Tensor, Tensor, Layout, Layout]:
    torch.manual_seed(1)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]], dtype=torch.bool)
    special = torch.tensor([[1, 0, 0, 0, 1], [1, 0, 0, 1, 0]], dtype=torch.bool)
    words, grid = Layout.for_text(mask, special), Layout.for_grid(2, 3, skip=1)
    return torch.randn(2, 5, 16), torch.randn(2, 7, 16), words, grid


def test_both_directions_measure_the_same() -> None:
    position = ACERPE(SHAPE, groups=4)
    words, patches, at, on = cross(position)
    forth, back = position.prepare(words, patches, at, on), position.prepare(patches, words, on, at)
    torch.testing.assert_close(forth.paths, back.paths.transpose(1, 2))
    torch.testing.assert_close(forth.asking, back.asked)
    assert not forth.paths[:, 0].any()  # [CLS]
    assert not forth.paths[:, :, 0].any()  # the picture's class token
    assert not forth.paths[1, 3:].any()  # [SEP] and padding


def test_padding_changes_nothing() -> None:
    position = ACERPE(SHAPE, groups=4)
    words, patches, at, on = cross(position)
    whole = position.prepare(words, patches, at, on)
    cut = position.prepare(words[1:, :4], patches[1:], at.map(lambda t: t[1:, :4]), on)
    torch.testing.assert_close(cut.paths, whole.paths[1:, :4])
    torch.testing.assert_close(cut.asked, whole.asked[1:])


def test_terms_equal_those_of_the_embedding_written_out() -> None:
    """The identities that spare the (M, N, D) tensor: Eq. 8, 10 and 12 with E = P W built."""
    position = ACERPE(SHAPE, groups=4).double()
    words, patches, at, on = cross(position)
    state = position.prepare(words.double(), patches.double(), at, on)
    table = {name: position.embeddings[name][1] for name in position.sides}
    whole = {name: state.paths @ w for name, w in table.items()}  # (B, N, M, D)
    real = (at.valid & ~at.special)[:, :, None] & (on.valid & ~on.special)[:, None]
    mean = (whole["query"] * real[..., None]).sum(2) / real.sum(2)[..., None].clamp(min=1)
    q, k, v = (torch.zeros(2, n, 16, dtype=torch.float64) for n in (5, 7, 7))
    shifted = position.inputs(q, k, v, state, 1)
    torch.testing.assert_close(shifted[0], mean)
    torch.testing.assert_close(
        shifted[1], (whole["key"] * real[..., None]).sum(1) / real.sum(1)[..., None].clamp(min=1)
    )
    weights = torch.rand(2, 4, 5, 7, dtype=torch.float64)
    wanted = torch.einsum("bhij,bijhd->bhid", weights, whole["value"].unflatten(-1, (4, 4)))
    torch.testing.assert_close(position.values(weights, state, 1), wanted)
    assert position.logits(q, k, state, 1) is None


def test_bias_and_uniform() -> None:
    position = ACERPE(SHAPE, groups=4, mode="bias", uniform=1.0)
    words, patches, at, on = cross(position)
    state = position.prepare(words, patches, at, on)
    found = position.logits(words, patches, state, 0)
    assert found is not None
    one = position.embeddings["bias"][0].sum(0) / 2
    torch.testing.assert_close(found[0, :, 2, 3], one)
    assert (found[:, :, 0] == 0).all()


def test_one_sequence_of_both_modalities() -> None:
    """VLMo's fusion layers: blocks across modalities as in cross-attention, blocks within one empty."""
    position = ACERPE(SHAPE, groups=4)
    words, patches, at, on = cross(position)
    apart = position.prepare(words, patches, at, on)
    joined = position.prepare(torch.cat([words, patches], 1), torch.cat([words, patches], 1), at + on, at + on)
    torch.testing.assert_close(joined.paths[:, :5, 5:], apart.paths)
    torch.testing.assert_close(joined.paths[:, 5:, :5], apart.paths.transpose(1, 2))
    assert not joined.paths[:, :5, :5].any()
    assert not joined.paths[:, 5:, 5:].any()
    torch.testing.assert_close(joined.asking[:, :5], apart.asking)


@pytest.mark.parametrize("options", [{}, {"mode": "bias"}, {"shared": True, "sides": ["query", "key"]}])
def test_on_lxmert_s_cross_attention(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    data_spec = DataSpec(vocab_size=50, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=6, regions=4, region_dim=8)
    sizes = {"hidden": 16, "heads": 4, "text_layers": 1, "image_layers": 1, "cross_layers": 2, "dropout": 0.0}
    spec = {"name": "lxmert", **sizes, "cross_position": {"name": "ace-rpe", "groups": 4, **options}}
    model = registry.build("models", spec, data_spec)
    batch = fake_batch(model.input_spec(), data_spec)
    batch.clean.images.regions.boxes = torch.rand(2, 4, 4)
    batch.clean.images.regions.features = torch.randn(2, 4, 8)
    fused = ForwardPasses(model, batch).fused()
    fused.pooled.square().sum().backward()
    grads = [p.grad for name, p in model.named_parameters() if "embeddings" in name and "cross" in name]
    assert grads
    assert all(grad is not None and grad.isfinite().all() for grad in grads)
    assert any(grad.abs().sum() > 0 for grad in grads)


def test_words_that_a_cache_holds_cannot_be_measured() -> None:
    words = Layout.for_text(torch.ones(1, 2, dtype=torch.bool))
    keys = Layout.for_boxes(torch.rand(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)) + words
    x = torch.randn(1, 2, 8)
    with pytest.raises(ComponentError, match="word by word"):
        ACERPE(AttentionShape(8, 2), groups=2).prepare(x, x, words, keys)
