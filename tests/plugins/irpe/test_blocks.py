"""Attention a few heads at a time equals the one with a term for all pairs."""

from __future__ import annotations

import pytest
import torch
from vlcli_irpe import IRPE, lookup
from vlcli_irpe.blocks import grid_blocks
from vlcli_irpe.buckets import BucketRule
from vlcli_irpe.relative_index import TokenGrid, grid_ids

from vlcli.nn import AttentionShape, Layout
from vlcli.nn.attention import AttentionContext, StandardAttention

SHAPE = AttentionShape(dim=24, heads=3, layers=1)
ALL = ["query", "key", "value"]


def layout(rows, columns, front, back):
    grid = torch.stack(torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"), -1).flatten(0, 1)
    off = torch.full((1, 2), torch.nan)
    centre = torch.cat([off.expand(front, -1), grid.float(), off.expand(back, -1)])[None]
    special, whole = centre[..., 0].isnan(), centre.shape[:2]
    none = torch.zeros(whole, dtype=torch.long)
    return Layout(none, none, none - 1, centre, special, torch.ones(whole, dtype=torch.bool), (rows, columns))


def both(options, place, monkeypatch, threads=1):
    """The attention with the term for all pairs, and in blocks."""
    torch.manual_seed(0)
    position, attention = IRPE(SHAPE, **options).eval(), StandardAttention(SHAPE).eval()
    for parameter in position.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, place.centre.shape[1], SHAPE.dim)
    state = position.prepare(x, x, place, place)
    context = AttentionContext(x_layout=place, position=position, state=state, layer=0)
    made, before = [], torch.get_num_threads()
    for least in (10**9, 0):
        monkeypatch.setattr(lookup, "LEAST", least)
        torch.set_num_threads(threads)
        with torch.no_grad():
            made.append(attention(x, context=context))
        torch.set_num_threads(before)
    return made


@pytest.mark.parametrize("sides", [["key"], ["query"], ["query", "key"], ALL])
@pytest.mark.parametrize(("front", "back"), [(1, 0), (0, 0), (2, 9)])
def test_equal_to_the_term_for_all_pairs(sides, front, back, monkeypatch):
    plain, blocked = both({"sides": sides}, layout(5, 7, front, back), monkeypatch)
    assert plain.std() > 0.05
    assert torch.allclose(plain, blocked, atol=2e-6)


@pytest.mark.parametrize(
    "options",
    [
        {"sides": ALL, "form": "as_published", "shared_heads": False, "ratio": 3.5},
        {"sides": ALL, "off_plane": "nothing"},
        {"sides": ["key", "value"], "index": "clip", "ratio": 1.0},
    ],
)
def test_equal_for_other_options_and_several_threads(options, monkeypatch):
    plain, blocked = both(options, layout(4, 6, 1, 3), monkeypatch, threads=2)
    assert torch.allclose(plain, blocked, atol=2e-6)


def test_stretches_are_the_ids_of_all_pairs():
    """Looking up the ids themselves gives the table of ids, for both terms."""
    rule, grid = BucketRule("product", 1.9), TokenGrid(4, 3, 1, 2)
    blocks, count = grid_blocks(rule, grid, True), 15
    z = torch.arange(count * (rule.buckets + 1)).view(1, count, -1)
    for stretches, mirrored in ((blocks.keys, False), (blocks.queries, True)):
        ids = grid_ids(rule, grid, grid, mirrored=mirrored)[0]
        token = torch.arange(count)[:, None] if not mirrored else torch.arange(count)
        found = stretches.term(z, blocks.groups)[0, :, blocks.held]
        assert torch.equal(found, token * (rule.buckets + 1) + ids)


@pytest.mark.parametrize("reason", ["gradient", "small", "half", "method"])
def test_otherwise_the_term_for_all_pairs_stays(reason, monkeypatch):
    position = IRPE(SHAPE, method="cross" if reason == "method" else "product")
    place = layout(4, 4, 1, 0)
    x = torch.randn(1, 17, SHAPE.dim)
    state = position.prepare(x, x, place, place)
    monkeypatch.setattr(lookup, "LEAST", 18 if reason == "small" else 0)
    q = torch.randn(1, 3, 17, 8, dtype=torch.float64 if reason == "half" else torch.float32)
    with torch.set_grad_enabled(reason == "gradient"):
        assert position.attend(q, q, q, state, 0) is None
