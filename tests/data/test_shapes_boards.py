"""Pictures of the shapes world whose class is a place or a neighbour: two shapes, and boards of shapes."""

from __future__ import annotations

import re
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from PIL import Image
from shapes_oracle import SMALL

from vlcli.data.shapes.captions import captions
from vlcli.data.shapes.coco import shared_pictures
from vlcli.data.shapes.folders import _marked, _related, write_imagenet
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


def test_captions_of_boards_say_whether_two_shapes_are_side_by_side():
    options = {"size": 64, "board": 4, "caption_forms": ("distance",), "captions": 1, "images": 800}
    config = replace(SMALL, **options, colours=("red", "green", "blue"), kinds=("circle", "square", "star"))
    pictures = shared_pictures(config)
    beside, spots = 0, set()
    for picture in pictures["train"]:
        one, two = picture.scene.shapes
        across, down = abs(one.x - two.x) // 16, abs(one.y - two.y) // 16
        assert {one.x % 16, one.y % 16, two.x % 16, two.y % 16} == {8}
        assert one.noun != two.noun
        (caption,) = captions(picture.scene, Random(0), config)
        names = {shape.noun.a for shape in (one, two)}
        first, word, second = re.fullmatch("(.+) (beside|beyond) (.+)[.]", caption.lower()).groups()
        assert {first, second} == names
        assert (across + down == 1) if word == "beside" else max(across, down) > 1
        beside, spots = beside + (word == "beside"), spots | {(one.x, one.y)}
    assert 0.4 < beside / len(pictures["train"]) < 0.6
    assert len(spots) == 16
    told = {frozenset(re.split(" beside | (?=beyond)", text)) for text in _captions(pictures["test"], config)}
    assert len(told) == len(pictures["test"]) == 2 * 36  # of nine looks, any two, near or far


def _captions(pictures, config):
    return [captions(picture.scene, Random(0), config)[0].lower().strip(".") for picture in pictures]


@pytest.mark.parametrize(
    "options", [{"size": 80, "board": 11}, {"board": 1}, {"caption_forms": ("distance",), "board": 0}], ids=str
)
def test_boards_that_cannot_be(options):
    with pytest.raises(UsageError, match=r"board|caption_forms"):
        replace(SMALL, **options)
