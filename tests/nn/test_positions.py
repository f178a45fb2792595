"""Absolute positions by their definitions."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.errors import ComponentError, DataError
from vlcli.nn import AttentionShape, Layout, Slot, build_positions
from vlcli.nn.positions import BoxPosition, LearnedPosition, SinusoidPosition, geometry

SHAPE = AttentionShape(8, 2)
OF_WORDS = Slot.of("position", ["tokens", "pairs"], ["word"])


def words(count, rows=1):
    return Layout.for_text(torch.ones(rows, count).bool())


def boxes(rows=2, count=3):
    corners = torch.rand(rows, count, 2, 2).sort(2).values.flatten(2)
    return Layout.for_boxes(corners, torch.ones(rows, count).bool())


def test_nothing_chosen_is_nothing_built():
    for choice in (None, "none", [], ["none"]):
        tokens, pairwise = build_positions(choice, SHAPE, OF_WORDS)
        assert len(tokens) == 0
        assert pairwise is None


def test_learned_by_index_and_by_cell():
    line = LearnedPosition(SHAPE, length=6)
    x = torch.zeros(2, 4, 8)
    torch.testing.assert_close(line(x, words(4, 2)), line.table.weight[:4].expand(2, 4, 8))
    grid = LearnedPosition(SHAPE, grid=(2, 3))
    torch.testing.assert_close(grid(torch.zeros(1, 7, 8), Layout.for_grid(2, 3, skip=1))[0], grid.table.weight)
    mixed = words(2) + Layout.for_grid(2, 3, skip=1)
    got = grid(torch.zeros(1, 9, 8), mixed)[0]
    assert got[:2].abs().max() == 0
    torch.testing.assert_close(got[2:], grid.table.weight)
    assert line(torch.zeros(2, 3, 8), boxes()).abs().max() == 0


def test_learned_says_what_does_not_fit():
    with pytest.raises(DataError, match="longer"):
        LearnedPosition(SHAPE, length=3)(torch.zeros(1, 4, 8), words(4))
    with pytest.raises(ComponentError, match="grid"):
        LearnedPosition(SHAPE, grid=(2, 2))(torch.zeros(1, 7, 8), Layout.for_grid(2, 3, skip=1))


def test_learned_grid_resizes_and_keeps_class_rows():
    old, new = LearnedPosition(SHAPE, grid=(4, 4)), LearnedPosition(SHAPE, grid=(6, 5))
    with torch.no_grad():  # a plane stays a plane under interpolation, away from the rim
        rows = torch.arange(4.0)[:, None].expand(4, 4).reshape(-1, 1)
        old.table.weight[1:] = rows.expand(16, 8)
    made = old.resize_state(old.state_dict(), (4, 4), (6, 5))
    new.load_state_dict(made)
    assert torch.equal(new.table.weight[0], old.table.weight[0])
    grown = new.table.weight[1:].reshape(6, 5, 8)
    assert (grown[1:] > grown[:-1]).all()
    assert old.resize_state(old.state_dict(), (4, 4), (4, 4)).keys() == old.state_dict().keys()


@settings(max_examples=20, deadline=None)
@given(place=st.integers(0, 300), channel=st.integers(0, 3))
def test_sinusoid_is_the_papers_formula(place, channel):
    layout = words(301)
    got = SinusoidPosition(SHAPE)(torch.zeros(1, 301, 8), layout)[0, place]
    angle = place / 10000 ** (2 * channel / 8)
    assert got[2 * channel] == pytest.approx(math.sin(angle), abs=1e-4)
    assert got[2 * channel + 1] == pytest.approx(math.cos(angle), abs=1e-4)


def test_sinusoid_on_a_plane():
    position = SinusoidPosition(SHAPE, normalise=True)
    got = position(torch.zeros(1, 7, 8), Layout.for_grid(2, 3, skip=1))[0]
    assert got[0].abs().max() == 0
    cells = got[1:].reshape(2, 3, 8)
    torch.testing.assert_close(cells[0, :, :4], cells[0, :1, :4].expand(3, 4))  # rows in the first half
    torch.testing.assert_close(cells[:, 0, 4:], cells[:1, 0, 4:].expand(2, 4))
    assert cells[1, 0, 0] == pytest.approx(math.sin(2 * math.pi), abs=1e-5)
    layout = boxes()
    got = position(torch.zeros(2, 3, 8), layout)
    assert got[0, 0, 0] == pytest.approx(math.sin(2 * math.pi * layout.centre[0, 0, 0]), abs=1e-5)
    with pytest.raises(ComponentError, match="4 divides"):
        SinusoidPosition(AttentionShape(6, 2))


def test_geometry_numbers():
    box = torch.tensor([[0.1, 0.2, 0.6, 0.4]])
    torch.testing.assert_close(geometry(box, 5), torch.tensor([[0.1, 0.2, 0.6, 0.4, 0.1]]))
    torch.testing.assert_close(geometry(box, 7), torch.tensor([[0.1, 0.2, 0.6, 0.4, 0.5, 0.2, 0.1]]))


@pytest.mark.parametrize("numbers", [4, 5, 7])
@pytest.mark.parametrize("combine", ["mean", "add"])
def test_box_is_lxmerts_average(numbers, combine):
    torch.manual_seed(0)
    position, layout, x = BoxPosition(SHAPE, numbers=numbers, combine=combine), boxes(), torch.randn(2, 3, 8)
    place = torch.nn.functional.layer_norm(position.project(geometry(layout.boxes, numbers)), (8,), eps=1e-12)
    wanted = (x + place) / 2 if combine == "mean" else x + place
    torch.testing.assert_close(position(x, layout), wanted)
    mixed = words(2, 2) + layout
    both = torch.cat([torch.randn(2, 2, 8), x], 1)
    got = position(both, mixed)
    assert torch.equal(got[:, :2], both[:, :2])
    torch.testing.assert_close(got[:, 2:], wanted)


def test_box_needs_boxes():
    with pytest.raises(ComponentError, match="boxes"):
        BoxPosition(SHAPE)(torch.zeros(1, 4, 8), words(4))
