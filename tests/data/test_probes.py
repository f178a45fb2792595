"""Readers of probes and of Arrow tables, on small files in the published formats; and the scores of probes."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vlcli.data.readers.arrow import HuggingFace, Parquet
from vlcli.data.readers.generic import JsonLines
from vlcli.data.readers.probes import POPE, VSR, SugarCrepe, Winoground
from vlcli.data.sample import Example
from vlcli.errors import DataError
from vlcli.metrics.classification import yes_no
from vlcli.metrics.rows import measured
from vlcli.nn import Batch
from vlcli.tasks.classification import Classification
from vlcli.tasks.probes import SugarCrepeTask, WinogroundTask


def lines(file, rows):
    file.write_text("\n".join(map(json.dumps, rows)))


def test_sugarcrepe_has_two_examples_an_item(tmp_path):
    rows = {"0": {"filename": "1.jpg", "caption": "a cat on a mat", "negative_caption": "a mat on a cat"}}
    (tmp_path / "swap_obj.json").write_text(json.dumps(rows))
    true, false = SugarCrepe(tmp_path, split="swap_obj").examples()
    assert (true.text, false.text) == ("a cat on a mat", "a mat on a cat")
    assert true.images == false.images == ["1"]
    assert true.targets == {"item": "swap_obj-0", "kind": "swap_obj", "part": 0}


def test_pope_asks_yes_or_no(tmp_path):
    row = {"question_id": 1, "image": "COCO_val2014_000000000009.jpg", "text": "Is there a dog?", "label": "yes"}
    lines(tmp_path / "coco_pope_random.json", [row, {**row, "question_id": 2, "label": "no"}])
    yes, no = POPE(tmp_path, split="random").examples()
    assert (yes.targets["label"], no.targets["label"]) == (1, 0)
    assert yes.targets["raw_answers"] == ["yes"]
    lines(tmp_path / "coco_pope_random.json", [{**row, "label": "maybe"}])
    with pytest.raises(DataError, match="unknown"):
        POPE(tmp_path, split="random").examples()


def test_vsr_keeps_the_relation(tmp_path):
    row = {"image": "9.jpg", "caption": "The cat is under the car.", "label": 0, "relation": "under"}
    lines(tmp_path / "dev.jsonl", [row])
    (example,) = VSR(tmp_path, split="dev").examples()
    assert example.targets == {"label": 0, "relation": "under"}
    lines(tmp_path / "dev.jsonl", [{**row, "label": 2}])
    with pytest.raises(DataError, match="neither 0 nor 1"):
        VSR(tmp_path, split="dev").examples()


def test_winoground_pairs_both_captions_with_both_pictures(tmp_path):
    row = {"id": 7, "image_0": "ex_7_img_0", "image_1": "ex_7_img_1", "caption_0": "a b", "caption_1": "b a"}
    lines(tmp_path / "examples.jsonl", [row])
    found = Winoground(tmp_path).examples()
    assert [(e.text, e.images[0]) for e in found] == [
        ("a b", "ex_7_img_0"),
        ("a b", "ex_7_img_1"),
        ("b a", "ex_7_img_0"),
        ("b a", "ex_7_img_1"),
    ]
    assert [e.targets["part"] for e in found] == [0, 1, 2, 3]


def rows(scores, kind="", item="1"):
    return [{"item": item, "part": part, "score": score, "kind": kind} for part, score in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "text", "image", "group"),
    [
        ((2, 1, 1, 2), 1, 1, 1),  # both captions know their pictures
        ((2, 2, 1, 3), 1, 0, 0),
        ((2, 1, 2, 3), 0, 1, 0),
        ((1, 1, 1, 1), 0, 0, 0),  # equal scores decide nothing
    ],
)
def test_winoground_scores(scores, text, image, group):
    found = WinogroundTask().score(rows(scores))
    assert (found["text"], found["image"], found["group"]) == (text, image, group)


def test_sugarcrepe_counts_by_kind_and_leaves_half_items_out():
    given = rows((2, 1), "swap_obj") + rows((1, 2), "add_att", "2") + rows((5,), "add_att", "3")
    found = SugarCrepeTask().score(given)
    assert found == {"accuracy": 0.5, "chance/accuracy": 0.5, "accuracy/add_att": 0.0, "accuracy/swap_obj": 1.0}


def invented(right, pictures=20):
    """Embeddings of captions and pictures of 2 items a picture, of which this share prefers the true caption."""
    draw = torch.Generator().manual_seed(0)
    image = torch.nn.functional.normalize(torch.randn(2 * pictures, 16, generator=draw), dim=-1)
    near, far = image, -image
    swapped = torch.arange(2 * pictures) >= round(right * 2 * pictures)
    true, false = torch.where(swapped[:, None], far, near), torch.where(swapped[:, None], near, far)
    text = torch.stack([true, false], 1).flatten(0, 1)  # (4 * pictures, 16)
    return {"contrast": {"text_embedding": text, "image_embedding": image.repeat_interleave(2, 0)}}


def batch_of(count, kind, parts=2):
    numbers = torch.arange(count * parts)
    items = [str(int(number) // parts) for number in numbers]
    targets = {"item": items, "part": numbers % parts, "kind": [kind] * len(items)}
    return Batch({}, targets, [f"{kind}-{number}" for number in numbers.tolist()], numbers)


@pytest.mark.parametrize("right", [0.0, 0.5, 1.0])
def test_invented_embeddings_have_their_known_score_with_an_interval_over_pictures(right):
    task, batch = SugarCrepeTask(objective="contrast"), batch_of(40, "swap_obj")
    rows = task.decode(invented(right), batch)
    metrics = task.score(rows)
    assert metrics["accuracy"] == metrics["accuracy/swap_obj"] == right
    assert sum("accuracy" in row for row in rows) == 40
    clusters = {key: str(place // 4) for place, key in enumerate(batch.keys)}
    for one in measured(metrics, rows, clusters):
        assert (one.count, one.images) == (40, 20)
        assert one.low <= right <= one.high
        assert one.high - one.low < 0.6


def test_swapped_labels_give_the_rest_of_one():
    task, batch = SugarCrepeTask(objective="contrast"), batch_of(40, "add_att")
    rows = task.decode(invented(0.7), batch)
    swapped = [{**row, "part": 1 - row["part"]} for row in rows]
    assert task.score(rows)["accuracy"] == pytest.approx(0.7)
    assert task.score(swapped)["accuracy"] == pytest.approx(0.3)


def test_rules_that_see_no_picture_stand_beside():
    task, texts = SugarCrepeTask(), ["a cat", "a black cat", "a dog", "a cow", "two cats", "a cat"]
    read = [Example(f"x-{place}", text, ["1"]) for place, text in enumerate(texts)]
    task.read(SimpleNamespace(data=SimpleNamespace(examples=read)))
    kinds = ("add_att", "replace_obj", "replace_obj")
    asked = [
        {"key": f"x-{place}", "item": str(place // 2), "part": place % 2, "kind": kinds[place // 2], "score": 0.0}
        for place in range(6)
    ]
    found = task.score(asked)
    assert found["shorter/accuracy"] == pytest.approx((1 + 0.5 + 0) / 3)
    assert (found["shorter/accuracy/add_att"], found["shorter/accuracy/replace_obj"]) == (1.0, 0.25)
    assert found["accuracy"] == 0.0  # equal scores of the model are wrong
    assert not any(name.startswith("likelier") for name in found)


@pytest.mark.parametrize("said", ["yes", None, float("nan")])
def test_a_prediction_that_is_no_score_is_told(said):
    with pytest.raises(DataError, match="is its score") as error:
        WinogroundTask().judge([{"prediction": said}], batch_of(1, "Object", 1))
    assert error.value.where == "Object-0"


def test_yes_and_no_have_popes_metrics():
    said, true = ["yes", "yes", "yes", "no", "no"], ["yes", "no", "no", "yes", "no"]
    assert yes_no(said, true) == pytest.approx({"precision": 1 / 3, "recall": 1 / 2, "f1": 0.4, "yes_ratio": 0.6})
    assert yes_no(["no"], ["no"]) == {"precision": 0.0, "recall": 0.0, "f1": 0.0, "yes_ratio": 0.0}
    assert yes_no(["true"], ["true"]) == {}


def test_relations_have_an_accuracy_each():
    rows = [
        {"prediction": word, "label": "true", "correct": word == "true", "relation": relation}
        for word, relation in (("true", "left of"), ("false", "left of"), ("true", "under"))
    ]
    found = Classification().score(rows)
    assert (found["accuracy/left of"], found["accuracy/under"]) == (0.5, 1.0)
    assert "f1" not in found


TABLE = pa.table({"image": ["a.png", "b.png"], "text": ["one", "two"], "label": ["x", "y"]})


def test_parquet_reads_as_json_lines_do(tmp_path):
    pq.write_table(TABLE, tmp_path / "train.parquet")
    lines(tmp_path / "train.jsonl", TABLE.to_pylist())
    assert Parquet(tmp_path).examples() == JsonLines(tmp_path).examples()


def test_folders_of_datasets_in_every_layout(tmp_path):
    (tmp_path / "hub/data").mkdir(parents=True)
    pq.write_table(TABLE, tmp_path / "hub/data/train-00000-of-00001.parquet")
    saved = tmp_path / "saved/train"
    saved.mkdir(parents=True)
    with (
        pa.OSFile(str(saved / "data-00000-of-00001.arrow"), "wb") as sink,
        pa.ipc.new_stream(sink, TABLE.schema) as out,
    ):
        out.write_table(TABLE)
    for folder in ("hub", "saved"):
        assert [e.text for e in HuggingFace(tmp_path, file=folder).examples()] == ["one", "two"]
    with pytest.raises(DataError, match="missing"):
        HuggingFace(tmp_path, file="saved", split="test").examples()


def test_pictures_inside_a_table_and_damaged_tables_are_told(tmp_path):
    inside = pa.table({"image": [{"bytes": b"png", "path": "a.png"}], "text": ["one"]})
    pq.write_table(inside, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="inside the table") as error:
        Parquet(tmp_path).examples()
    assert error.value.hint.endswith(f"vlcli data unpack {tmp_path / 'train.parquet'} --out FOLDER")
    (tmp_path / "train.parquet").write_bytes(b"PAR1 cut")
    with pytest.raises(DataError, match="cannot be read"):
        Parquet(tmp_path).examples()
