"""Pictures of the shapes world whose class is a place or a neighbour: two shapes, and boards of shapes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from PIL import Image
from shapes_oracle import SMALL

from vlcli.data.shapes.folders import _beside, _marked, _related, write_imagenet
from vlcli.data.shapes.world import RELATIONS, Look
from vlcli.errors import UsageError
from vlcli.progress import Silent


def test_related_shapes_may_have_colours_of_their_own():
    config, rng = replace(SMALL, related=("red", "blue")), Random(0)
    for number in range(40):
        one, two = _related(rng, config, RELATIONS[number % 4]).shapes
        assert (one.look.colour, two.look.colour) == ("red", "blue")
        assert (one.look.kind, two.look.kind) == config.kinds[:2]
    with pytest.raises(UsageError, match="related"):
        replace(SMALL, related=("red", "mauve"))


def test_the_colour_right_of_a_marked_boards_circle_is_the_class():
    config, rng = replace(SMALL, size=80, marked=5, related=("red", "")), Random(0)
    others = [colour for colour in config.colours if colour != "red"]
    spots, around = set(), dict.fromkeys(others, 0)
    for number in range(400):
        label = others[number % len(others)]
        cells = {(shape.x // 16, shape.y // 16): shape.look for shape in _marked(rng, config, label).shapes}
        assert len(cells) == 25
        ((x, y),) = [cell for cell, look in cells.items() if look.kind == "circle"]
        assert cells[x, y].colour == "red"
        assert {look.colour for cell, look in cells.items() if cell != (x, y)} <= set(others)
        assert cells[x + 1, y] == Look("small", label, "square")
        spots.add((x, y))
        for cell in {(x - 1, y), (x, y - 1), (x, y + 1)} & set(cells):
            around[cells[cell].colour] += 1
    assert len(spots) == 20
    assert max(around.values()) < 1.6 * min(around.values())
    with pytest.raises(UsageError, match="marked"):
        replace(SMALL, size=80, marked=11)


def test_the_class_of_a_placed_board_is_the_cell_of_its_square(tmp_path):
    config = replace(SMALL, size=64, placed=2, parts=("imagenet",), imagenet=20)
    write_imagenet(tmp_path, config, Silent(), workers=1)
    for name, (left, top) in {"1-1": (0, 0), "2-1": (32, 0), "1-2": (0, 32), "2-2": (32, 32)}.items():
        for path in (tmp_path / "imagenet_placed/train" / name).iterdir():
            pixels = np.asarray(Image.open(path).convert("RGB"), dtype=float)
            apart = np.abs(pixels - 128).sum(-1) > 90
            rows, columns = np.nonzero(apart)
            assert left <= columns.min() <= columns.max() < left + 32
            assert top <= rows.min() <= rows.max() < top + 32
    with pytest.raises(UsageError, match="placed"):
        replace(SMALL, size=64, placed=9)


def test_pictures_of_marked_boards_have_a_folder_for_each_colour(tmp_path):
    config = replace(SMALL, size=80, marked=5, parts=("imagenet",), imagenet=20)
    counts = write_imagenet(tmp_path, config, Silent(), workers=1)
    folders = sorted(path.name for path in (tmp_path / "imagenet_marked/train").iterdir())
    assert folders == sorted(colour for colour in config.colours if colour != config.colours[0])
    assert counts["imagenet pictures"] == len(list(tmp_path.rglob("*.png")))


@pytest.mark.parametrize("each", [1, 2, 3])
def test_one_pair_of_a_board_is_adjacent_and_stands_anywhere(each):
    config, rng = replace(SMALL, size=80, board=5, board_squares=each, related=("red", "blue")), Random(0)
    steps = {"left": (-16, 0), "right": (16, 0), "above": (0, -16), "below": (0, 16)}
    spots: dict[str, set[tuple[int, int]]] = {}
    for number in range(800):
        label = RELATIONS[number % 4]
        shapes = _beside(rng, config, label).shapes
        assert [shape.look.colour for shape in shapes] == ["red"] * each + ["blue"] * each
        assert len({(shape.x, shape.y) for shape in shapes}) == 2 * each
        away = [(one.x - two.x, one.y - two.y) for one in shapes[:each] for two in shapes[each:]]
        assert [step for step in away if sum(map(abs, step)) == 16] == [steps[label]]
        assert all(one.x % 16 == one.y % 16 == 8 and one.radius == 6 for one in shapes)
        spots.setdefault(label, set()).add((shapes[0].x, shapes[0].y))
    assert [len(spots[label]) for label in RELATIONS] == [20] * 4
    with pytest.raises(UsageError, match="board"):
        replace(SMALL, size=80, board=11)
    with pytest.raises(UsageError, match="board_squares"):
        replace(SMALL, board_squares=4)
