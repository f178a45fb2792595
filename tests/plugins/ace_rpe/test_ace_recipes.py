"""ACE-RPE's recipes: published settings, rows of the tables, and that every component takes what they set."""

from __future__ import annotations

from pathlib import Path

import packaged
import pytest
import torch
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.nn import DataSpec
from vlcli.recipe.load import about, load
from vlcli.recipe.resolve import resolve
from vlcli.recipe.schema import Finetune, Training
from vlcli.recipe.validate import uses
from vlcli.tools.counting import count

NAMES = [name for name in packaged.recipes("ace-rpe") if "photos" not in name]
TINY = packaged.recipes("tiny/ace-rpe")
BASELINES = ("none", "ape", "rpe", "ape-rpe", "uniform", "ace")


@pytest.mark.parametrize("name", [*NAMES, *TINY])
def test_every_component_takes_what_the_recipe_sets(name: str) -> None:
    resolved = load(name)
    problems = [p for use in uses(resolved) for p in registry.check(use.kind, use.spec, use.key)]
    assert problems == []
    assert about(name) == resolved.recipe.about
    trained = [stage for stage in resolved.stages.values() if isinstance(stage, Training)]
    assert all(stage.epochs or stage.steps for stage in trained)


def test_the_published_settings() -> None:
    stages = load("ace-rpe").stages
    pretrain = stages["pretrain"]
    assert (pretrain.epochs, pretrain.batch_size, pretrain.optimizer.weight_decay) == (30, 512, 0.02)
    assert pretrain.schedule.name == "cosine"
    assert pretrain.optimizer.lr * pretrain.schedule.end == pytest.approx(1e-6)
    names = [part["name"] for part in pretrain.objectives]
    assert names == ["anchor-alignment", "contrast-matching", "distilled-mlm", "masked-image"]
    wanted = {
        "retrieval-coco": (5, 256, 1e-5),
        "retrieval-flickr": (10, 256, 1e-5),
        "snli-ve": (5, 256, 2e-5),
        "nlvr2": (10, 128, 2e-5),
        "vqa": (8, 256, 2e-5),
        "grounding": (5, 256, 1e-5),
    }
    for name, row in wanted.items():
        stage = stages[name]
        assert (stage.epochs, stage.batch_size, stage.optimizer.lr) == row
        assert stage.optimizer.lr * stage.schedule.end == pytest.approx(1e-6)
        assert stage.model["image_size"] == 384
        assert isinstance(stage, Finetune)
    assert (stages["assignment"].epochs, stages["assignment"].batch_size) == (1, 512)
    assert stages["retrieval-coco"].task["candidates"] == 256
    assert stages["retrieval-flickr"].task["candidates"] == 128


@pytest.mark.parametrize("row", BASELINES)
@pytest.mark.parametrize("way", ["table1", "table1-both"])
def test_rows_differ_in_positions_alone(row: str, way: str) -> None:
    resolved, ace = load(f"ace-rpe/{way}:{row}"), load("ace-rpe/table1:ace")
    assert resolved.stages["pretrain"] == ace.stages["pretrain"]
    given = {key: value for key, value in resolved.recipe.model.items() if "position" in key and value is not None}
    wanted = {
        "none": {},
        "ape": {"joint_text_position", "joint_image_position"},
        "rpe": {"joint_text_position", *(["joint_image_position"] if way == "table1-both" else [])},
        "ape-rpe": {"joint_text_position", "joint_image_position"},
    }
    assert set(given) == set(wanted.get(row, {"cross_position"}))
    assert ("shaw" in str(given.get("joint_image_position"))) == (way == "table1-both" and "rpe" in row.split("-"))
    assert resolved.recipe.model.get("bidirectional", False) == (way == "table1-both")
    assert ("assignment" in resolved.stages) == (way != "table1-both")  # two pictures in one chain: words alone ask


def test_rows_of_table_7_change_what_they_say() -> None:
    for name, key, value in (("lambda-3", "scale", 3.0), ("delta-0-1", "margin", 0.1)):
        stages = load(f"ace-rpe/table7:{name}").stages
        for stage in ("pretrain", "retrieval-coco", "retrieval-flickr", "grounding"):
            assert stages[stage].objectives[0][key] == value
    assert load("ace-rpe/table7:delta-0-1").recipe.model["cross_position"]["threshold"] == 0.1
    assert load("ace-rpe/table7:groups-16").recipe.model["cross_position"] == {"name": "ace-rpe", "groups": 16}


BUILT = (
    "ace-rpe",
    "ace-rpe/table3:albef",
    "ace-rpe/table1-both:anchor",
    "ace-rpe/finetune-only",
    "ace-rpe/table1:ape-rpe",
    "ace-rpe/table1:rpe",
    "ace-rpe/table1-both:rpe",
    "ace-rpe/table1-both:ape-rpe",
)


@pytest.mark.parametrize("name", [n if n in BUILT[:2] else pytest.param(n, marks=pytest.mark.slow) for n in BUILT])
def test_every_stage_s_model_can_be_built(name: str) -> None:
    resolved = load(name)
    done: set[str] = set()
    for stage in resolved.stages.values():
        if isinstance(stage, Training):
            spec = resolve(resolved.recipe, stage).model
            if str(spec) in done:
                continue
            done.add(str(spec))
            with torch.device("meta"):
                model = registry.build("models", spec, DataSpec())
            layers = 2 * 6 if (stage.model or {}).get("images") == 2 else 6
            assert len(model.cross.text) == layers
            assert len(model.image.layers) == (12 if name.endswith(("albef", "finetune-only")) else 6)


def test_the_encoding_s_own_parameters() -> None:
    """Groups times width, for every layer and for queries, keys and values; one table where it is shared."""
    found = {name: count(load(f"ace-rpe{name}"), "snli-ve")["total"] for name in ("", "/table1:none", "/table6:shared")}
    extra = {name: value - found["/table1:none"] for name, value in found.items()}
    assert extra == {"": 6 * 3 * 8 * 768, "/table1:none": 0, "/table6:shared": 8 * 768}


@pytest.mark.parametrize("name", [pytest.param("tiny/ace-rpe", marks=pytest.mark.slow), "tiny/ace-rpe-grounding"])
def test_small_recipes_are_deeply_valid(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every training stage takes one step on invented data, stored features in a grid."""
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["validate", name, "--deep"])
    assert ended.exit_code == 0, ended.output
