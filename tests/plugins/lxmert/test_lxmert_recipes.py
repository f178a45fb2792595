"""LXMERT's recipes: what they say against the paper, and that every component takes what they set."""

from __future__ import annotations

import json

import packaged
import pytest
import torch
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.nn import DataSpec
from vlcli.recipe.load import about, load
from vlcli.recipe.schema import Evaluate, Finetune, Training
from vlcli.recipe.validate import uses
from vlcli.tools.counting import count

NAMES = packaged.recipes("lxmert")
COUNTS = {"pretrain": 228_051_752, "vqa": 213_930_297, "gqa": 211_952_178, "nlvr2": 210_303_746}


@pytest.mark.parametrize("name", NAMES)
def test_every_component_takes_what_the_recipe_sets(name):
    resolved = load(name)
    problems = [p for use in uses(resolved) for p in registry.check(use.kind, use.spec, use.key)]
    assert problems == []
    assert about(name) == resolved.recipe.about
    tuned = [stage for stage in resolved.stages.values() if isinstance(stage, Finetune)]
    assert all(stage.validation and stage.features for stage in tuned)


def test_the_published_hyperparameters():
    stages = load("lxmert").stages
    pretrain = stages["pretrain"]
    assert (pretrain.epochs, pretrain.batch_size, pretrain.clip, pretrain.schedule.warmup) == (20, 256, 1.0, 0.05)
    assert {part["name"]: part.get("from_epoch", 0) for part in pretrain.objectives}["image-qa"] == 10
    rates = {"vqa": 5e-5, "gqa": 1e-5, "nlvr2": 5e-5}
    for name, rate in rates.items():
        stage = stages[name]
        assert (stage.epochs, stage.batch_size, stage.clip, stage.schedule.warmup) == (4, 32, 5.0, 0.1)
        assert (stage.optimizer.name, stage.optimizer.lr, stage.optimizer.eps) == ("bert-adam", rate, 1e-6)
        assert stage.source == ["pretrain"]
    assert stages["vqa"].data[0]["split"] == ["train", "nominival"]
    assert stages["gqa"].data[0]["split"] == ["train", "valid"]


@pytest.mark.parametrize(
    ("name", "layers"),
    [("bert-1cross", (12, 0, 1)), ("bert-5cross", (12, 0, 5)), ("train-bert", (9, 5, 5)), ("train-scratch", (9, 5, 5))],
)
def test_rows_of_table_3(name, layers):
    resolved = load(f"lxmert/table3:{name}")
    with torch.device("meta"):
        model = registry.build("models", resolved.recipe.model, DataSpec())
    assert (len(model.language.layers), len(model.objects.layers), len(model.cross.layers)) == layers
    for task, size in (("vqa", 128), ("gqa", 128), ("nlvr2", 64)):
        stage = resolved.stages[task]
        assert (stage.epochs, stage.batch_size, stage.optimizer.lr) == (20, size, 1e-4)
        assert stage.source == (["google-bert/bert-base-uncased"] if "bert" in name else [])
    assert "pretrain" not in resolved.stages


def test_controls_of_table_2_see_one_modality():
    for name, only in (("language", "text"), ("image", "images")):
        stages = load(f"lxmert/table2:{name}-only").stages
        assert {stage.task["only"] for stage in stages.values() if isinstance(stage, Finetune)} == {only}


def test_parts_keep_their_own_table_rows():
    assert load("lxmert/parts:vqa").recipe.table.rows == {"VQA minival": "vqa-minival"}
    assert load("lxmert/parts:nlvr2").recipe.table.rows == {"NLVR2 dev": "nlvr2-dev", "NLVR2 test-P": "nlvr2-test"}
    assert not [s for s in load("lxmert/parts:pretrain").stages.values() if isinstance(s, Evaluate)]


def test_published_counts_without_any_data(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["count", "lxmert", "--json"])
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    assert found["backbone"] == 207_936_768
    assert {name: row["total"] for name, row in found["stages"].items()} == COUNTS
    assert {row["backbone"] for row in found["stages"].values()} == {207_936_768}


def test_butd_and_cross_rows_can_be_counted(tmp_path):
    for name in ("lxmert/table3:butd-lstm", "lxmert/table3:butd-bert"):
        found = count(load(name), "vqa", output=tmp_path)
        assert found["total"] > found["backbone"] > 10_000_000


TINY = sorted(
    name for name in registry.names("recipes") if name.startswith("tiny/lxmert") and not name.endswith("claims")
)


QUICK = ("tiny/lxmert-table3", "tiny/lxmert-table4")
"""The others are made of the same stages."""


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in TINY])
def test_tiny_recipes_are_deeply_valid(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["validate", name, "--deep"])
    assert ended.exit_code == 0, ended.output


def test_every_training_stage_names_its_epochs():
    for name in [*NAMES, *packaged.recipes("tiny/lxmert")]:
        stages = load(name).stages.values()
        assert all(stage.epochs or stage.steps for stage in stages if isinstance(stage, Training)), name
