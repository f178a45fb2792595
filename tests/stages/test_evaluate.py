"""The evaluate and export stages and the Python interface, on a small model with random weights."""

from __future__ import annotations

import csv
import json
import re
from functools import reduce
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from small_run import DIM, PAIRS, SENTENCES, context, make_bundle, make_nlvr2, make_store

import vlcli
from vlcli.api import RegionFeatures
from vlcli.errors import ComponentError, DataError, RecipeError, UsageError, VlcliError
from vlcli.progress import Silent
from vlcli.stages import evaluate, export
from vlcli.tasks.base import Result

NLVR2 = [{"name": "classification", "classes": 2, "images": 2}]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> dict[str, Path]:
    """A fine-tuned NLVR2 model, its features and its data."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("run")
    make_store(root / "regions", make_nlvr2(root / "data"))
    make_bundle(root / "nlvr2", {"name": "nlvr2"}, NLVR2)
    return {"root": root / "data", "regions": root / "regions", "nlvr2": root / "nlvr2"}


def inputs(run: dict[str, Path]) -> dict[str, Path]:
    return {"nlvr2": run["nlvr2"], "regions": run["regions"]}


def test_evaluation_writes_metrics_predictions_and_submission(run, tmp_path):
    result = evaluate.run(context(tmp_path / "test", run["root"], inputs(run), kind="evaluate", **{"from": "nlvr2"}))
    rows = [json.loads(line) for line in (tmp_path / "test/predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * PAIRS
    right = [row["prediction"] == row["label"] for row in rows]
    assert result.metrics["accuracy"] == pytest.approx(np.mean(right))
    assert {"consistency", "accuracy/both", "accuracy/one"} <= set(result.metrics)
    assert json.loads((tmp_path / "test/metrics.json").read_text()) == result.metrics
    with (tmp_path / "test/nlvr2.csv").open() as file:
        sent = list(csv.reader(file))
    assert sent == [[row["key"], str(row["prediction"])] for row in rows]
    assert all((row["score"] > 0.5) == row["prediction"] for row in rows)


def test_predictions_do_not_depend_on_the_batch_size(run, tmp_path):
    found = []
    for size in (1, 5, 16):
        stage = context(
            tmp_path / f"test{size}", run["root"], inputs(run), kind="evaluate", batch_size=size, **{"from": "nlvr2"}
        )
        evaluate.run(stage)
        rows = (tmp_path / f"test{size}/predictions.jsonl").read_text().splitlines()
        found.append([json.loads(line)["score"] for line in rows])
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)
    np.testing.assert_allclose(found[0], found[2], atol=1e-5)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"from": []}, UsageError, "which model to take"),
        ({"from": "regions"}, DataError, "no trained model"),
        ({"from": "nlvr2", "split": "test9"}, DataError, "missing"),
        ({"from": "nlvr2", "task": "region-labels"}, RecipeError, "boxes"),
        ({"from": "nlvr2", "task": "nlvr3"}, ComponentError, "nlvr3"),
        ({"from": "nlvr2", "task": "vqa", "data": {"name": "nlvr2"}}, ComponentError, "answering"),
    ],
)
def test_what_a_user_gets_wrong_is_named(run, tmp_path, change, kind, words):
    if change.get("task") == "vqa":
        change = {**change, "split": "dev"}
    with pytest.raises(kind) as met:
        evaluate.run(context(tmp_path / "test", run["root"], inputs(run), kind="evaluate", **change))
    assert words in str(met.value)
    assert not (tmp_path / "test/metrics.json").exists()


def test_a_model_without_features_says_how_to_make_them(run, tmp_path):
    stage = context(tmp_path / "test", run["root"], {"nlvr2": run["nlvr2"]}, kind="evaluate", **{"from": "nlvr2"})
    with pytest.raises(DataError, match="region features") as met:
        evaluate.run(stage)
    assert "vlcli extract" in str(met.value)


def test_unlabelled_data_are_predicted_and_not_scored(run, tmp_path):
    lines = [json.loads(line) for line in (run["root"] / "nlvr2/dev.json").read_text().splitlines()]
    bare = [{key: row[key] for key in ("identifier", "sentence")} for row in lines]
    (tmp_path / "nlvr2").mkdir()
    (tmp_path / "nlvr2/test1.json").write_text("".join(json.dumps(row) + "\n" for row in bare))
    stage = context(tmp_path / "test", tmp_path, inputs(run), kind="evaluate", split="test1", **{"from": "nlvr2"})
    result = evaluate.run(stage)
    assert result.metrics == {}
    assert "nothing was scored" in result.notes[0]
    assert len((tmp_path / "test/nlvr2.csv").read_text().splitlines()) == 2 * PAIRS


def test_what_was_left_out_is_told_at_the_end(run, tmp_path):
    rows = (run["root"] / "nlvr2/dev.json").read_text().splitlines()
    gone = {**json.loads(rows[0]), "identifier": "dev-999-0-0"}
    (tmp_path / "nlvr2").mkdir()
    (tmp_path / "nlvr2/dev.json").write_text("\n".join([json.dumps(gone), *rows[1:]]) + "\n")
    heard: list[str] = []
    stage = context(
        tmp_path / "test", tmp_path, inputs(run), kind="evaluate", missing="drop", split="dev", **{"from": "nlvr2"}
    )
    stage.progress = SimpleNamespace(**{name: getattr(Silent(), name) for name in ("info", "debug", "task")})
    stage.progress.warn = heard.append
    result = evaluate.run(stage)
    assert any("left out 1 examples whose pictures are not there" in line for line in heard)
    assert set(result.notes) == set(heard)


def test_data_without_one_readable_picture_are_not_called_unlabelled():
    data = SimpleNamespace(unreadable={"4": "p4.png: the file is empty"}, total=1, notes=lambda: ["left out 1"])
    assert evaluate._notes(Result({}), data)[0] == "no example's picture can be read: nothing was scored"


@pytest.mark.parametrize(("dtype", "limit"), [("float32", 0.0), ("float16", 5e-3)])
def test_safetensors_load_back(run, tmp_path, dtype, limit):
    made = {"name": "safetensors", "dtype": dtype}
    result = export.run(
        context(tmp_path / "out", run["root"], inputs(run), kind="export", format=made, **{"from": "nlvr2"})
    )
    ours, theirs = (vlcli.load(place, features=run["regions"]) for place in (run["nlvr2"], tmp_path / "out"))
    difference = (ours.encode_text(SENTENCES).hidden - theirs.encode_text(SENTENCES).hidden).abs().max().item()
    assert difference <= limit
    assert result.files == {"model": "model"}


def test_a_backbone_can_be_exported_alone(run, tmp_path):
    made = {"name": "safetensors", "objectives": False}
    export.run(context(tmp_path / "out", run["root"], inputs(run), kind="export", format=made, **{"from": "nlvr2"}))
    loaded = vlcli.load(tmp_path / "out")
    assert not loaded.module.objectives
    assert loaded.task is None


@pytest.mark.slow
def test_onnx_agrees_at_every_size(run, tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    result = export.run(
        context(tmp_path / "out", run["root"], inputs(run), kind="export", format="onnx", **{"from": "nlvr2"})
    )
    assert result.metrics["max_difference"] < 1e-4
    signature = json.loads((tmp_path / "out/model.onnx.json").read_text())
    session = onnxruntime.InferenceSession(str(tmp_path / "out/model.onnx"), providers=["CPUExecutionProvider"])
    assert list(signature["inputs"]) == [item.name for item in session.get_inputs()]
    assert signature["pictures"] == 2

    model = vlcli.load(run["nlvr2"], features=run["regions"])
    names = ["dev-0-0-img0", "dev-0-0-img1"]
    batch = model._example(SENTENCES[0], names)
    view = batch.clean
    regions = view.images.regions
    given = {
        "ids": view.text.ids.numpy(),
        "text_mask": view.text.mask.numpy(),
        "features": regions.features[None].numpy(),
        "boxes": regions.boxes[None].numpy(),
        "region_mask": regions.mask[None].numpy(),
    }
    logits = session.run(["logits"], given)[0]
    chance = np.exp(logits[0, 1]) / np.exp(logits[0]).sum()
    assert model.predict(SENTENCES[0], names)["score"] == pytest.approx(chance, abs=1e-5)


@pytest.mark.slow
def test_int8_is_written_and_scored_beside_float(run, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    stage = context(
        tmp_path / "out",
        run["root"],
        inputs(run),
        kind="export",
        format={"name": "onnx", "int8": True},
        **{"from": "nlvr2"},
    )
    result = export.run(stage)
    small, whole = (tmp_path / "out" / name for name in ("model.int8.onnx", "model.onnx"))
    assert small.stat().st_size < whole.stat().st_size
    plain = context(tmp_path / "test", run["root"], inputs(run), kind="evaluate", **{"from": "nlvr2"})
    assert result.metrics["float/accuracy"] == evaluate.run(plain).metrics["accuracy"]
    lost = result.metrics["int8/accuracy"] - result.metrics["float/accuracy"]
    assert result.metrics["int8_difference/accuracy"] == pytest.approx(lost)
    assert any("int8: accuracy" in note for note in result.notes)


def test_onnx_that_differs_is_not_kept(run, tmp_path, monkeypatch):
    pytest.importorskip("onnxscript")
    from vlcli.export import onnx

    monkeypatch.setattr(onnx, "write", lambda graph, path, opset: path.write_bytes(b"x"))
    monkeypatch.setattr(onnx, "compare", lambda graph, path: 0.5)
    with pytest.raises(VlcliError, match="does not give the model's numbers"):
        export.run(
            context(tmp_path / "out", run["root"], inputs(run), kind="export", format="onnx", **{"from": "nlvr2"})
        )
    assert list((tmp_path / "out").iterdir()) == []


def test_onnx_that_is_fixed_to_one_size_says_so(run, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from vlcli.export import onnx

    def refuse(session, form, inputs):
        raise RuntimeError("Got invalid dimensions for input: text_mask\n index: 0 Got: 1 Expected: 3")

    monkeypatch.setattr(onnx, "run", refuse)
    monkeypatch.setattr("onnxruntime.InferenceSession", lambda *args, **options: None)
    monkeypatch.setattr(onnx, "write", lambda graph, path, opset: path.write_bytes(b"x"))
    with pytest.raises(VlcliError, match="other sizes than those") as met:
        export.run(
            context(tmp_path / "out", run["root"], inputs(run), kind="export", format="onnx", **{"from": "nlvr2"})
        )
    assert met.value.where == "1 examples, 5 word pieces, 3 regions or patches"
    assert "index: 0 Got: 1 Expected: 3" in met.value.got
    assert "tensor.shape[0]" in met.value.hint


def test_a_missing_extra_is_named_with_its_line(run, tmp_path, monkeypatch):
    monkeypatch.setattr("vlcli.export.onnx.Onnx.packages", ("onnx", "no_such_package_anywhere"))
    with pytest.raises(ComponentError, match="not installed") as met:
        export.run(
            context(tmp_path / "out", run["root"], inputs(run), kind="export", format="onnx", **{"from": "nlvr2"})
        )
    assert "pip install 'vlcli[onnx]'" in str(met.value)
    assert met.value.exit_code == 4


def test_the_documented_lines_run(run, tmp_path, monkeypatch):
    """Every block of docs/python.md, the quickstart's folders replaced by the small ones."""
    text = (Path(__file__).parents[2] / "docs/python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 9
    # tests/prediction answers about new pictures, test_state_names loads tensors, test_readme runs the recipe
    elsewhere = ("one.png", "theirs", "subprocess")
    blocks = [block for block in blocks if not any(word in block for word in elsewhere)]
    places = {"runs/quickstart/nlvr2": run["nlvr2"], "runs/quickstart/regions": run["regions"], "test1-0-0": "dev-0-0"}
    found = {}
    for block in blocks:
        assert len([line for line in block.splitlines() if line.strip()]) == 3
        exec(reduce(lambda code, name: code.replace(name, str(places[name])), places, block), found)
    assert found["words"].shape[0] == 1
    assert found["regions"].shape[0] == 1
    assert found["pair"].shape == (1, 16)
    assert found["looks"].sum(-1) == pytest.approx(np.ones(found["looks"].shape[:-1]), abs=1e-5)
    assert found["answer"] in (True, False)
    assert found["count"] > 0


def test_python_takes_lists_and_regions_of_ones_own(run):
    model = vlcli.load(run["nlvr2"], features=run["regions"] / "features.h5")
    same = model.encode_text([SENTENCES[0], SENTENCES[1], SENTENCES[0]]).hidden
    assert torch.equal(same[0], same[2])
    record = model.features.read("dev-0-0-img0")
    own = RegionFeatures(record.features, record.boxes / 100)
    torch.testing.assert_close(model.encode_image(own).hidden, model.encode_image("dev-0-0-img0.png").hidden)
    assert len(model.encode_image([own, "dev-0-0-img1"]).hidden) == 2
    assert model.tokens("a circle")[0] == "[CLS]"


def test_python_says_what_is_wrong(run):
    model = vlcli.load(run["nlvr2"])
    with pytest.raises(UsageError, match="region features"):
        model.encode_image("dev-0-0-img0")
    with pytest.raises(DataError, match="not the regions"):
        model.encode_image(RegionFeatures(np.zeros((2, DIM + 1)), np.zeros((2, 4))))
    with pytest.raises(DataError, match="no such model"):
        vlcli.load("nowhere")
