"""Decoding, scoring, submissions."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tiny_batches import SMALL, make_batch

from vlcli import registry
from vlcli.data.answers import AnswerList, best_answer
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, DataError
from vlcli.nn.batch import Batch, Images, Pixels, View
from vlcli.progress import Silent

torch.set_num_threads(1)  # two threads beside a busy neighbour are many times slower
LXMERT = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}


class Runner:
    """Batches from a list, predictions from a training module."""

    def __init__(self, module, batches):
        self.module, self.model, self.given = module.eval(), module.model, batches
        self.progress, self.data_spec, self.data = Silent(), module.model.data_spec, SimpleNamespace(readers=[])

    def batches(self):
        return iter(self.given)

    def rows(self, make):
        return [row for batch in self.given for row in make(batch)]

    def step(self, batch, record=None):
        return self.module.step(batch, record=record)

    def predict(self, step, only=None):
        with torch.no_grad():
            return self.module.predict(step)


def test_vqa_scores_by_the_official_rule_and_submits(tmp_path):
    task = registry.build("tasks", "vqa")
    task.attach(replace(SMALL, answers=("no", "red", "yes")))
    people = [["yes"] * 8 + ["no"] * 2, ["yes"] * 8 + ["no"] * 2, ["red"] * 2 + ["blue"] * 8]
    targets = {"question_id": [7, 8, 9], "raw_answers": people, "answer_type": ["yes/no", "yes/no", "other"]}
    batch = replace(make_batch(), targets=targets)
    logits = torch.tensor([[0.0, 0, 1], [1, 0, 0], [0, 1, 0]])
    rows = task.decode({"answering": {"logits": logits}}, batch)
    assert [row["prediction"] for row in rows] == ["yes", "no", "red"]
    found = task.score(rows)
    baselines = {name: found.pop(name) for name in list(found) if name.startswith("most_frequent")}
    assert found == pytest.approx({"accuracy": (1 + 0.6 + 0.6) / 3, "accuracy/yes/no": 0.8, "accuracy/other": 0.6})
    kinds = {"most_frequent/yes/no": 1.0, "most_frequent/other": 1.0}
    assert baselines == pytest.approx({"most_frequent": 2 / 3, **kinds})
    (file,) = task.submission(rows, tmp_path)
    assert json.loads(file.read_text())[0] == {"question_id": 7, "answer": "yes"}
    with pytest.raises(ComponentError, match="over 3 classes"):
        task.decode({"classification": {"logits": logits[:, :2]}}, batch)


def test_vqa_table_counts_the_best_answers():
    task = registry.build("tasks", {"name": "vqa", "min_count": 2})
    rows = [{"answers": {"yes": 1.0, "no": 0.3}}] * 2 + [{"answers": {"The cat": 0.9}}, {"answers": {"cat": 0.6}}, {}]
    reader = SimpleNamespace(root=Path("none"), examples=lambda: [SimpleNamespace(targets=row) for row in rows])
    assert task.labels([reader]) == ("cat", "yes")


@pytest.mark.parametrize("maker", ["vqa", "gqa", "image-qa"])
def test_two_spellings_of_an_answer_have_one_row_which_both_questions_find(maker):
    rows = [
        {"answer": "t-shirt", "answers": {"t shirt": 1.0}},
        {"answer": "T Shirt", "answers": {"t shirt": 0.9, "shirt": 0.3}},
        {"answer": "net", "answers": {"net": 1.0}},
    ]
    reader = SimpleNamespace(
        root=Path("none"), label="own", examples=lambda: [SimpleNamespace(targets=t) for t in rows]
    )
    if maker == "image-qa":
        table = registry.load("objectives", maker).labels({}, [reader])
    else:
        table = registry.build("tasks", {"name": maker, "min_count": 1}).labels([reader])
    assert table == ("net", "t shirt")
    assert all(AnswerList(table).find(best_answer(row)) is not None for row in rows)


def test_classification_reads_labels_by_word():
    task = registry.build("tasks", "classification")
    reader = SimpleNamespace(label_names=lambda: ["cat", "dog"], examples=list, label="a")
    assert task.labels([reader]) == ("cat", "dog")
    with pytest.raises(DataError, match="number their labels differently"):
        task.labels([reader, SimpleNamespace(label_names=lambda: ["dog"], examples=list, label="b")])
    numbered = [SimpleNamespace(targets={"label": label}) for label in (10, 2, 2, None)]
    assert task.labels([SimpleNamespace(label_names=list, examples=lambda: numbered)]) == ("2", "10")

    task.attach(replace(SMALL, answers=("cat", "dog")))
    task.words = ("dog", "horse")  # the evaluation data number otherwise
    batch = replace(make_batch(), targets={"label": torch.tensor([0, 1, 0])})
    rows = task.decode({"classification": {"logits": torch.tensor([[0.0, 1], [0, 1], [1, 0]])}}, batch)
    assert [(row["prediction"], row["label"], row["correct"]) for row in rows] == [
        ("dog", "dog", True),
        ("dog", "horse", False),
        ("cat", "dog", False),
    ]
    assert task.score(rows)["accuracy"] == pytest.approx(1 / 3)


def test_nlvr2_submission_is_what_the_server_reads(tmp_path):
    task = registry.build("tasks", "nlvr2")
    rows = [{"key": "test1-0-0-0", "prediction": True}, {"key": "test1-0-1-0", "prediction": False}]
    (file,) = task.submission(rows, tmp_path)
    with file.open() as content:
        assert list(csv.reader(content)) == [["test1-0-0-0", "True"], ["test1-0-1-0", "False"]]
    assert task.objectives() == [{"name": "classification", "classes": 2, "images": 2}]
    assert registry.build("tasks", {"name": "nlvr2", "only": "text"}).objectives()[0]["only"] == "text"


def squares(count: int, seed: int) -> Batch:
    """Pictures of red and blue, bright and dark squares on grey, three boxes each, the last padding in half of them."""
    rng = np.random.default_rng(seed)
    images = np.full((count, 3, 32, 32), 128.0, np.float32)
    boxes, classes = np.zeros((count, 3, 4), np.float32), rng.integers(0, 2, (count, 3))
    attributes, mask = rng.integers(0, 2, (count, 3)), np.ones((count, 3), bool)
    mask[::2, 2] = False
    for row in range(count):
        for place in range(3):
            left, top_ = place * 10 + 1, int(rng.integers(0, 20))
            boxes[row, place] = np.array([left, top_, left + 9, top_ + 10]) / 32
            colour = np.zeros(3, np.float32)
            colour[classes[row, place] * 2] = (255, 90)[attributes[row, place]]
            images[row, :, top_ : top_ + 10, left : left + 9] = colour[:, None, None]
    pixels = Pixels(
        torch.from_numpy(images),
        torch.full((count, 2), 32),
        boxes=torch.from_numpy(boxes),
        box_mask=torch.from_numpy(mask),
        classes=torch.from_numpy(classes).masked_fill(~torch.from_numpy(mask), -1),
        attributes=torch.from_numpy(attributes),
    )
    keys = [str(row) for row in range(count)]
    view = View(None, Images(keys, pixels=pixels), torch.full((count,), -1), torch.arange(count)[:, None])
    return Batch({"clean": view}, {}, keys, torch.arange(count))


def test_a_region_classifier_learns_class_and_attribute():
    torch.manual_seed(0)
    data_spec = replace(SMALL, region_classes=2, region_attributes=2)
    module = build_training_module({"name": "region-classifier", "image_size": [32, 32]}, ["region-labels"], data_spec)
    optimizer = torch.optim.AdamW(module.parameters(), 2e-3)
    for number in range(25):
        optimizer.zero_grad()
        module(squares(16, number)).total.backward()
        optimizer.step()
    held_out = squares(16, 1000)
    result = registry.build("tasks", "region-labels").evaluate(Runner(module, [held_out]))
    assert result.metrics["class_accuracy"] > 0.9
    assert result.metrics["attribute_accuracy"] > 0.9
    assert sum(row["class_boxes"] for row in result.predictions) == int(held_out.clean.images.pixels.box_mask.sum())
    assert len(result.predictions[0]["class"]) == 2


def test_padding_boxes_change_nothing():
    data_spec = replace(SMALL, region_classes=2, region_attributes=2)
    module = build_training_module(
        {"name": "region-classifier", "image_size": [32, 32]}, ["region-labels"], data_spec
    ).eval()
    batch = squares(2, 0)
    before = module.step(batch).image()
    assert before.hidden[0, 2].abs().sum() == 0
    batch.clean.images.pixels.boxes[0, 2] = 0.7
    torch.testing.assert_close(before.hidden, module.step(batch).image().hidden)


def test_boxes_without_labels_are_refused():
    module = build_training_module({"name": "region-classifier", "image_size": [32, 32]}, ["region-labels"], SMALL)
    batch = squares(1, 0)
    batch.clean.images.pixels.classes = None
    with pytest.raises(DataError, match="without labelled boxes"):
        module(batch)
