"""Captioning from data to scores, and self-critical training that resumes as it was."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from small_run import context

import vlcli
from vlcli import registry
from vlcli.data.concepts import REFERENCES
from vlcli.data.readers.captions import Karpathy
from vlcli.errors import ComponentError, UsageError
from vlcli.features.schema import Record
from vlcli.features.writer import FeatureWriter
from vlcli.metrics.captions import Cider, DocumentFrequency, tokenize
from vlcli.metrics.captions.cider import END, CiderReward
from vlcli.metrics.captions.measure import measure, same_for_all
from vlcli.nn import DataSpec
from vlcli.objectives.scst import FILE
from vlcli.stages import evaluate
from vlcli.stages.training import run_training
from vlcli.tasks.captioning import Captioning, coco_number

LOOKS = [(colour, kind) for colour in ("red", "blue", "green") for kind in ("circle", "square", "star")]
FORMS = ("a {} {}", "there is a {} {} here", "one {} {}")
SIZES = {"hidden": 32, "heads": 4, "layers": 2, "concepts": 0, "dropout": 0.0, "init_std": 0.1}
MODEL = {"name": "dimbert", "appearance": "linear", **SIZES}
TEXT = {"vocabulary": {"train": [{"name": "karpathy"}], "size": 120}, "length": 10}


def make_world(root: Path) -> dict[str, Path]:
    """Pictures of one shape each, three captions a picture, and regions that show colour and kind."""
    rng = np.random.default_rng(0)
    rows = []
    with FeatureWriter(_folder(root / "regions") / "features.h5", provenance={}, dtype="float32") as writer:
        for number in range(54):
            colour, kind = LOOKS[number % 9]
            name = f"COCO_val2014_{number:012d}"
            feature = np.zeros(6, np.float32)
            feature[[("red", "blue", "green").index(colour), 3 + ("circle", "square", "star").index(kind)]] = 1
            features = np.stack([feature, np.zeros(6, np.float32)]) + 0.1 * rng.standard_normal((2, 6))
            boxes = np.array([[5, 5, 60, 60], [0, 0, 100, 100]], np.float32)
            writer.append(Record(name, features.astype(np.float32), boxes, (100, 100)))
            texts = [{"raw": form.format(colour, kind), "sentid": 3 * number + i} for i, form in enumerate(FORMS)]
            split = "test" if number >= 45 else "train"
            rows.append({"filename": f"{name}.jpg", "split": split, "sentences": texts})
        writer.finish()
    (_folder(root / "data") / "dataset_coco.json").write_text(json.dumps({"images": rows}))
    return {"data": root / "data", "regions": root / "regions"}


def _folder(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def stage(root: dict[str, Path], folder: Path, inputs: dict[str, Path], **config: Any) -> Any:
    return context(folder, root["data"], {"regions": root["regions"], **inputs}, features=["regions"], **config)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pictures' features and captions."""
    return make_world(tmp_path_factory.mktemp("captioning"))


@pytest.fixture(scope="module")
def world(data: dict[str, Path]) -> dict[str, Path]:
    """The data, and a model after cross-entropy."""
    pytest.importorskip("vlcli_dimbert")
    folder = data["data"].parent / "xe"
    run_training(cross_entropy(data, folder, epochs=40))
    return {**data, "xe": folder}


def cross_entropy(data: dict[str, Path], folder: Path, epochs: int) -> Any:
    torch.set_num_threads(1)
    common = {"kind": "finetune", "task": {"name": "captioning"}, "model": MODEL, "text": TEXT, "batch_size": 45}
    objectives = [{"name": "s2slm", "probability": 0.4, "limit": None}]
    optimizer = {"lr": 3e-3, "betas": [0.9, 0.98]}
    return stage(data, folder, {}, **common, objectives=objectives, optimizer=optimizer, epochs=epochs)


@pytest.mark.slow
def test_an_evaluation_leaves_scores_and_the_server_s_file(world: dict[str, Path], tmp_path: Path) -> None:
    result = evaluate.run(stage(world, tmp_path / "test", {"xe": world["xe"]}, kind="evaluate", **{"from": "xe"}))
    rows = [json.loads(line) for line in (tmp_path / "test/predictions.jsonl").read_text().splitlines()]
    assert len(rows) == 9  # once a picture, not once a caption
    assert sum(row["prediction"] in row[REFERENCES] for row in rows) >= 8  # of nine looks, which it never saw so
    assert {len(row[REFERENCES]) for row in rows} == {3}
    assert {"bleu_1", "bleu_4", "rouge_l", "cider_d", "cider", "words", "distinct"} <= set(result.metrics)
    assert result.metrics["cider_d"] == pytest.approx(np.mean([row["cider_d"] for row in rows]))
    sent = json.loads((tmp_path / "test/captions.json").read_text())
    assert sent == [{"image_id": row["image_id"], "caption": row["prediction"]} for row in rows]


@pytest.mark.slow
def test_a_test_split_without_captions_is_captioned(world: dict[str, Path], tmp_path: Path) -> None:
    names = [f"COCO_{split}2014_{number:012d}.jpg" for split, number in (("val", 3), ("val", 4), ("test", 9))]
    with FeatureWriter(_folder(tmp_path / "more") / "features.h5", provenance={}, dtype="float32") as writer:
        writer.append(Record(names[2][:-4], np.eye(2, 6, dtype=np.float32), np.array([[5, 5, 60, 60]] * 2), (100, 100)))
        writer.finish()
    captions = {"images": [{"id": i, "file_name": n} for i, n in enumerate(names[:2])]}
    captions["annotations"] = [{"id": i, "image_id": i, "caption": "a red circle"} for i in (0, 1)]
    _folder(world["data"] / "annotations")
    (world["data"] / "annotations/val.json").write_text(json.dumps(captions))
    info = {"images": [{"id": 9, "file_name": names[2]}]}
    (world["data"] / "annotations/info.json").write_text(json.dumps(info))
    files = [{"name": "coco-captions", "file": f"annotations/{name}.json"} for name in ("val", "info")]
    files[1]["captions"] = "none"
    inputs = {"regions": world["regions"], "more": tmp_path / "more", "xe": world["xe"]}
    asked = {"kind": "evaluate", "from": "xe", "data": files, "features": [*inputs][:2]}
    result = evaluate.run(context(tmp_path / "test", world["data"], inputs, **asked))
    assert result.metrics["pictures"] == 2
    with zipfile.ZipFile(tmp_path / "test/results.zip") as archive:
        sent = [json.loads(archive.read(f"captions_{s}2014_vlcli_results.json")) for s in ("val", "test")]
    assert [[row["image_id"] for row in rows] for rows in sent] == [[3, 4], [9]]
    assert all(row["caption"] for rows in sent for row in rows)


@pytest.mark.slow
def test_a_picture_alone_is_captioned(world: dict[str, Path]) -> None:
    model = vlcli.load(world["xe"], features=world["regions"])
    found = model.predict("COCO_val2014_000000000045")
    assert found["prediction"]
    alone = vlcli.load(world["xe"])
    with pytest.raises(UsageError, match="no store of them was given"):
        alone.predict("COCO_val2014_000000000045")


def scst(world: dict[str, Path], folder: Path, **more: Any) -> Any:
    task = {"name": "captioning", "train_on": "pictures"}
    options = {"kind": "finetune", "task": task, "model": MODEL, "from": "xe", "batch_size": 15, "clip": None}
    options |= {"optimizer": {"lr": 1e-3}, "schedule": {"name": "constant", "warmup": 0}, "log_every": 1}
    return stage(world, folder, {"xe": world["xe"]}, **(options | more))


@pytest.mark.slow
@pytest.mark.parametrize("baseline", [{}, {"baseline": "samples", "samples": 3}])
def test_a_resumed_run_is_the_same(world: dict[str, Path], tmp_path: Path, baseline: dict[str, Any]) -> None:
    objectives = [{"name": "scst", "max_length": 8, **baseline}]
    whole = run_training(scst(world, tmp_path / "whole", objectives=objectives, epochs=4))
    run_training(scst(world, tmp_path / "parts", objectives=objectives, epochs=2))
    run_training(scst(world, tmp_path / "parts", objectives=objectives, epochs=4))
    lines = [json.loads(line) for line in (tmp_path / "whole/log.jsonl").read_text().splitlines()]
    rewards = [line["scst/reward"] for line in lines]
    assert all(reward > 0 for reward in rewards)
    assert whole.metrics["train/scst/reward"] == pytest.approx(rewards[-1])
    assert (tmp_path / "whole" / FILE).is_file()
    first, second = (_weights(tmp_path / name) for name in ("whole", "parts"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_captions_rise_from_an_early_checkpoint(data: dict[str, Path], tmp_path: Path) -> None:
    early, later = tmp_path / "early", tmp_path / "later"
    run_training(cross_entropy(data, early, epochs=22))
    made = {**data, "xe": early}
    objectives = [{"name": "scst", "max_length": 8, "baseline": "samples", "samples": 8}]
    run_training(scst(made, later, objectives=objectives, epochs=40, batch_size=45))
    lines = [json.loads(line) for line in (later / "log.jsonl").read_text().splitlines()]
    rewards = [line["scst/reward"] for line in lines]
    assert np.mean(rewards[-8:]) > 1.5 * np.mean(rewards[:8])
    scores = [
        evaluate.run(stage(data, tmp_path / f"of-{of.name}", {of.name: of}, kind="evaluate", **{"from": of.name}))
        for of in (early, later)
    ]
    assert scores[1].metrics["cider_d"] > scores[0].metrics["cider_d"] + 0.5


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    from vlcli.engine.weights import read_tensors

    return read_tensors(folder / "model/model.safetensors")


def test_the_servers_pair_of_files(tmp_path: Path) -> None:
    keys = ["COCO_val2014_000000000042", "COCO_test2014_000000000007"]
    rows = [{"key": key, "image_id": coco_number(key), "prediction": f"a {key[-1]}"} for key in keys]
    files = Captioning(algorithm="ours").submission(rows, tmp_path)
    pair = ["captions_val2014_ours_results.json", "captions_test2014_ours_results.json"]
    assert [file.name for file in files] == ["captions.json", *pair, "results.zip"]
    assert json.loads((tmp_path / pair[0]).read_text()) == [{"image_id": 42, "caption": "a 2"}]
    with zipfile.ZipFile(tmp_path / "results.zip") as archive:
        assert archive.namelist() == pair
        assert json.loads(archive.read(pair[1])) == [{"image_id": 7, "caption": "a 7"}]
    assert [coco_number(key) for key in ("000000000139", "dev-0-0-img0", "b_12")] == [139, "dev-0-0-img0", "b_12"]
    with pytest.raises(ComponentError, match="for a file"):
        Captioning(algorithm="../x")


def test_examples_know_the_captions_of_their_pictures(data: dict[str, Path]) -> None:
    reader = Karpathy(data["data"], split="test")
    task = Captioning(train_on="captions")
    training, scored = task.arrange_training([reader])[0].examples(), task.arrange([reader])[0].examples()
    assert (len(training), len(scored)) == (27, 9)
    assert scored[0].targets[REFERENCES] == [scored[0].text, *scored[0].choices]
    assert {len(example.targets[REFERENCES]) for example in training} == {3}
    assert not training[0].choices
    assert len(Captioning(train_on="pictures").arrange_training([reader])[0].examples()) == 9


def test_a_reward_is_cider_d_with_the_end_as_a_word() -> None:
    references = [["a red circle", "one red circle here"], ["a blue star", "there is a blue star"]]
    ended = [[[*tokenize(text), END] for text in group] for group in references]
    frequency = DocumentFrequency.of(ended)
    reward = CiderReward(frequency)
    asked = reward.thread.submit(reward.score, ["a red circle", "a red"], [True, False], [references[0], references[0]])
    wanted = Cider(frequency).score([["a", "red", "circle", END], ["a", "red"]], [ended[0], ended[0]])
    assert asked.result() == wanted
    assert wanted[0] > reward.score(["a red circle"], [False], [references[0]])[0]  # breaking off costs


def test_what_is_said_of_every_picture() -> None:
    references = [["a cat", "a black cat"], ["a cat sits", "a cat"], ["two dogs run", "a dog"]]
    text, value = same_for_all(references)
    assert text in {"a cat", "a black cat", "a cat sits", "two dogs run", "a dog"}
    assert value == pytest.approx(measure([text] * 3, references, ["cider_d"]).metrics["cider_d"])


def test_self_critical_training_needs_captions() -> None:
    objective = registry.load("objectives", "scst")
    with pytest.raises(ComponentError, match="mean of other samples"):
        objective(SimpleNamespace(dim=4), DataSpec(), baseline="samples")
