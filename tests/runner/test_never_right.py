"""Answers and labels of the test part that no training example has are counted before a run."""

from __future__ import annotations

import json

import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli.cli import app

RECIPE = """
root: .
model: {{name: vlmo, image: pixels, image_size: 32, patch: 16, hidden: 16, heads: 2, layers: 2, fused_layers: 1}}
text: {{vocabulary: {{train: [{{name: jsonl, file: train.jsonl}}], size: 60}}}}
stages:
  tune: {{kind: finetune, task: {task}, data: {{name: jsonl, {column}, split: train}}, steps: 2,
         validation: {{name: jsonl, {column}, split: val}}}}
  last: {{kind: average, from: tune}}
  test: {{kind: evaluate, from: last, data: {{name: jsonl, {column}}}, split: test}}
"""
WORDS = {"train": ["cat", "dog", "dog", "cat"], "val": ["dog", "cat"], "test": ["fox", "cat", "fox", "owl", "dog"]}
LINE = "jsonl (test): 3 of 5 examples have an answer that the training does not know (fox 2, owl 1)"


def lay(root, words):
    (root / "images").mkdir()
    for part, column in words.items():
        rows = []
        for number, word in enumerate(column):
            Image.new("RGB", (32, 32), (number * 40, 0, 0)).save(root / f"images/{part}{number}.png")
            rows.append({"image": f"{part}{number}.png", "text": "what is it", "said": word})
        (root / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize(
    ("task", "column"),
    [("classification", "label: said"), ("{name: vqa, min_count: 1}", "answers: said")],
)
@pytest.mark.parametrize("words", [("validate", "--deep"), ("data", "stats")])
def test_they_are_counted(task, column, words, tmp_path, monkeypatch):
    lay(tmp_path, WORDS)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE.format(task=task, column=column))
    ended = CliRunner().invoke(app, [*words[:2], "r.yaml"] if words[0] == "data" else [words[0], "r.yaml", words[1]])
    assert ended.exit_code == 0, ended.output
    assert ended.output.count(LINE) == 1
    assert ended.output.count("never be right") == 1


@pytest.mark.parametrize("numbers", [{"train": [1, 2], "val": [2], "test": [2, 3, 1]}])
def test_labels_that_are_numbers_and_a_validation_part(numbers, tmp_path, monkeypatch):
    lay(tmp_path, {**numbers, "val": [4]})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE.format(task="classification", column="label: said"))
    told = CliRunner().invoke(app, ["data", "stats", "r.yaml"]).output
    assert "jsonl (test): 1 of 3 examples have an answer that the training does not know (3 1)" in told
    assert "jsonl (val): 1 of 1 examples have an answer that the training does not know (4 1)" in told


def test_nothing_is_said_where_all_are_known(tmp_path, monkeypatch):
    lay(tmp_path, {**WORDS, "test": ["dog", "cat"]})
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.yaml").write_text(RECIPE.format(task="classification", column="label: said"))
    assert "never be right" not in CliRunner().invoke(app, ["data", "stats", "r.yaml"]).output
    one_alone = CliRunner().invoke(app, ["data", "stats", "r.yaml", "--stage", "tune"])
    assert one_alone.exit_code == 0, one_alone.output


def test_init_says_it(tmp_path):
    words = ["red", "green"] * 20
    lay(tmp_path, {"train": words, "val": words[:10], "test": ["mauve", *words[:9]]})
    ended = CliRunner().invoke(app, ["init", str(tmp_path), "-o", str(tmp_path / "r.yaml"), "--label", "said"])
    assert ended.exit_code == 0, ended.output
    assert "note: jsonl (test): 1 of 10 examples have an answer" in ended.output
