"""DiMBERT's recipes of stories and referring expressions: what they say against the paper."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.recipe.load import about, load
from vlcli.recipe.schema import Training
from vlcli.recipe.validate import uses

NAMES = ("dimbert/vist", "dimbert/refcoco:gt", "dimbert/refcoco:detected")
TINY = ("tiny/dimbert-story", "tiny/dimbert-referring")


@pytest.mark.parametrize("name", [*NAMES, *TINY])
def test_every_component_takes_what_the_recipe_sets(name: str) -> None:
    resolved = load(name)
    problems = [p for use in uses(resolved) for p in registry.check(use.kind, use.spec, use.key)]
    assert problems == []
    assert about(name) == resolved.recipe.about
    assert all(stage.epochs or stage.steps for stage in resolved.stages.values() if isinstance(stage, Training))


def test_the_published_hyperparameters() -> None:
    vist = load("dimbert/vist").stages
    for name, rate in (("pretrain", 3e-4), ("further", 3e-4), ("story", 3e-5)):
        stage = vist[name]
        assert (stage.epochs, stage.batch_size, stage.optimizer.lr) == (30, 512, rate)
    assert vist["further"].model == {"images": 5}
    assert vist["further"].text.length == 122
    assert vist["pretrain"].text.length == 22
    assert (vist["mean"].last, vist["further"].keep) == (20, 20)
    assert [part.get("limit", 3) for part in vist["story"].objectives] == [None]
    for setting in ("gt", "detected"):
        stages = load(f"dimbert/refcoco:{setting}").stages
        refer = stages["refer"]
        assert (refer.epochs, refer.batch_size, refer.task["loss"], refer.task["overlap"]) == (20, 256, "bce", 0.5)
        assert {stages[name].data[0]["split"] for name in ("val", "testA", "testB")} == {"val", "testA", "testB"}
        assert stages["regions"].extractor["boxes"] == "given"


def test_the_detected_setting_trains_on_both_and_tests_on_detected() -> None:
    train, test = load("dimbert/refcoco:detected").stages["regions"].data
    assert (train["split"], train["candidates"]) == ("train", "both")
    assert (test["split"], test["candidates"]) == (["val", "testA", "testB"], "detected")
    assert "candidates" not in load("dimbert/refcoco:gt").stages["regions"].data[0]


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow) for name in TINY])
def test_tiny_recipes_are_deeply_valid(name: str, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["validate", name, "--deep"])
    assert ended.exit_code == 0, ended.output
