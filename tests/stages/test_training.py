from __future__ import annotations

import importlib.util
import json
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.engine.bundle import load_bundle, read_bundle, read_weights
from vlcli.engine.checkpoint import Position
from vlcli.engine.trackers import read_log
from vlcli.engine.trainer import Trainer
from vlcli.errors import DataError, RecipeError, UsageError
from vlcli.features import FeatureWriter, Record
from vlcli.objectives.mlm import MARK, MaskedLanguageModelling
from vlcli.progress import Silent
from vlcli.recipe.schema import Average, Evaluate, Export, Extract, Finetune, Pretrain, Recipe
from vlcli.runner.trial_step import trial_step
from vlcli.stages import average, evaluate, export, finetune, pretrain, training
from vlcli.stages.extract import build_extractor

torch.set_num_threads(1)

MODEL = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
CAPTIONS = {"name": "coco-captions", "split": "train"}
PAIRS = {"name": "nlvr2", "split": "train"}
HALF = {"name": "safetensors", "dtype": "float16"}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A shapes world and a store of invented features of its pictures."""
    root = tmp_path_factory.mktemp("world") / "shapes"
    config = ShapesConfig(images=30, nlvr2_train=24, nlvr2_dev=12, nlvr2_test=4, parts=("coco", "nlvr2"), captions=2)
    make_shapes(root, config, Silent())
    specs = [CAPTIONS, {**CAPTIONS, "split": "val"}, PAIRS, {**PAIRS, "split": "dev"}]
    readers = [registry.build("datasets", spec, root) for spec in specs]
    names = sorted({name for reader in readers for example in reader.examples() for name in example.images})
    draw, corners = np.random.default_rng(0), np.array([[1, 1, 20, 20], [5, 5, 60, 60]], np.float32)
    with FeatureWriter(root.parent / "features.h5") as writer:
        for name in names:
            record = Record(name, draw.random((2, 12), np.float32), corners, (112, 112))
            record.classes = record.attributes = np.arange(2, dtype=np.int32)
            record.class_scores = record.attribute_scores = np.ones(2, np.float32)
            writer.append(record)
    return root


def context(world, tmp_path, name, config, inputs=(), stages=None, model=MODEL):
    words = {"train": CAPTIONS, "size": 120}
    recipe = Recipe(model=model, text={"vocabulary": words, "length": 16}, stages=stages or {})
    (tmp_path / name).mkdir(exist_ok=True)
    made = {stage: tmp_path / stage for stage in inputs}
    kinds = dict.fromkeys(inputs, "pretrain")
    return StageContext(recipe, name, config, tmp_path / name, made, world, seed=2, device="cpu", kinds=kinds)


def pretraining(world, **given):
    store = [str(world.parent / "features.h5")]
    common = {"features": store, "data": CAPTIONS, "objectives": ["mlm", "matching"], "batch_size": 16, "threads": 1}
    return Pretrain(kind="pretrain", **{**common, **given})


def finetuning(world, **given):
    store = [str(world.parent / "features.h5")]
    common = {"features": store, "data": PAIRS, "task": "nlvr2", "batch_size": 12, "threads": 1, "epochs": 1}
    return Finetune(kind="finetune", **{**common, **given})


def test_stages_build_on_one_another(world, tmp_path):
    validation = {**CAPTIONS, "split": "val"}
    first = pretrain.run(context(world, tmp_path, "a", pretraining(world, epochs=2)))
    drawn = {"curve"} if importlib.util.find_spec("matplotlib") else set()
    assert set(first.files) >= {"model", "checkpoints", "metrics", "log"} | drawn
    assert all((tmp_path / "a" / file).exists() for file in first.files.values())
    again = pretraining(world, **{"from": "a"}, objectives=["mlm", "masked-object"], validation=validation)
    second = pretrain.run(context(world, tmp_path, "b", again, ["a"]))
    assert second.facts["load"]["left_over"] == ["objectives.matching.head.bias", "objectives.matching.head.weight"]
    assert second.metrics["loss"] > 0
    assert (
        read_bundle(tmp_path / "b").tokenizer.data_spec_fields()
        == read_bundle(tmp_path / "a").tokenizer.data_spec_fields()
    )
    average.run(context(world, tmp_path, "mean", Average(kind="average", **{"from": "a"}, last=2), ["a"]))
    tuned = finetuning(world, **{"from": "mean"}, validation={**PAIRS, "split": "dev"}, optimizer={"lr": 1e-5})
    third = finetune.run(context(world, tmp_path, "c", tuned, ["mean"]))
    assert 0 <= third.metrics["accuracy"] <= 1
    assert third.metrics["mean/accuracy"] <= third.metrics["accuracy"]  # the best one
    bundle = load_bundle(tmp_path / "c")
    assert bundle.task_spec == {"name": "nlvr2"}
    assert bundle.data_spec.region_dim == 12
    report = json.loads((tmp_path / "c" / "model" / "load_report.json").read_text())
    assert report["sources"] == [str(tmp_path / "mean")]
    assert read_log(tmp_path / "c" / "log.jsonl")[-1]["step"] == 2


class Told(Silent):
    def __init__(self):
        self.lines = []

    def info(self, message):
        self.lines.append(message)

    warn = info


def test_a_run_that_collapses_says_so_and_a_chosen_rate_is_named(world, tmp_path):
    dev, told = {**PAIRS, "split": "dev"}, Told()
    high = finetuning(world, validation=dev, optimizer={"lr": 0.5}, epochs=4)
    found = finetune.run(replace(context(world, tmp_path, "high", high), progress=told))
    (line,) = {line for line in told.lines if line.startswith("collapsed: ")}
    assert line.startswith("collapsed: one answer for 100% of the validation examples; likely cause: optimizer.lr 0.5")
    assert found.facts["collapsed"] == line.removeprefix("collapsed: ")
    assert line in found.notes
    assert found.metrics["one_answer"] == 1.0
    chosen = finetuning(world, validation=dev, stop={"patience": 1}, epochs=9)
    found = finetune.run(replace(context(world, tmp_path, "chosen", chosen), progress=told))
    assert found.facts["learning_rate"] in told.lines
    assert found.facts["learning_rate"].endswith("(width 16, 2 post-norm layers, batch 12), warm-up 4 steps")
    assert f"stopped: {found.facts['stopped']}" in told.lines
    assert found.facts["stopped"].startswith(f"step {found.facts['steps']} of 18, no better validation since step")


def test_sentences_alone_need_no_pictures(world, tmp_path, monkeypatch):
    """Words guessed from words: examples of one picture and of two share a stage, and no feature is read."""
    monkeypatch.setattr("vlcli.data.inputs.fill_regions", None)
    monkeypatch.setattr("vlcli.data.inputs.RegionTable", None)
    words = [{"name": "mlm", "on": "text"}]
    stage = pretraining(world, data=[CAPTIONS, PAIRS], objectives=words, epochs=1, validation=PAIRS)
    found = pretrain.run(context(world, tmp_path, "a", stage))
    assert 0 < found.metrics["loss"] < 10
    stage = pretraining(world, data=[CAPTIONS, PAIRS], objectives=[*words, "matching"])
    with pytest.raises(DataError, match="different numbers of images"):
        pretrain.run(context(world, tmp_path, "b", stage))


def test_an_average_is_the_mean_of_the_checkpoints(world, tmp_path):
    pretrain.run(context(world, tmp_path, "a", pretraining(world, steps=4, save_every=1, keep=3)))
    result = average.run(context(world, tmp_path, "mean", Average(kind="average", **{"from": "a"}), ["a"]))
    assert result.facts["steps"] == [2, 3, 4]
    from safetensors.torch import load_file

    files = sorted((tmp_path / "a" / "checkpoints").glob("step-*/model.safetensors"))
    name = "objectives.matching.head.weight"
    wanted = torch.stack([load_file(file)[name].double() for file in files]).mean(0).float()
    assert torch.equal(read_weights(tmp_path / "mean" / "model")[name], wanted)


def test_no_stage_takes_weights_that_changed(world, tmp_path):
    """One byte, the size as before: training, averages' models, exports and features refuse it."""
    pretrain.run(context(world, tmp_path, "a", pretraining(world, steps=2, save_every=1)))
    average.run(context(world, tmp_path, "mean", Average(kind="average", **{"from": "a"}), ["a"]))
    export.run(context(world, tmp_path, "half", Export(kind="export", format=HALF, **{"from": "mean"}), ["mean"]))
    for place in ("a", "mean", "half"):
        file = tmp_path / place / "model/model.safetensors"
        assert load_bundle(tmp_path / place).module is not None
        data = bytearray(file.read_bytes())
        data[-3] ^= 8
        file.write_bytes(data)
        for source in (place, str(file)):
            tuned = finetuning(world, **{"from": source})
            with pytest.raises(DataError, match="not those that were written"):
                finetune.run(context(world, tmp_path, "c", tuned, [place] if source == place else []))
        again = Export(kind="export", format=HALF, **{"from": place})
        with pytest.raises(DataError, match="not those that were written"):
            export.run(context(world, tmp_path, "d", again, [place]))
        eyes = Extract(kind="extract", extractor="backbone", data=CAPTIONS, **{"from": place})
        with pytest.raises(DataError, match="not those that were written"):
            build_extractor(context(world, tmp_path, "e", eyes, [place]))


def test_an_average_does_not_hang_on_the_machine_s_speed(world, tmp_path, monkeypatch):
    monkeypatch.setattr("vlcli.engine.guard.SAVE_SECONDS", -1.0)  # as if every step took long
    pretrain.run(context(world, tmp_path, "a", pretraining(world, epochs=3, keep=3)))
    result = average.run(context(world, tmp_path, "mean", Average(kind="average", **{"from": "a"}), ["a"]))
    assert result.facts["steps"] == [3, 6, 9]  # the ends of epochs
    assert len(list((tmp_path / "a" / "checkpoints").glob("step-*"))) == 4  # and the one before the last


def test_a_stage_may_change_the_model_and_start_from_a_file(world, tmp_path):
    pretrain.run(context(world, tmp_path, "a", pretraining(world, steps=1)))
    bundle = load_bundle(tmp_path / "a")
    torch.save({"model": bundle.model.state_dict()}, tmp_path / "w.pth")
    changed = pretraining(world, **{"from": str(tmp_path / "w.pth")}, model={"cross_layers": 2}, steps=1)
    with pytest.raises(DataError, match="are not in what it starts from"):
        pretrain.run(context(world, tmp_path, "b", changed))
    allowed = changed.model_copy(update={"allow_unmatched": ["cross"]})
    result = pretrain.run(context(world, tmp_path, "b", allowed))
    assert result.facts["load"]["allowed"]
    assert load_bundle(tmp_path / "b").model_spec["cross_layers"] == 2


def test_a_rehearsal_passes_what_will_run_and_needs_no_inputs(world, tmp_path):
    first, tuned = pretraining(world), finetuning(world, **{"from": "a"})
    stages = {"a": first, "c": tuned}
    assert trial_step(context(world, tmp_path, "a", first, stages=stages)) == []
    assert trial_step(context(world, tmp_path, "c", tuned, stages=stages)) == []
    assert trial_step(context(tmp_path / "absent", tmp_path, "a", first, stages=stages)) == []


def test_a_rehearsal_of_a_large_model_takes_no_memory(world, tmp_path):
    assert trial_step(context(world, tmp_path, "a", pretraining(world), model={"name": "lxmert"})) == []


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"objectives": [{"name": "mlm", "probabilty": 0.1}]}, "probabilty"),
        ({"objectives": ["mlm", "region-labels"]}, "needs a model that can: boxes"),
        ({"objectives": None}, "nothing is named"),
        ({"frozen": ["."]}, "nothing is left to train"),
        ({"optimizer": {"groups": [{"match": "nowhere"}]}}, "matches no parameter"),
        ({"model": {"heads": 3}}, "16"),
    ],
)
def test_a_rehearsal_finds_what_would_fail(world, tmp_path, given, text):
    problems = trial_step(context(world, tmp_path, "a", pretraining(world, **given)))
    assert problems
    assert all(problem.key.startswith("stages.a") for problem in problems)
    assert text in "\n".join(map(str, problems))


def test_what_is_missing_is_told(world, tmp_path):
    with pytest.raises(DataError, match="no store"):
        pretrain.run(context(world, tmp_path, "a", pretraining(world, features=[])))
    empty = pretraining(world, data=[], objectives=None)
    with pytest.raises(RecipeError, match="3 problems"):
        pretrain.run(context(world, tmp_path, "a", empty, model=None))
    with pytest.raises(RecipeError, match="1 problem"):
        finetune.run(context(world, tmp_path, "a", finetuning(world, task=None)))
    with pytest.raises(UsageError, match="needs one source stage"):
        average.run(context(world, tmp_path, "a", Average(kind="average")))
    with pytest.raises(DataError, match="no checkpoints"):
        average.run(context(world, tmp_path, "m", Average(kind="average", **{"from": "a"}), ["a"]))
    with pytest.raises(DataError, match="no weights here"):
        pretrain.run(context(world, tmp_path, "b", pretraining(world, **{"from": "a"}), ["a"]))
    assert not (tmp_path / "b" / "model").exists()


def test_masked_words_are_scored_by_sentence(world, tmp_path, monkeypatch):
    """As counted by hand, place by place, and the same in batches of any size."""
    found = {}

    def by_hand(objective, step):
        made = plain(objective, step)
        view = step.view(objective.view)
        hidden = step.fused(objective.view, rows="text").text.hidden
        for row, key in enumerate(step.batch.keys):
            labels = view.mask_labels[MARK][view.text_rows[row]]
            guessed = objective.head(hidden[row], step.model.word_table().weight).argmax(-1)
            asked = [place for place in range(len(labels)) if labels[place] >= 0]
            right = sum(int(guessed[place] == labels[place]) for place in asked)
            assert (made["right"][row], made["hidden"][row]) == (right, len(asked))
            if asked:
                found[key] = right / len(asked)
        return made

    plain = MaskedLanguageModelling.predict
    pretrain.run(context(world, tmp_path, "a", pretraining(world, epochs=1, objectives=["mlm"])))
    monkeypatch.setattr(MaskedLanguageModelling, "predict", by_hand)
    common = {"from": "a", "task": "masked-words", "features": [str(world.parent / "features.h5")]}
    scores = []
    for size in (3, 16):
        stage = Evaluate(kind="evaluate", **common, data=CAPTIONS, batch_size=size, threads=1)
        scores.append(evaluate.run(context(world, tmp_path, f"test{size}", stage, ["a"])).metrics)
    assert scores[0] == scores[1]
    assert scores[0]["accuracy"] == pytest.approx(sum(found.values()) / len(found))


def test_lost_best_weights_are_scored_without_the_other_processes(monkeypatch):
    """They wait for rank 0 while it writes the model, and would never come to a common evaluation."""
    monkeypatch.setattr(training, "JointEvaluation", None)
    monkeypatch.setattr(training, "mean_losses", lambda module, runner, **_: {"loss": runner.share.count})
    parts = SimpleNamespace(module=None, validation=None, task=None)
    validation = training.Validation(parts, SimpleNamespace(batch_size=1, workers=0), 0, Silent(), joint=True)
    at = SimpleNamespace(evaluate=validation, accelerator=SimpleNamespace(autocast=nullcontext), position=Position())
    assert Trainer._score(at, alone=True).value == -1
