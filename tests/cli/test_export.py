"""``vlcli export MODEL``: the formats give the model's numbers without vlcli; bad input in one message."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import tiny_models
import torch
from safetensors.torch import load_file
from studio import Studio, make_studio
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Studio:
    return make_studio(tmp_path_factory.mktemp("made"))


@pytest.fixture
def studio(made, tmp_path, monkeypatch) -> Studio:
    """A studio of the test's own, in its folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made.photos.parent, tmp_path, dirs_exist_ok=True)
    return Studio(tmp_path / "photos", tmp_path / "runs" / "small")


def export(*words):
    return CliRunner().invoke(app, ["export", *map(str, words)])


def test_safetensors_alone_hold_the_weights(studio, tmp_path):
    ended = export("small/vqa", "--format", "safetensors", "-o", tmp_path / "weights")
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.strip() == str(tmp_path / "weights")
    weights = load_file(tmp_path / "weights/model.safetensors")
    for name, value in vlcli.load(studio.run / "vqa").module.state_dict().items():
        assert torch.equal(weights[name], value)
    assert not (tmp_path / "weights/stage.json").exists()
    listed = CliRunner().invoke(app, ["runs", "--json"])
    states = {row["folder"]: row["state"] for row in json.loads(listed.stdout)["runs"]}
    assert states["runs/export"] == "done"


@pytest.fixture
def classifier(tmp_path):
    """A model of pixels, a picture, and what the model says of it."""
    folder = tiny_models.make(tmp_path / "deit", "deit").folder
    model, pixels = vlcli.load(folder).model, torch.rand(1, 3, 32, 32)
    with torch.no_grad():
        return folder, pixels, model(pixels)


def test_transformers_alone_gives_the_same_scores(classifier, tmp_path):
    from transformers import AutoModelForImageClassification

    folder, pixels, expected = classifier
    ended = export(folder, "--format", "hub", "license=mit", "-o", tmp_path / "hub", "--output", tmp_path / "runs")
    assert ended.exit_code == 0, ended.stderr
    assert "license: mit" in (tmp_path / "hub/README.md").read_text()
    network = AutoModelForImageClassification.from_pretrained(tmp_path / "hub").eval()
    with torch.no_grad():
        torch.testing.assert_close(network(pixels).logits, expected, atol=1e-5, rtol=0)
    assert vlcli.load(tmp_path / "hub").data_spec == vlcli.load(folder).data_spec


def test_onnxruntime_alone_gives_the_same_scores(classifier, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    folder, pixels, expected = classifier
    words = ("--format", "onnx", "-o", tmp_path / "graph", "--output", tmp_path / "runs", "--json")
    ended = export(folder, *words)
    assert ended.exit_code == 0, ended.stderr
    assert json.loads(ended.stdout)["exported"] == str(tmp_path / "graph")
    session = onnxruntime.InferenceSession(str(tmp_path / "graph/model.onnx"))
    (scores,) = session.run(None, {"pixels": pixels.numpy()})
    np.testing.assert_allclose(scores, expected.numpy(), atol=1e-5)


def unfinished(studio: Studio) -> str:
    folder = studio.run / "half"
    (folder / "checkpoints").mkdir(parents=True)
    stage_record.write(folder, StageRecord("half", "finetune", "running", "k", recipe="mine.yaml"))
    return "small/half"


def an_evaluation(studio: Studio) -> str:
    (studio.run / "test").mkdir()
    record = StageRecord("test", "evaluate", "done", "k", config={"from": ["vqa"]})
    stage_record.write(studio.run / "test", record)
    return "small/test"


BAD = [
    (unfinished, "onnx", 5, ["not finished", "vlcli run mine.yaml"]),
    (an_evaluation, "onnx", 5, ["no trained model here", "did you mean runs/small/vqa?"]),
    (lambda studio: "small", "onnx", 5, ["no trained model here", "runs/small/nlvr2 or"]),
    (lambda studio: studio.photos, "hub", 5, ["no trained model here"]),
    (lambda studio: "nowhere/vqa", "hub", 5, ["no such model"]),
    (lambda studio: "small/vqa", "onxx", 4, ["did you mean 'onnx'?"]),
]


@pytest.mark.parametrize(("model", "form", "code", "says"), BAD)
def test_what_cannot_be_exported(studio, tmp_path, model, form, code, says):
    ended = export(model(studio), "--format", form, "-o", tmp_path / "out")
    assert ended.exit_code == code
    for words in says:
        assert words in ended.stderr
    assert not (tmp_path / "out").exists()
    assert not (tmp_path / "runs/export").exists()


def test_a_folder_with_something_in_it_is_left_alone(studio, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    for place in (tmp_path / "full", tmp_path / "full/mine.txt"):
        ended = export("small/vqa", "--format", "safetensors", "-o", place)
        assert ended.exit_code == 2
        assert "not empty" in ended.stderr
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    "words", [("small/vqa",), ("--format", "hub"), ("small/vqa", "small/nlvr2", "--format", "hub")]
)
def test_a_model_and_a_format_belong_together(studio, words):
    ended = export(*words)
    assert ended.exit_code == 2
    assert "vlcli export MODEL" in ended.stderr
