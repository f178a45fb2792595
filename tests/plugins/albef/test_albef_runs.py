"""From recipes: ALBEF pre-trained, then answers by generation, and text assignment before pairs of pictures."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app
from vlcli.engine.bundle import load_bundle

torch.set_num_threads(1)
RECIPE = """
root: world
model: {name: albef, hidden: 16, heads: 2, image_layers: 1, text_layers: 1, cross_layers: 1, image_size: 32,
        dropout: 0.0, cross_position: {name: ace-rpe, groups: 2}}
text: {vocabulary: {train: [{name: coco-captions}, {name: vqa}, {name: nlvr2}], size: 200}, length: 16}
stages:
  world:
    kind: make
    world: {name: shapes, images: 20, parts: [coco, vqa, nlvr2], nlvr2_train: 12, nlvr2_dev: 6, nlvr2_test: 6}
  pretrain:
    data: {name: coco-captions, split: train}
    objectives:
      - {name: distilled-mlm, ramp: 2}
      - {name: momentum-contrast, width: 8, queue: 32}
      - contrast-matching
    steps: 2
    batch_size: 8
  vqa:
    kind: finetune
    from: pretrain
    model: {decoder_layers: 1}
    data: [{name: vqa, split: [train, val]}]
    task: {name: generative-vqa, min_count: 1, candidates: 4}
    steps: 2
    batch_size: 8
  vqa-test: {kind: evaluate, from: vqa, split: val}
  vqa-said: {kind: evaluate, from: vqa, split: val, task: {name: generative-vqa, decoding: generate, max_length: 4}}
  assignment:
    kind: pretrain
    from: pretrain
    model: {images: 2}
    data: {name: coco-captions, split: train}
    objectives: [{name: text-assignment, width: 8}]
    steps: 2
    batch_size: 8
  nlvr2:
    kind: finetune
    from: assignment
    task: nlvr2
    objectives: [{name: distilled-classification, classes: 2, images: 2}]
    steps: 2
    batch_size: 6
  nlvr2-test: {kind: evaluate, from: nlvr2, split: test1}
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("albef")
    (folder / "small.yaml").write_text(RECIPE)
    ended = CliRunner().invoke(app, ["run", str(folder / "small.yaml"), "--output", str(folder / "runs")])
    assert ended.exit_code == 0, ended.output
    (found,) = (folder / "runs").glob("*small*")
    return found


def test_answers_are_ranked_and_said(run: Path) -> None:
    answers = load_bundle(run / "vqa").data_spec.answers
    for stage, ranked in (("vqa-test", True), ("vqa-said", False)):
        rows = [json.loads(line) for line in (run / stage / "predictions.jsonl").read_text().splitlines()]
        assert rows
        assert all(row["prediction"] in answers for row in rows) or not ranked
        assert {"question_id", "accuracy", "score"} <= set(rows[0])
        metrics = json.loads((run / stage / "metrics.json").read_text())
        assert metrics["accuracy"] == pytest.approx(sum(row["accuracy"] for row in rows) / len(rows))
        assert len(json.loads((run / stage / "vqa.json").read_text())) == len(rows)


def test_a_question_from_python(run: Path) -> None:
    model = vlcli.load(run / "vqa")
    picture = next((run / "world").rglob("*.png"))
    found = model.answers("how many circles are there", picture, best=3)
    assert len(found) == 3
    assert found[0][1] >= found[1][1] >= found[2][1]
    assert model.predict("how many circles are there", picture)["prediction"] == found[0][0]


def test_what_passed_from_stage_to_stage(run: Path) -> None:
    report = json.loads((run / "vqa" / "model" / "load_report.json").read_text())
    assert any(line.startswith("decoder:") for line in report["reshaped"])
    assert not [name for name in report["new"] if name.startswith("model.")]
    before, after = load_bundle(run / "pretrain").module, load_bundle(run / "assignment").module
    assert torch.equal(
        before.objectives["momentum-contrast"].image.weight, after.objectives["text-assignment"].image.weight
    )
    assert "accuracy" in json.loads((run / "nlvr2-test" / "metrics.json").read_text())
