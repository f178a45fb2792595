"""An id that stands twice is refused with both places, whichever reader meets it."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vlcli import registry
from vlcli.data.checks import by_id
from vlcli.errors import DataError

IMAGES = [{"id": 7, "file_name": "a.jpg"}, {"id": 8, "file_name": "b.jpg"}]
BOX = {"image_id": 7, "category_id": 1, "bbox": [1, 1, 5, 5]}
KINDS = [{"id": 1, "name": "cat"}]


def dump(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")


def lines(path: Path, *rows: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def captions(root: Path, images: list[Any], notes: list[Any]) -> None:
    dump(root / "annotations/captions_train2014.json", {"images": images, "annotations": notes})


def instances(root: Path, images: list[Any], notes: list[Any], kinds: list[Any] = KINDS) -> None:
    content = {"images": images, "annotations": notes, "categories": kinds}
    dump(root / "annotations/instances_train2014.json", content)


def vqa(root: Path, asked: list[int], answered: list[tuple[int, str]]) -> None:
    questions = [
        {"question_id": key, "image_id": place, "question": f"what {place}?"} for place, key in enumerate(asked)
    ]
    notes = [{"question_id": key, "answers": [{"answer": word}] * 10} for key, word in answered]
    dump(root / "v2_OpenEnded_mscoco_train2014_questions.json", {"questions": questions})
    dump(root / "v2_mscoco_train2014_annotations.json", {"annotations": notes})


def refer(root: Path, **changed: list[Any]) -> None:
    size = {"height": 20, "width": 20}
    content = {
        "images": [{**row, **size} for row in IMAGES],
        "annotations": [{"id": 1, **BOX}, {"id": 2, **BOX, "bbox": [2, 2, 6, 6]}],
        "categories": KINDS,
    }
    dump(root / "refcoco+/instances.json", content | changed)
    sentences = [{"sent_id": key, "sent": "the cat"} for key in changed.get("said", [1, 2])]
    ref = {"split": "train", "image_id": 7, "ann_id": 1, "ref_id": 1, "sentences": sentences}
    dump(root / "refcoco+/refs.json", [ref])


def shard(root: Path, *names: str) -> None:
    with tarfile.open(root / "a.tar", "w") as archive:
        for place, name in enumerate(names):
            info, data = tarfile.TarInfo(name), f"words {place}".encode()
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def cub(root: Path, tables: dict[str, str]) -> None:
    usual = {"images": "1 a/1.jpg\n", "image_class_labels": "1 1\n", "train_test_split": "1 1\n", "classes": "1 a\n"}
    for name, text in (usual | tables).items():
        (root / f"{name}.txt").write_text(text)


CAPTION = {"id": 1, "image_id": 7, "caption": "one"}
STATEMENT = {"identifier": "train-1-0-0", "sentence": "a", "label": "True"}
PAIR = {"pairID": "1", "Flickr30K_ID": "1", "sentence2": "a", "gold_label": "neutral"}
IMAGE = {"filename": "a.jpg", "split": "train", "sentences": [{"raw": "one", "sentid": 1}]}
QUESTION = {"question_id": "1", "sent": "a?", "img_id": "n1"}
CASES: dict[str, tuple[str, Callable[[Path], None], dict[str, Any], tuple[str, ...]]] = {
    "captions: image": (
        "coco-captions",
        lambda root: captions(root, [*IMAGES, {"id": 7, "file_name": "c.jpg"}], [CAPTION]),
        {},
        ("id 7", "[0] and [2]"),
    ),
    "captions: caption": (
        "coco-captions",
        lambda root: captions(root, IMAGES, [CAPTION, {**CAPTION, "image_id": 8, "caption": "two"}]),
        {},
        ("'1'", "example 0", "example 1", "'two'"),
    ),
    "instances: image": (
        "coco-instances",
        lambda root: instances(root, [*IMAGES, {"id": 8, "file_name": "c.jpg"}], [{"id": 1, **BOX}]),
        {},
        ("id 8", "[1] and [2]"),
    ),
    "instances: file": (
        "coco-instances",
        lambda root: instances(root, [*IMAGES, {"id": 9, "file_name": "b.jpg"}], [{"id": 1, **BOX}]),
        {},
        ("file_name 'b'", "images 8 and 9"),
    ),
    "instances: box": (
        "coco-instances",
        lambda root: instances(root, IMAGES, [{"id": 1, **BOX}, {"id": 1, **BOX, "image_id": 8}]),
        {},
        ("id 1", "[0] and [1]"),
    ),
    "instances: category": (
        "coco-instances",
        lambda root: instances(root, IMAGES, [{"id": 1, **BOX}], [*KINDS, {"id": 1, "name": "dog"}]),
        {},
        ("categories", "[0] and [1]"),
    ),
    "vqa: annotation": (
        "vqa",
        lambda root: vqa(root, [1, 2], [(1, "cat"), (2, "cup"), (1, "dog")]),
        {},
        ("question_id 1", "[0] and [2]"),
    ),
    "vqa: question": ("vqa", lambda root: vqa(root, [1, 1], [(1, "cat")]), {}, ("'1'", "what 0?", "what 1?")),
    "gqa: object": (
        "gqa",
        lambda root: (root / "train_balanced_questions.json").write_text(
            '{"9": {"question": "a?", "imageId": "n1"},\n "9": {"question": "b?", "imageId": "n2"}}'
        ),
        {},
        ("twice", "'9'"),
    ),
    "gqa: list": (
        "gqa",
        lambda root: dump(root / "gqa/train.json", [QUESTION, {**QUESTION, "sent": "b?"}]),
        {},
        ("'1'", "a?", "b?"),
    ),
    "vg: region": (
        "vg-regions",
        lambda root: dump(
            root / "region_descriptions.json",
            [
                {"id": 1, "regions": [{"region_id": 5, "phrase": "a"}]},
                {"id": 2, "regions": [{"region_id": 5, "phrase": "b"}]},
            ],
        ),
        {},
        ("'5'", "example 0", "example 1"),
    ),
    "karpathy": (
        "karpathy",
        lambda root: dump(root / "dataset_x.json", {"images": [IMAGE, {**IMAGE, "filename": "b.jpg"}]}),
        {},
        ("'1'", "a", "b"),
    ),
    "nlvr2": (
        "nlvr2",
        lambda root: lines(root / "train.json", STATEMENT, {**STATEMENT, "sentence": "b"}),
        {},
        ("'train-1-0-0'", "'a'", "'b'"),
    ),
    "snli-ve": (
        "snli-ve",
        lambda root: lines(root / "snli_ve_train.jsonl", PAIR, {**PAIR, "sentence2": "b"}),
        {},
        ("'1'", "'a'", "'b'"),
    ),
    "refcoco: picture": (
        "refcoco",
        lambda root: refer(
            root, images=[{**IMAGES[0], "height": 9, "width": 9}, {**IMAGES[0], "height": 8, "width": 9}]
        ),
        {"refs": "refs.json"},
        ("id 7", "[0] and [1]"),
    ),
    "refcoco: box": (
        "refcoco",
        lambda root: refer(root, annotations=[{"id": 1, **BOX}, {"id": 1, **BOX, "bbox": [0, 0, 2, 2]}]),
        {"refs": "refs.json"},
        ("annotations", "id 1"),
    ),
    "refcoco: sentence": ("refcoco", lambda root: refer(root, said=[4, 4]), {"refs": "refs.json"}, ("'4'",)),
    "jsonl": (
        "jsonl",
        lambda root: lines(
            root / "train.jsonl", {"id": "x", "text": "a"}, {"id": "y", "text": "b"}, {"id": "x", "text": "c"}
        ),
        {},
        ("'x'", "train.jsonl:1", "train.jsonl:3", "id=''"),
    ),
    "csv": (
        "csv",
        lambda root: (root / "train.csv").write_text("id,text\n1,a\n\n1,b\n"),
        {},
        ("'1'", "train.csv:2", "train.csv:4"),
    ),
    "json": (
        "json",
        lambda root: dump(root / "train.json", [{"id": 1, "text": "a"}, {"id": "1", "text": "b"}]),
        {},
        ("'1'", "train.json[0]", "train.json[1]"),
    ),
    "webdataset": (
        "webdataset",
        lambda root: shard(root, "1.jpg", "1.txt", "2.jpg", "2.txt", "1.jpg", "1.txt"),
        {"shards": "a.tar"},
        ("'1'", "'words 1'", "'words 5'"),
    ),
    "cub": (
        "cub-200",
        lambda root: cub(root, {"images": "1 a/1.jpg\n1 a/2.jpg\n"}),
        {},
        ("number '1'", "a/1.jpg", "line 2"),
    ),
    "winoground": (
        "winoground",
        lambda root: lines(
            root / "examples.jsonl",
            *({"id": 1, "image_0": "a", "image_1": "b", "caption_0": word, "caption_1": "z"} for word in "xy"),
        ),
        {},
        ("'1-0'", "'x'", "'y'"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_double_id_is_refused_with_both_places(case: str, tmp_path: Path) -> None:
    name, write, options, words = CASES[case]
    write(tmp_path)
    reader = registry.build("datasets", {"name": name, **options}, tmp_path)
    with pytest.raises(DataError) as caught:
        reader.examples()
    told = f"{caught.value.what} {caught.value.where} {caught.value.got} {caught.value.hint}"
    assert all(word in told for word in words), told


def test_columns_on_the_disk_refuse_a_double_id_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLCLI_COLUMNS_MB", "0")
    lines(tmp_path / "train.jsonl", {"id": "x", "text": "a"}, {"id": "y", "text": "b"}, {"id": "x", "text": "c"})
    reader = registry.build("datasets", {"name": "jsonl"}, tmp_path)
    reader.cache = tmp_path / "columns"
    with pytest.raises(DataError, match=r"id 'x'") as caught:
        reader.examples()
    assert "train.jsonl:1" in str(caught.value.got)
    assert "train.jsonl:3" in str(caught.value.got)


def test_rows_are_numbered_where_no_column_is_an_id(tmp_path: Path) -> None:
    lines(tmp_path / "train.jsonl", {"id": "x", "text": "a"}, {"id": "x", "text": "c"})
    reader = registry.build("datasets", {"name": "jsonl", "id": ""}, tmp_path)
    assert [(one.key, one.text) for one in reader.examples()] == [("0", "a"), ("1", "c")]


def test_a_row_that_stands_twice_equal_in_all_counts_once(tmp_path: Path) -> None:
    captions(tmp_path, [*IMAGES, IMAGES[0]], [CAPTION])
    assert len(registry.build("datasets", {"name": "coco-captions"}, tmp_path).examples()) == 1
    instances(tmp_path, [*IMAGES, IMAGES[0]], [{"id": 1, **BOX}, {"id": 1, **BOX}, {**BOX}])
    reader = registry.build("datasets", {"name": "coco-instances"}, tmp_path)
    assert len(reader.boxes()["a"]) == 2
    assert by_id([{"id": 1}, {"id": 1}, {}], "id", "f", needed=False) == {1: {"id": 1}, ("row", 2): {}}
