"""Holding out by image: parts are disjoint and complete, and do not depend on the order of a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.data.holdout import select
from vlcli.data.leakage import held_out
from vlcli.data.readers.captions import Captions
from vlcli.data.readers.coco import CocoCaptions, CocoInstances
from vlcli.data.sample import Example
from vlcli.errors import DataError

examples = st.lists(
    st.lists(st.integers(0, 12).map(str), min_size=1, max_size=2, unique=True), min_size=1, max_size=30
).map(lambda rows: [Example(str(key), "s", images) for key, images in enumerate(rows)])
sizes = st.one_of(st.integers(0, 12).map(str), st.floats(0.01, 0.99).map(lambda share: f"{share:.3f}"))


def images_of(found: list[Example]) -> set[str]:
    return {name for example in found for name in example.images}


@settings(max_examples=50, deadline=None)
@given(examples, sizes, st.integers(0, 3))
def test_first_and_after_share_no_image_and_lose_nothing(rows: list[Example], size: str, seed: int) -> None:
    first = select(rows, f"first:{size}:{seed}", Path())
    after = select(rows, f"after:{size}:{seed}", Path())
    assert not images_of(first) & images_of(after)
    assert sorted([*first, *after], key=lambda e: int(e.key)) == rows


@settings(max_examples=50, deadline=None)
@given(examples, sizes, st.randoms(use_true_random=False))
def test_the_files_order_does_not_matter(rows: list[Example], size: str, random: object) -> None:
    mixed = list(rows)
    random.shuffle(mixed)
    assert images_of(select(mixed, f"first:{size}", Path())) == images_of(select(rows, f"first:{size}", Path()))


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, 500), min_size=5, max_size=60), st.integers(1, 4))
def test_counts_are_exact(ids: set[int], size: int) -> None:
    rows = [Example(f"{name}/{caption}", "s", [str(name)]) for name in ids for caption in range(3)]
    assert len(images_of(select(rows, f"first:{size}", Path()))) == size


@settings(max_examples=50, deadline=None)
@given(st.sets(st.integers(0, 500), min_size=1, max_size=60), st.data())
def test_shares_agree_between_files_with_other_images(ids: set[int], data: st.DataObject) -> None:
    fewer = data.draw(st.sets(st.sampled_from(sorted(ids))))
    rows = {name: Example(str(name), "s", [str(name)]) for name in ids}
    whole = images_of(select(list(rows.values()), "first:0.6", Path()))
    part = images_of(select([rows[name] for name in fewer], "first:0.6", Path()))
    assert part == whole & {str(name) for name in fewer}


def test_listed_images(tmp_path: Path) -> None:
    (tmp_path / "ids.txt").write_text("val2014/COCO_7.jpg 7\n\nb\n")
    rows = [Example(name, "s", [name]) for name in ("a", "b", "COCO_7")]
    assert images_of(select(rows, "in:ids.txt", tmp_path)) == {"b", "COCO_7"}
    assert images_of(select(rows, "not-in:ids.txt", tmp_path)) == {"a"}


def test_named_images() -> None:
    rows = [Example(name, "s", [name]) for name in ("train_1", "b/train_2", "test_train_3", "Train_4")]
    assert images_of(select(rows, "named:train_*", Path())) == {"train_1", "b/train_2"}
    assert images_of(select(rows, "not-named:train_* & named:t*", Path())) == {"test_train_3"}


def test_entries_of_a_list_that_name_no_file_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("/\n.\n..\na.jpg\n")
    assert images_of(select([Example(name, None, [name]) for name in "ab"], "in:train.txt", tmp_path)) == {"a"}


def test_lists_of_held_out_images(tmp_path: Path) -> None:
    (tmp_path / "ids.tsv").write_text("a\r\nb\n")
    (tmp_path / "coco.json").write_text('{"images": [{"file_name": "a.jpg"}, {"id": 42}]}')
    (tmp_path / "karpathy.json").write_text('{"images": [{"filename": "a.jpg", "cocoid": 42}]}')
    (tmp_path / "questions.json").write_text('{"questions": null}')
    assert list(held_out(tmp_path, ["ids.tsv", "coco.json", "questions.json"])) == ["a", "b", "000000000042"]
    with pytest.raises(DataError, match=r"'id' is missing"):
        held_out(tmp_path, ["karpathy.json"])
    (tmp_path / "ids.tsv").write_bytes(b"a\xe9\tb\n")
    with pytest.raises(DataError, match="not UTF-8 text"):
        held_out(tmp_path, ["ids.tsv"])


@pytest.mark.parametrize("take", ["last:3", "first:", "first:x", "first:-1", "in:", "first", "first:1:y", "named:"])
def test_unclear_parts_are_refused(take: str) -> None:
    with pytest.raises(DataError, match="not clear"):
        select([Example("a", "s", ["a"])], take, Path())


def test_real_photographs_can_be_held_out(shared: Path) -> None:
    def coco(take: str) -> CocoCaptions:
        return CocoCaptions(
            shared / "data", file="annotations/coco_subset/captions.json", images="images/coco", take=take
        )

    def flickr(take: str) -> Captions:
        return Captions(shared / "data", file="annotations/flickr8k/captions_1000.json", take=take)

    assert len(coco("first:301").image_files()) + len(flickr("first:860").image_files()) == 1161
    assert len(coco("after:301").image_files()) + len(flickr("after:860").image_files()) == 200
    assert not set(coco("first:301").image_files()) & set(coco("after:301").image_files())
    boxes = CocoInstances(shared / "data", file="annotations/coco_subset/instances.json", take="after:0.8")
    assert not set(boxes.image_files()) & set(coco("first:0.8").image_files())
