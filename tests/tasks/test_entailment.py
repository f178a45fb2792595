"""SNLI-VE: every published layout of the data, labels without agreement, and the three-way task."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from vlcli import registry
from vlcli.data.readers.statements import LABELS, SNLIVE, UNSETTLED
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.errors import DataError
from vlcli.nn import Batch, View
from vlcli.progress import Silent
from vlcli.tasks.classification import Entailment

ROWS = [
    {"gold_label": "contradiction", "sentence2": "A dog sleeps.", "Flickr30K_ID": "1", "pairID": "1.jpg#0r1c"},
    {"gold_label": "-", "sentence2": "A dog runs.", "Flickr30K_ID": "1", "pairID": "1.jpg#0r1x"},
    {"gold_label": "entailment", "sentence2": "An animal, and a ball.", "Flickr30K_ID": "2", "pairID": "2.jpg#0r1e"},
]
LISTED = [(["1"], "A dog sleeps.", 0), (["2"], "An animal, and a ball.", 2)]


def write(root: Path, layout: str) -> None:
    """The same three pairs in one of the published layouts."""
    (root / "snli_ve").mkdir()
    if layout == "jsonl":
        more = {"annotator_labels": ["neutral"], "captionID": "1.jpg#0", "sentence1": "Something."}
        lines = "".join(json.dumps({**more, **row}) + "\n" for row in ROWS)
        (root / "snli_ve/snli_ve_dev.jsonl").write_text(lines)
    elif layout == "csv":
        with (root / "snli_ve/esnlive_dev.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["", "pairID", "Flickr30kID", "hypothesis", "gold_label", "explanation"])
            for place, row in enumerate(ROWS):
                cells = [row["pairID"], row["Flickr30K_ID"] + ".jpg", row["sentence2"], row["gold_label"]]
                writer.writerow([place, *cells, 'It is "so",\nin two lines.'])
    else:
        rows = [{"image": f"flickr/{r['Flickr30K_ID']}.jpg", "sentence": r["sentence2"]} for r in ROWS]
        rows = [{**row, "label": given["gold_label"]} for row, given in zip(rows, ROWS, strict=True)]
        (root / "snli_ve/ve_dev.json").write_text(json.dumps(rows))


@pytest.mark.parametrize("layout", ["jsonl", "csv", "list"])
def test_every_layout_says_the_same(tmp_path: Path, layout: str) -> None:
    write(tmp_path, layout)
    reader = SNLIVE(tmp_path, split="dev")
    assert [(e.images, e.text, e.targets["label"]) for e in reader.examples()] == LISTED
    assert dict(reader.left_out) == {UNSETTLED: 1}
    assert reader.label_names() == list(LABELS)
    if layout != "list":
        assert [e.key for e in reader.examples()] == ["1.jpg#0r1c", "2.jpg#0r1e"]


def test_the_published_dev_file(shared: Path) -> None:
    reader = SNLIVE(shared / "data/annotations/snli_ve", split="dev")
    examples = reader.examples()
    assert len(examples) == len({example.key for example in examples}) == 14_339
    assert Counter(LABELS[example.targets["label"]] for example in examples) == {
        "contradiction": 5643,
        "entailment": 5254,
        "neutral": 3442,
    }
    assert len({example.images[0] for example in examples}) == 1000
    assert not reader.left_out
    with (shared / "data/annotations/snli_ve/esnlive_dev.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [example.text for example in examples] == [row["hypothesis"].strip() for row in rows]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"gold_label": "maybe", "sentence2": "x", "Flickr30K_ID": "1"}', "none of the three"),
        ('{"gold_label": "neutral", "Flickr30K_ID": "1"}', "lacks its picture or its hypothesis"),
        ("a,b\n1,2\n", "lacks a column"),
        ("Flickr30kID,hypothesis,gold_label\n1,x\n", "does not fit the header"),
        ('["x"]', "lacks its picture"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "snli_ve_dev.jsonl").write_text(text)
    with pytest.raises(DataError, match=message):
        SNLIVE(tmp_path, split="dev").examples()


def test_shapes_are_read_with_their_kinds(tmp_path: Path) -> None:
    make_shapes(tmp_path, ShapesConfig(images=20, parts=("coco", "snli-ve"), entailments=12), Silent())
    reader = SNLIVE(tmp_path, split="dev")
    assert {example.targets["kind"] for example in reader.examples()} <= {"either", "plain"}
    assert {example.targets["label"] for example in reader.examples()} == {0, 1, 2}
    assert all(path.is_file() for path in reader.image_files().values())


def test_accuracy_by_label_and_the_file_of_answers(tmp_path: Path) -> None:
    task = registry.build("tasks", "snli-ve")
    assert isinstance(task, Entailment)
    assert task.objectives() == [{"name": "classification", "images": 1, "classes": 3}]
    rows = torch.arange(4)
    view = View(None, None, rows - rows - 1, rows[:, None])
    labels = torch.tensor([0, 1, 2, 2])
    batch = Batch({"clean": view}, {"label": labels, "kind": ["a", "a", "b", "b"]}, list("wxyz"), rows)
    logits = torch.eye(3)[[0, 2, 2, 1]] * 9
    found = task.decode({"classification": {"logits": logits}}, batch)
    assert [row["prediction"] for row in found] == ["contradiction", "entailment", "entailment", "neutral"]
    assert task.score(found) == {
        "accuracy": 0.5,
        "most_frequent": 0.5,
        "most_frequent/a": 0.5,
        "most_frequent/b": 1.0,
        "accuracy/contradiction": 1.0,
        "accuracy/neutral": 0.0,
        "accuracy/entailment": 0.5,
        "accuracy/a": 0.5,
        "accuracy/b": 0.5,
    }
    (file,) = task.submission(found, tmp_path)
    assert json.loads(file.read_text().splitlines()[1]) == {"pairID": "x", "label": "entailment"}
    unknown = Batch({"clean": view}, {}, list("wxyz"), rows)
    assert task.score(task.decode({"classification": {"logits": logits}}, unknown)) == {}
