"""Caption lists of ALBEF, BLIP and LAVIS, and what Karpathy's files hold beside the chosen splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from vlcli import registry
from vlcli.data.readers.captions import Captions, Flickr, Karpathy
from vlcli.errors import DataError

BLIP = [
    {"image": "val2014/a.jpg", "caption": "a cat", "image_id": "coco_1"},
    {"image": "val2014/b.jpg", "caption": ["a dog", "a big dog"], "image_id": "coco_2"},
    {"image": "val2014/a.jpg", "caption": "a sleeping cat", "image_id": "coco_1"},
]


def write(root: Path, content: Any, name: str = "captions_train.json") -> Path:
    (root / name).write_text(json.dumps(content))
    return root


@pytest.mark.parametrize("field", ["caption", "captions", "said"])
def test_captions_are_a_sentence_or_a_list_and_rows_may_share_an_image(tmp_path: Path, field: str) -> None:
    rows = [{field if key == "caption" else key: given for key, given in row.items()} for row in BLIP]
    options = {"text": field} if field == "said" else {}
    examples = Captions(write(tmp_path, rows), **options).examples()
    wanted = [("a#0", "a cat"), ("a#1", "a sleeping cat"), ("b#0", "a dog"), ("b#1", "a big dog")]
    assert [(one.key, one.text) for one in examples] == wanted
    first = Captions(tmp_path, captions="first", **options).examples()
    assert [one.text for one in first] == ["a cat", "a dog"]


def test_the_field_of_the_image_may_have_another_name(tmp_path: Path) -> None:
    write(tmp_path, [{"file": "a.jpg", "caption": "a cat"}])
    assert Captions(tmp_path, image="file").examples()[0].images == ["a"]
    with pytest.raises(DataError, match="'image' is missing") as caught:
        Captions(tmp_path).examples()
    assert caught.value.where.endswith("captions_train.json[0]")


def test_a_caption_that_is_no_text_is_named_by_its_row(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no text") as caught:
        Captions(write(tmp_path, [*BLIP, {"image": "val2014/a.jpg", "caption": ["x", 4]}])).examples()
    assert caught.value.where.endswith("[3]")


def test_restval_is_counted_where_it_is_not_read(tmp_path: Path) -> None:
    splits = ["train", "restval", "restval", "val", "train"]
    images = [{"filename": f"{n}.jpg", "split": s, "sentences": [{"raw": "a"}]} for n, s in enumerate(splits)]
    write(tmp_path, {"images": images}, "dataset_coco.json")
    reader = Karpathy(tmp_path)
    assert len(reader.examples()) == 2
    assert [note for note in reader.notes() if "2 pictures of restval" in note and "[train,restval]" in note]
    for split in (["train", "restval"], "val"):
        other = registry.build("datasets", {"name": "karpathy", "split": split}, tmp_path)
        assert other.examples()
        assert other.notes() == []


def test_a_token_file_has_tabulators_and_in_other_languages_blanks(tmp_path: Path) -> None:
    lines = ["my #1 dog.jpg#0\ta dog #1 runs", "b.jpg#zhc#1 一只狗", "c.jpg#2\t two  cats "]
    (tmp_path / "some.token").write_text("\n".join(lines), encoding="utf-8")
    examples = Flickr(tmp_path, file="some.token").examples()
    wanted = [("my #1 dog#0", "a dog #1 runs"), ("b#1", "一只狗"), ("c#2", "two  cats")]
    assert [(one.key, one.text) for one in examples] == wanted
    (tmp_path / "other.token").write_text("a.jpg#0\t \n")
    with pytest.raises(DataError, match="holds no caption"):
        Flickr(tmp_path, file="other.token").examples()
