"""iRPE beyond the golden arrays: properties of buckets, the cache, other grids, boxes, and the definition itself."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from vlcli_irpe import CACHE, IRPE, BucketRule, TokenGrid, bucket_ids, clip, grid_ids, piecewise, ratio_for

from tests.plugins.irpe.oracle import buckets, index
from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import AttentionContext, AttentionMask, AttentionShape, DataSpec, Layout, Stack, StandardAttention

RATIOS = st.sampled_from([1.0, 1.5, 1.9, 2.0, 2.5, 3.0, 3.5, 5.0, 20.0, 33.0])
NAMES = {"euclidean": "euc", "quantization": "quant", "cross": "cross_rows", "product": "product"}


@given(st.integers(-20000, 20000), RATIOS)
def test_piecewise_is_the_definition(x: int, ratio: float) -> None:
    assert int(piecewise(torch.tensor(x), ratio)) == index(x, ratio)
    assert int(piecewise(torch.tensor(float(x), dtype=torch.float32), ratio)) == index(x, ratio)


@given(st.lists(st.floats(-200, 200), min_size=2, max_size=40), RATIOS)
def test_index_functions_are_odd_and_never_fall(values: list[float], ratio: float) -> None:
    x = torch.tensor(sorted(values), dtype=torch.float64)
    for function in (piecewise, clip):
        made = function(x, ratio)
        assert (made.diff() >= 0).all()
        assert int(made.abs().max()) <= math.floor(2 * ratio)
        assert torch.equal(function(-x, ratio), -made)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(sorted(NAMES)), RATIOS, st.integers(1, 6), st.integers(1, 6), st.integers(0, 2))
def test_ids_are_those_of_the_definition(method: str, ratio: float, rows: int, columns: int, skip: int) -> None:
    grid = TokenGrid(rows, columns, skip)
    made = grid_ids(BucketRule(method, ratio), grid, grid)[0]
    assert np.array_equal(made.numpy(), buckets(NAMES[method], ratio, rows, columns, skip))


def test_published_numbers_of_buckets_are_those_used_at_14x14() -> None:
    grid = TokenGrid(14, 14, 1)
    used = {}
    for method, ratio in (("euclidean", 20.0), ("quantization", 33.0), ("cross", 20.0), ("product", 1.9)):
        used[method] = sum(len(ids.unique()) for ids in grid_ids(BucketRule(method, ratio), grid, grid))
    assert used == {"euclidean": 20, "quantization": 51, "cross": 56, "product": 50}


def test_published_form_ranks_distances_and_does_not_round() -> None:
    rule = BucketRule("quantization", 33, form="as_published")
    offsets = torch.tensor([[0, 0], [0, 1], [1, 1], [0, 2], [1, 2], [2, 2], [0, 3]])
    assert (rule(offsets[:, 0], offsets[:, 1])[0] - rule.bound).tolist() == [0, 1, 2, 3, 4, 5, 6]
    released = BucketRule("quantization", 33)
    assert (released(offsets[:, 0], offsets[:, 1])[0] - released.bound).tolist() == [0, 1, 2, 4, 5, 8, 9]
    grid, ratio = TokenGrid(14, 14), 1.9
    forms = [
        grid_ids(BucketRule("euclidean", ratio, form=form), grid, grid)[0] for form in ("as_released", "as_published")
    ]
    assert (forms[0] != forms[1]).any()
    same = [grid_ids(BucketRule("euclidean", 20, form=form), grid, grid)[0] for form in ("as_released", "as_published")]
    assert torch.equal(*same)


def test_rank_does_not_depend_on_the_grid_and_saturates() -> None:
    rule = BucketRule("quantization", 2.0, form="as_published")
    small, large = (grid_ids(rule, TokenGrid(n, n), TokenGrid(n, n))[0].view(n, n, n, n) for n in (5, 9))
    assert torch.equal(small, large[:5, :5, :5, :5])
    assert int(rule(torch.tensor([500]), torch.tensor([500]))[0]) == 2 * rule.bound


@pytest.mark.parametrize(("count", "ratio"), [(81, 2.0), (225, 3.5), (49, 1.5)])
def test_number_of_buckets_instead_of_the_ratio(count: int, ratio: float) -> None:
    assert ratio_for(count, "product") == ratio
    assert BucketRule("product", ratio).buckets == count
    assert BucketRule("euclidean", ratio_for(41, "euclidean")).buckets == 41


def test_impossible_number_of_buckets_names_near_ones() -> None:
    with pytest.raises(ComponentError, match="this many buckets") as caught:
        ratio_for(50, "product")
    assert "49" in caught.value.expected


def test_trimmed_table_is_the_upper_half() -> None:
    grid = TokenGrid(4, 5, 1)
    for method in ("euclidean", "quantization"):
        whole, trimmed = BucketRule(method, 2.5), BucketRule(method, 2.5, trim=True)
        full, half = grid_ids(whole, grid, grid)[0], grid_ids(trimmed, grid, grid)[0]
        assert torch.equal(full - whole.bound, half)
        assert trimmed.buckets == whole.bound + 1


def test_ids_are_built_once_whatever_order_sizes_come_in() -> None:
    CACHE.clear()
    before, rule = CACHE.built, BucketRule("product", 2.0)
    for _ in range(5):
        for size in ((3, 4), (4, 3), (2, 2)):
            layout = Layout.for_grid(*size)
            ids = bucket_ids(rule, layout, layout).keys[0]
            assert ids.shape == (1, 1, size[0] * size[1], size[0] * size[1])
    assert CACHE.built - before == 3
    assert all(part.dtype == torch.int16 for made in CACHE._kept.values() for part in made)


def test_cache_is_bounded() -> None:
    from vlcli_irpe.relative_index import IndexCache

    cache, rule, cpu = IndexCache(limit=3000), BucketRule("product", 2.0), torch.device("cpu")
    for n in range(2, 7):
        cache.get(rule, TokenGrid(n, n), TokenGrid(n, n), "cells", False, cpu)
    assert cache.size <= 3000
    assert len(cache) == 1 or cache.size == sum(p.numel() * 2 for made in cache._kept.values() for p in made)


def test_ids_made_in_inference_mode_serve_training() -> None:
    CACHE.clear()
    position, layout = IRPE(AttentionShape(8, 2), sides=["query", "key", "value"]), Layout.for_grid(3, 3, skip=1)
    with torch.inference_mode():
        position.prepare(torch.zeros(1), torch.zeros(1), layout, layout)
        inside = Layout.for_grid(3, 3, skip=1)
        assert bucket_ids(position.rule, inside, inside).keys[0].shape == (1, 1, 10, 10)
    q = torch.randn(1, 2, 10, 4, requires_grad=True)
    state = position.prepare(q, q, layout, layout)
    position.logits(q, q, state, 0).sum().backward()
    assert q.grad is not None


def test_two_grids_are_a_part_of_one() -> None:
    rule = BucketRule("product", 2.0)
    whole = grid_ids(rule, TokenGrid(5, 6), TokenGrid(5, 6))[0].view(5, 6, 5, 6)
    part = grid_ids(rule, TokenGrid(3, 6), TokenGrid(5, 2))[0].view(3, 6, 5, 2)
    assert torch.equal(part, whole[:3, :, :, :2])
    mirrored = grid_ids(rule, TokenGrid(3, 6), TokenGrid(5, 2), mirrored=True)[0]
    assert torch.equal(mirrored, grid_ids(rule, TokenGrid(5, 2), TokenGrid(3, 6))[0].T)


def test_stretched_grid_puts_equal_places_at_offset_zero() -> None:
    rule = BucketRule("product", 1.9)
    ids = grid_ids(rule, TokenGrid(3, 3), TokenGrid(9, 9), "extent")[0].view(3, 3, 9, 9)
    centre = rule.buckets // 2
    assert all(int(ids[i, j, 3 * i + 1, 3 * j + 1]) == centre for i in range(3) for j in range(3))


def test_boxes_on_a_grid_of_centres_are_the_grid() -> None:
    rows, columns, cells = 4, 4, 4
    place = torch.cartesian_prod(torch.arange(4.0), torch.arange(4.0))
    boxes = torch.cat([place.flip(1), place.flip(1) + 1], 1)[None] / cells
    layout = Layout.for_boxes(boxes, torch.ones(1, 16, dtype=torch.bool))
    for method in NAMES:
        rule = BucketRule(method, 2.0)
        made = bucket_ids(rule, layout, layout, mirrored=True, cells=cells)
        grid = Layout.for_grid(rows, columns)
        wanted = bucket_ids(rule, grid, grid, mirrored=True)
        assert all(
            torch.equal(a, b) for a, b in zip(made.keys + made.queries, wanted.keys + wanted.queries, strict=True)
        )


def test_computed_places_agree_with_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout.for_grid(3, 5, skip=2) + Layout.for_text(torch.ones(1, 4, dtype=torch.bool))
    for method in NAMES:
        cached = bucket_ids(BucketRule(method, 1.9), layout, layout, mirrored=True)
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
        computed = bucket_ids(BucketRule(method, 1.9), layout, layout, mirrored=True)
        monkeypatch.undo()
        assert all(
            torch.equal(a, b)
            for a, b in zip(cached.keys + cached.queries, computed.keys + computed.queries, strict=True)
        )


def test_two_pictures_of_one_sequence_have_no_offset() -> None:
    layout = Layout.for_grid(2, 2) + Layout.for_grid(2, 2, source=1)
    ids = bucket_ids(BucketRule("product", 2.0), layout, layout).keys[0][0, 0]
    assert (ids[:4, 4:] == 81).all()
    assert (ids[4:, :4] == 81).all()
    assert torch.equal(ids[:4, :4], ids[4:, 4:])


def defined(position: IRPE, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Eq. 13-17 with a vector per pair: what the released code computes, without any shortcut."""
    whole = bucket_ids(position.rule, layout, layout, mirrored=True)
    scores = q @ k.transpose(-1, -2)
    vectors = [torch.zeros(()), torch.zeros(()), torch.zeros(())]
    for number, side in enumerate(("query", "key", "value")):
        if side in position.sides:
            ids = whole.queries if side == "query" else whole.keys
            tables = position.tables(0, side)  # type: ignore[arg-type]
            tables = tables if side == "value" else tuple(table.transpose(-1, -2) for table in tables)
            vectors[number] = sum(table[:, part[0, 0]] for table, part in zip(tables, ids, strict=True))
    scores = scores + (q[:, :, :, None] * vectors[1]).sum(-1) + (k[:, :, None] * vectors[0]).sum(-1)
    weights = (scores / math.sqrt(q.shape[-1])).softmax(-1)
    return (weights[..., None] * (v[:, :, None] + vectors[2])).sum(-2)


@pytest.mark.parametrize("method", sorted(NAMES))
@pytest.mark.parametrize("sides", [["key"], ["query", "key"], ["query", "key", "value"]])
def test_efficient_form_is_the_definition(method: str, sides: list[str]) -> None:
    torch.manual_seed(0)
    shape, layout = AttentionShape(24, 3), Layout.for_grid(3, 4, skip=1)
    position = IRPE(shape, method=method, sides=sides, shared_heads=False, init="normal").double()
    q, k, v = (torch.randn(2, 3, 13, 8, dtype=torch.float64) for _ in range(3))
    state = position.prepare(q, q, layout, layout)
    made = StandardAttention(shape).attend(q, k, v, context=AttentionContext(position=position, state=state))
    assert torch.allclose(made, defined(position, q, k, v, layout), atol=1e-12)


def test_pairs_off_the_plane_get_nothing_by_option() -> None:
    layout = Layout.for_grid(2, 2, skip=1)
    position = IRPE(AttentionShape(8, 2), sides=["query", "key", "value"], off_plane="nothing", init="normal")
    q = torch.randn(1, 2, 5, 4)
    state = position.prepare(q, q, layout, layout)
    logits, weights = position.logits(q, q, state, 0), torch.zeros(1, 2, 5, 5)
    assert (logits[..., 0, :] == 0).all()
    assert (logits[..., :, 0] == 0).all()
    assert (logits[..., 1:, 1:] != 0).all()
    weights[..., 0] = 1
    assert (position.values(weights, state, 0) == 0).all()


def test_batch_of_mixed_sizes_is_each_image_by_itself() -> None:
    torch.manual_seed(0)
    shape = AttentionShape(16, 2, layers=2)
    position = IRPE(shape, sides=["query", "key", "value"], off_plane="nothing", init="normal")
    stack = Stack.of(2, shape, position=position).eval()
    whole, x = Layout.for_grid(4, 5), torch.randn(2, 4, 5, 16)
    valid = torch.ones(2, 4, 5, dtype=torch.bool)
    valid[1, 3:], valid[1, :, 2:] = False, False
    both = stack(x.flatten(1, 2), whole, AttentionMask(valid.flatten(1)))[0].view(2, 4, 5, 16)
    alone = stack(x[1:, :3, :2].flatten(1, 2), Layout.for_grid(3, 2))[0]
    assert torch.allclose(both[1, :3, :2].flatten(0, 1), alone[0], atol=1e-5)


def test_recipe_line_builds_it_and_boxes_run() -> None:
    spec = {"name": "irpe", "method": "cross", "sides": ["query", "key", "value"], "cells": 8, "form": "as_published"}
    position = registry.build("positions", spec, AttentionShape(16, 2, layers=3))
    corner = torch.rand(2, 5, 2) * 0.5
    layout = Layout.for_boxes(torch.cat([corner, corner + 0.4], -1), torch.ones(2, 5, dtype=torch.bool))
    out, _ = Stack.of(3, AttentionShape(16, 2), position=position)(torch.randn(2, 5, 16), layout)
    out.sum().backward()
    assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in position.parameters())


def test_bias_on_values_is_refused() -> None:
    with pytest.raises(ComponentError, match="bias on values"):
        IRPE(AttentionShape(8, 2), mode="bias", sides=["value"])
    with pytest.raises(ComponentError):
        IRPE(AttentionShape(8, 2), sides=[])


def test_forms_differ_in_scale_decay_and_init() -> None:
    shape = AttentionShape(64, 1)
    published, released = (IRPE(shape, mode="bias", form=form) for form in ("as_published", "as_released"))
    assert (published.scale, released.scale) == (0.125, 1.0)
    assert list(published.parameter_groups()) == [("lookup_table_", {"decay": 0.0})]
    assert not list(released.parameter_groups())
    table = IRPE(AttentionShape(64, 1), ratio=2.0, off_plane="nothing", init="xavier").tables(0, "key")[0]
    assert table.shape == (1, 64, 81)
    assert 0.030 < float(table.detach().abs().max()) <= math.sqrt(6 / (64 * 81 + 81))


def test_half_precision_sums_probabilities_exactly_enough() -> None:
    from vlcli_irpe import bucket_sums

    weights = torch.full((1, 1, 1, 4096), 1 / 4096, dtype=torch.bfloat16)
    made = bucket_sums(weights, torch.zeros(1, 1, 1, 4096, dtype=torch.long), 2)
    assert made.dtype == torch.bfloat16
    assert made.flatten().tolist() == [1.0, 0.0]


@pytest.mark.parametrize("off_plane", ["bucket", "nothing"])
@pytest.mark.parametrize("form", ["as_released", "as_published"])
def test_cross_by_axis_is_cross_by_pair(monkeypatch: pytest.MonkeyPatch, form: str, off_plane: str) -> None:
    torch.manual_seed(0)
    here = Layout.for_grid(3, 4, skip=2)
    there = Layout.for_grid(5, 2, skip=1) + Layout.for_text(torch.ones(1, 3, dtype=torch.bool))
    options = {"method": "cross", "ratio": 1.5, "sides": ["query", "key", "value"], "init": "normal", "align": "extent"}
    position = IRPE(AttentionShape(24, 3), **options, form=form, off_plane=off_plane).double()
    q, k = (torch.randn(2, 3, len(layout), 8, dtype=torch.float64) for layout in (here, there))
    weights = torch.rand(2, 3, len(here), len(there), dtype=torch.float64)
    found = []
    for compiling in (False, True):
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda compiling=compiling: compiling)
        state = position.prepare(q, k, here, there)
        assert isinstance(state.keys, tuple) == compiling
        found.append((position.logits(q, k, state, 0), position.values(weights, state, 0)))
    assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(*found, strict=True))


def test_objects_of_lxmert_take_it_by_recipe_line() -> None:
    from vlcli.nn.fake import fake_batch

    spec = {"name": "irpe", "method": "product", "sides": ["query", "key", "value"]}
    sizes = {"hidden": 24, "heads": 3, "text_layers": 1, "image_layers": 2, "cross_layers": 1}
    data_spec = DataSpec(vocab_size=200, region_dim=8, regions=5)
    model = registry.build("models", {"name": "lxmert", **sizes, "image_position": ["box", spec]}, data_spec)
    images = fake_batch(model.input_spec(), data_spec).clean.images
    assert images is not None
    model.encode_image(images).hidden.square().sum().backward()
    tables = {name: p for name, p in model.named_parameters() if "lookup_table" in name}
    assert len(tables) == 6
    assert all(p.grad is not None for p in tables.values())
