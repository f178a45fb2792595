"""``vlcli diff``: settings, versions, data and metrics of recipes and runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from run_folders import accuracies, answers, write_recipe, write_stage
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.tools.differences import flat


def diff(*words: object) -> Any:
    """Run the command in this process."""
    return CliRunner().invoke(app, ["diff", *map(str, words)])


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two runs that differ in a setting, a package, a data file and a score."""
    for name, lr, torch, right in (("a", 1e-3, "2.6", 60), ("b", 2e-3, "2.7", 75)):
        run = tmp_path / "runs" / name
        stages = {"tune": {"kind": "finetune", "optimizer": {"lr": lr}}, "test": {"kind": "evaluate", "from": "tune"}}
        if name == "b":
            stages["more"] = {"kind": "evaluate", "from": "tune"}
        write_recipe(run, about=name, seed=1, stages=stages)
        write_stage(run, "tune", "finetune", metrics={"train/loss": lr}, versions={"torch": torch, "vlcli": "1"})
        rows = answers(100, right)
        data = [{"path": f"/data/{name}/test.json", "size": 1, "mtime": 0, "digest": name * 64}]
        write_stage(run, "test", metrics=accuracies(rows), rows=rows, data=data, root=f"/data/{name}", versions={})
    return tmp_path / "runs"


def test_runs(runs: Path) -> None:
    """All that differs is told, and nothing that does not."""
    ended = diff(runs / "a", runs / "b")
    assert ended.exit_code == 0, ended.output
    for part in ("stages.tune.optimizer.lr", "2.6", "2.7", "test.json", "aaaaaaaaaaaa", "+0.150", "100"):
        assert part in ended.stdout
    assert "stages.more" in ended.stdout
    assert "seed" not in ended.stdout
    assert "about" not in ended.stdout


def test_json(runs: Path) -> None:
    """The same as one document, with paired intervals."""
    document = json.loads(diff("a", "b", "--output", runs, "--json").stdout)
    accuracy = next(row for row in document["metrics"]["test"] if row["name"] == "accuracy")
    assert accuracy["difference"] == pytest.approx(0.15)
    assert accuracy["count"] == 100
    assert accuracy["low"] > 0.05
    assert [row["key"] for row in document["versions"]] == ["torch"]


def test_same(runs: Path) -> None:
    """A run against itself has no difference."""
    assert "no difference" in diff(runs / "a", runs / "a").stdout


def test_stages_of_one_run(runs: Path) -> None:
    """Two stages are compared though their names differ."""
    ended = diff(runs / "a" / "test", runs / "b" / "test")
    assert "+0.150" in ended.stdout


def test_recipes(tmp_path: Path) -> None:
    """Recipes are compared after their parents: only what differs in the end."""
    (tmp_path / "mine.yaml").write_text("extends: tiny/lxmert\nseed: 7\n", encoding="utf-8")
    ended = diff("tiny/lxmert", tmp_path / "mine.yaml")
    assert ended.exit_code == 0, ended.output
    assert [line.split()[0] for line in ended.stdout.splitlines() if line] == ["settings", "seed"]


def test_recipe_and_run(runs: Path) -> None:
    """The settings of a recipe against those of a run."""
    assert "stages.test" in diff("tiny/lxmert", runs / "a").stdout


@pytest.mark.parametrize("words", [("a", "nowhere"), ("nowhere", "a")])
def test_absent(runs: Path, words: tuple[str, str]) -> None:
    """A run that is not there is one message with the next command."""
    ended = diff(*words, "--output", runs)
    assert ended.exit_code == 5
    assert "There is no such run." in ended.stderr
    assert "vlcli runs" in ended.stderr


def test_no_run(tmp_path: Path) -> None:
    """Any other folder is refused by name."""
    ended = diff(tmp_path, tmp_path)
    assert ended.exit_code == 5
    assert "This folder holds no run." in ended.stderr


def test_damaged(runs: Path) -> None:
    """A damaged recipe, record and prediction leave the rest to compare."""
    (runs / "b" / "recipe.yaml").write_text("a: [", encoding="utf-8")
    for file in ("stage.json", ".stage.json.copy"):
        (runs / "b" / "tune" / file).write_text("{", encoding="utf-8")
    with (runs / "b" / "test" / "predictions.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"key"\n')
    ended = diff(runs / "a", runs / "b")
    assert ended.exit_code == 0, ended.output
    assert "+0.150" in ended.stdout
    assert "cannot be read" in ended.stderr


def test_flat_lists() -> None:
    """Lists of components stand under their names; two of one name under their places; plain lists as they are."""
    assert flat({"a": [{"name": "x", "p": 1}, "y"]}) == {"a.x.p": 1, "a.y": {}}
    assert flat({"a": [{"name": "x"}, {"name": "x"}]}) == {"a.0.name": "x", "a.1.name": "x"}
    assert flat({"a": [1, 2], "b": {}}) == {"a": [1, 2], "b": {}}


def test_a_run_and_its_own_recipe_do_not_differ(runs: Path) -> None:
    """A recipe that publishes nothing has no key for it."""
    assert "published" not in diff(runs / "a", runs / "a/recipe.yaml").stdout
