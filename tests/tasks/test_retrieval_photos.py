"""The recipes of real photographs."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from vlcli.cli import app

NAMES = ("vlmo/photos", "vlmo/photos-bags", "vlmo/photos-pixels", "ace-rpe/photos")
SMALL = (
    "stages.grid.extractor={name: backbone, arch: tiny-conv, boxes: grid, grid: [6, 6], short: 48}",
    *("stages.pairs.epochs=~", "stages.pairs.steps=3", "stages.pairs.objectives.contrast-matching.from_epoch=0"),
)


@pytest.mark.parametrize("name", NAMES)
def test_it_is_valid(shared, name):
    ended = CliRunner().invoke(app, ["validate", name, f"root={shared / 'data'}"], prog_name="vlcli")
    assert ended.exit_code == 0, ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vlmo/photos", "ace-rpe/photos"])
def test_it_runs(shared, cli, name):
    ended = cli("run", name, f"root={shared / 'data'}", *SMALL, "--json", timeout=500)
    assert ended.code == 0, ended.err
    rows = {row["label"]: row["metrics"] for row in json.loads(ended.out)["table"]["rows"]}
    assert len(rows) == 3
    assert "canonical correlation" in rows
    assert all(0 <= metrics["image/r@10"] <= 1 for metrics in rows.values())
