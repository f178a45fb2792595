"""Collation: rows point to what belongs to each example, and views share what no corruption touched."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.data.collate import Item, collate, collate_targets
from vlcli.data.sample import ImageSample, Sample, TextSample


def text(number: int) -> TextSample:
    ids = [2, *range(10 + number, 12 + number * 2), 3]
    return TextSample(f"t{number}", f"text {number}", ids, [True] + [False] * (len(ids) - 2) + [True], [-1] * len(ids))


def image(number: int, dim: int = 3) -> ImageSample:
    rows = number % 4 + 1
    features = np.full((rows, dim), number, np.float16)
    fields = {"classes": np.full(rows, number)}
    return ImageSample(f"i{number}", (8, 6), features, np.full((rows, 4), 0.5, np.float32), fields)


examples = st.integers(1, 3).flatmap(
    lambda count: st.lists(
        st.tuples(st.integers(0, 5), st.lists(st.integers(0, 5), min_size=count, max_size=count)),
        min_size=1,
        max_size=9,
    )
)


def items(rows: list[tuple[int, list[int]]], views: tuple[str, ...] = ()) -> list[Item]:
    pictures = {number: image(number) for number in range(6)}
    made = []
    for place, (words, shown) in enumerate(rows):
        clean = Sample(str(place), text(words), [pictures[number] for number in shown], {"label": words})
        made.append(Item({"clean": clean, **{name: clean.fork() for name in views}}, place))
    return made


@settings(max_examples=60, deadline=None)
@given(examples)
def test_rows_point_to_the_right_texts_and_images(rows: list[tuple[int, list[int]]]) -> None:
    batch = collate(items(rows))
    view = batch.clean
    assert len(view.text) == len({words for words, _ in rows})
    assert len(view.images) == len({number for _, shown in rows for number in shown})
    for place, (words, shown) in enumerate(rows):
        row = int(view.text_rows[place])
        expected = text(words)
        assert view.text.ids[row][view.text.mask[row]].tolist() == expected.ids
        assert view.text.special[row][view.text.mask[row]].tolist() == expected.special
        assert (view.text.keys[row], view.text.raw[row]) == (expected.key, expected.raw)
        assert [view.images.keys[row] for row in view.image_rows[place].tolist()] == [f"i{n}" for n in shown]
        for number, row in zip(shown, view.image_rows[place].tolist(), strict=True):
            regions = view.images.regions
            assert regions.mask[row].sum() == number % 4 + 1
            assert (regions.features[row][regions.mask[row]] == number).all()
            assert (regions.features[row][~regions.mask[row]] == 0).all()
            assert (regions.classes[row] == torch.where(regions.mask[row], number, -1)).all()
    own = all(int(r) == i for i, r in enumerate(view.text_rows)) and view.image_rows.tolist() == [
        [i] for i in range(len(rows))
    ]
    assert view.aligned == (own and len(view.text) == len(view.images) == len(rows))
    assert batch.targets["label"].tolist() == [words for words, _ in rows]


@settings(max_examples=60, deadline=None)
@given(examples)
def test_untouched_views_share_the_clean_objects(rows: list[tuple[int, list[int]]]) -> None:
    batch = collate(items(rows, ("corrupted",)))
    left, right = batch.clean, batch.views["corrupted"]
    for name in ("text", "images", "text_rows", "image_rows"):
        assert getattr(left, name) is getattr(right, name)
    moved = batch.to("cpu").map(torch.clone)
    assert moved.clean.text is moved.views["corrupted"].text
    assert moved.clean.text is not left.text


@given(examples, st.data())
@settings(max_examples=60, deadline=None)
def test_a_touched_side_has_a_row_for_each_example(rows: list[tuple[int, list[int]]], data: st.DataObject) -> None:
    made = items(rows, ("corrupted",))
    place = data.draw(st.integers(0, len(rows) - 1))
    sample = made[place].views["corrupted"]
    sample.text = replace(sample.text, ids=[2, 99, 3], special=[True, False, True], words=[-1, 0, -1])
    sample.mask_labels.text["labels"] = [-1, 7, -1]
    sample.mask_labels.example["matched"] = 0
    batch = collate(made)
    view = batch.views["corrupted"]
    assert view.images is batch.clean.images
    assert view.text_rows.tolist() == list(range(len(rows)))
    assert view.text.ids[place][view.text.mask[place]].tolist() == [2, 99, 3]
    assert view.mask_labels["labels"].shape == view.text.ids.shape
    assert view.mask_labels["labels"].max(1).values.tolist() == [7 if i == place else -1 for i in range(len(rows))]
    assert view.mask_labels["matched"].tolist() == [0 if i == place else -1 for i in range(len(rows))]
    others = [i for i in range(len(rows)) if i != place]
    assert [view.text.keys[i] for i in others] == [text(rows[i][0]).key for i in others]


def test_region_marks_lie_on_the_first_image() -> None:
    made = items([(0, [1, 2]), (1, [3, 3])], ("corrupted",))
    first = made[0].views["corrupted"]
    first.images[0] = replace(first.images[0], features=np.zeros((2, 3), np.float32))
    first.mask_labels.regions["hidden"] = np.array([True, False])
    batch = collate(made)
    view = batch.views["corrupted"]
    assert view.text is batch.clean.text
    assert view.image_rows.tolist() == [[0, 1], [2, 3]]
    assert view.mask_labels["hidden"].dtype == torch.bool
    assert view.mask_labels["hidden"].nonzero().tolist() == [[0, 0]]
    assert (view.images.regions.features[0] == 0).all()
    assert (view.images.regions.features[1][:3] == 2).all()
    assert (batch.clean.images.regions.features[0][:2] == 1).all()  # the clean view is as it was


def test_features_of_two_widths_are_no_batch() -> None:
    with pytest.raises(ValueError, match="broadcast"):
        collate([Item({"clean": Sample(str(dim), None, [image(1, dim)], {})}, 0) for dim in (3, 2)])


def test_aligned_views() -> None:
    distinct = [(0, [0]), (1, [1])]
    assert collate(items(distinct)).clean.aligned
    assert not collate(items([(0, [0]), (1, [0])])).clean.aligned
    made = items([(0, [0]), (1, [0])], ("corrupted",))
    for item in made:
        item.views["corrupted"].mask_labels.text["labels"] = [-1] * len(item.views["corrupted"].text.ids)
        item.views["corrupted"].mask_labels.regions["hidden"] = np.zeros(1, bool)
    assert collate(made).views["corrupted"].aligned


def test_text_alone_and_images_alone() -> None:
    words = collate([Item({"clean": Sample("a", text(1), [], {})}, 0)]).clean
    assert words.images is None
    assert words.image_rows.shape == (1, 0)
    pictures = collate([Item({"clean": Sample("a", None, [image(1)], {})}, 0)]).clean
    assert pictures.text is None
    assert pictures.text_rows.tolist() == [-1]


def test_padding_to_a_multiple() -> None:
    batch = collate(items([(0, [0])]), multiple=8)
    assert batch.clean.text.ids.shape == (1, 8)
    assert batch.clean.images.regions.features.shape == (1, 8, 3)


def test_pictures_of_different_sizes_are_padded_with_a_mask() -> None:
    samples = [ImageSample(str(n), (n, 4), pixels=np.ones((3, n, 4), np.float32)) for n in (2, 5)]
    made = [Item({"clean": Sample(s.key, None, [s], {})}, 0) for s in samples]
    pixels = collate(made).clean.images.pixels
    assert pixels.images.shape == (2, 3, 5, 4)
    assert pixels.mask.sum((1, 2)).tolist() == [8, 20]
    assert pixels.images.sum().item() == 3 * 28


def test_targets() -> None:
    found = collate_targets(
        [
            {"label": 1, "score": 0.5, "kind": "a", "box": np.ones(4), "ragged": np.ones(2), "part": 3},
            {"label": 0, "score": 1.5, "kind": "b", "box": np.zeros(4), "ragged": np.ones(3)},
        ]
    )
    assert found["label"].tolist() == [1, 0]
    assert found["score"].dtype == torch.float32
    assert found["kind"] == ["a", "b"]
    assert found["box"].shape == (2, 4)
    assert isinstance(found["ragged"], list)
    assert found["part"] == [3, None]
