"""Recipes that ``init`` writes, run as they are or in small: each ends in its table."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vlcli.cli import app

from .test_starter import init, photographs, rooms, scenes, table

__all__ = ["rooms", "scenes"]
pytestmark = pytest.mark.slow


@pytest.mark.parametrize("goal", ["referring", "captioning"])
def test_recipes_of_regions_learn_more_than_what_stands_beside(scenes, tmp_path, goal):
    """The recipes as they are written, of 200 drawn scenes with labelled boxes."""
    shutil.copytree(scenes, tmp_path / "scenes")
    words = [f"init scenes --task {goal}", "validate recipe.yaml --deep", "run recipe.yaml jobs=1 --json"]
    place: dict[str, Any] = {"cwd": tmp_path, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    for line in words:
        command = [sys.executable, "-m", "vlcli", *line.split()]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, **place)
        assert ended.returncode == 0, ended.stdout[-1000:] + ended.stderr[-2000:]
    document = json.loads(ended.stdout)
    metrics = {stage["stage"]: stage["metrics"] for stage in document["stages"] if stage["kind"] == "evaluate"}
    if goal == "referring":
        assert metrics["test"]["chance/accuracy"] == pytest.approx(1 / 3)
        assert metrics["test"]["accuracy"] > 0.6
    else:
        assert metrics["test"]["cider_d"] > 1.5 * metrics["test"]["baseline/cider_d"]
        assert metrics["test"]["cider_d"] > metrics["nearest"]["cider_d"]


def run_small(folder: Path) -> Any:
    small = ["model.hidden=8", "model.convolutions=[8]", "model.image_size=24", "stages.classify.epochs=1"]
    before = Path.cwd()
    os.chdir(folder)
    try:
        ended = CliRunner().invoke(app, ["run", "recipe.yaml", *small, "--json"])
    finally:
        os.chdir(before)
    return ended


def test_a_recipe_of_classes_runs_and_ends_in_its_table(tmp_path):
    photographs(tmp_path, [f"pets/{kind}/{kind}{i}.jpg" for kind in ("cat", "dog") for i in range(15)])
    assert init("pets", cwd=tmp_path).exit_code == 0
    ended = run_small(tmp_path)
    assert ended.exit_code == 0, ended.stderr
    assert "could not be written" not in ended.stderr
    assert {"top1", "top5"} <= set(json.loads(ended.stdout)["table"]["rows"][0]["metrics"])


def test_a_recipe_of_several_classes_runs_with_its_rows_beside(tmp_path):
    photographs(tmp_path, [f"skin/Input/{i}.jpg" for i in range(40)])
    rows = [[i, *(float(i % 3 == k or i % 7 == k) for k in range(3))] for i in range(40)]
    table(tmp_path / "skin" / "GroundTruth.csv", [["image", "MEL", "NV", "BCC"], *rows])
    assert init("skin", cwd=tmp_path).exit_code == 0
    ended = run_small(tmp_path)
    assert ended.exit_code == 0, ended.stderr
    scored = json.loads(ended.stdout)["table"]["rows"]
    assert {row["label"] for row in scored} >= {"test", "most frequent", "nearest picture", "linear probe"}
    assert all(0 <= row["metrics"]["map"] <= 1 for row in scored)


def test_the_recipe_runs_and_ends_in_its_table(rooms, tmp_path):
    """As small as it gets: one epoch of a narrow model."""
    shutil.copytree(rooms, tmp_path / "rooms")
    assert init("rooms", cwd=tmp_path).exit_code == 0
    before = Path.cwd()
    os.chdir(tmp_path)
    small = ["model.hidden=32", "model.convolutions=[8, 16]", "jobs=1", "model.image_size=32"]
    small += [f"stages.{stage}.{key}" for stage in ("answer", "answer-blind") for key in ("epochs=1", "threads=1")]
    try:
        checked = CliRunner().invoke(app, ["validate", "recipe.yaml", "--deep"])
        ended = CliRunner().invoke(app, ["run", "recipe.yaml", *small, "--json"])
    finally:
        os.chdir(before)
    assert "valid (deep)" in checked.stdout, checked.stderr
    assert ended.exit_code == 0, ended.stderr
    document = json.loads(ended.stdout)
    labels = ["with pictures", "question alone", "most frequent", "best answer to the same text", "bag of words"]
    assert [row["label"] for row in document["table"]["rows"]] == [*labels, "bag of words times pooled image"]
    tests = [stage["metrics"] for stage in document["stages"] if stage["kind"] == "evaluate"]
    assert len(tests) == 6
    assert all({"accuracy", "most_frequent"} <= set(found) for found in tests)
