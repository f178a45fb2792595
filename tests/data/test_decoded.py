"""Decoded images that are kept: the same pixels, decoded once, within a limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.spawned import as_in_a_worker
from vlcli.data import pictures
from vlcli.data.pictures import PIXEL, DecodedImages, Pictures
from vlcli.data.sample import ImageSample
from vlcli.nn.model import InputSpec


def image(side: int = 10, red: int = 200) -> Image.Image:
    return Image.new("RGB", (side, side), (red, 20, 30))


def refuse() -> Image.Image:
    raise AssertionError("decoded again")


def test_a_kept_image_is_not_decoded_again_and_is_not_the_callers():
    kept = DecodedImages(1)
    first = kept.get("a", image)
    first.paste((0, 0, 0), (0, 0, 10, 10))
    second = kept.get("a", refuse)
    assert second.getpixel((0, 0)) == (200, 20, 30)
    second.paste((0, 0, 0), (0, 0, 10, 10))
    assert kept.get("a", refuse).getpixel((0, 0)) == (200, 20, 30)


@pytest.mark.parametrize(("count", "kept"), [(3, 3), (4, 0), (0, 0)])
def test_images_are_kept_where_all_fit(count, kept):
    decoded = DecodedImages(count, limit=3 * PIXEL * 100)
    for number in range(count):
        decoded.get(str(number), image)
    assert len(decoded) == kept


@given(st.lists(st.integers(1, 30), min_size=1, max_size=20), st.integers(0, 20_000))
def test_never_more_bytes_than_the_limit(sides, limit):
    decoded = DecodedImages(len(sides), limit)
    for _ in range(2):
        for number, side in enumerate(sides):
            assert decoded.get(str(number), lambda side=side: image(side)).size == (side, side)
    assert sum(PIXEL * one.width * one.height for one in decoded._kept.values()) <= limit


def test_workers_start_without_images():
    decoded = DecodedImages(2)
    decoded.get("a", image)
    copied = as_in_a_worker(decoded)
    assert (len(copied), copied.count) == (0, 2)


def test_the_pixels_of_later_epochs_are_those_of_the_first(monkeypatch, tmp_path):
    image().save(tmp_path / "a.png")
    opened = []
    load = pictures.load_image
    monkeypatch.setattr(pictures, "load_image", lambda path, raw: opened.append(path) or load(path, raw))
    found = Pictures([Folder(tmp_path)], InputSpec(pixels=True, size=(8, 8)), None)
    read = []
    for _ in range(3):
        sample = ImageSample("a", (0, 0))
        found.fill(sample, None)
        read.append((sample.size, sample.pixels))
    assert opened == [tmp_path / "a.png"]
    assert [size for size, _ in read] == [(10, 10)] * 3
    assert all(np.array_equal(read[0][1], pixels) for _, pixels in read[1:])


class Folder:
    """A data set of one image, as far as `Pictures` asks."""

    label = "folder"

    def __init__(self, root) -> None:
        self.root = root

    def examples(self):
        return []

    def image_files(self):
        return {"a": self.root / "a.png"}
