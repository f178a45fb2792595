"""A recipe of fake stages, and running it in this process."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.load import load
from vlcli.recipe.plan import RunOptions
from vlcli.registry import load_file
from vlcli.runner.run import run_recipe

PLUGIN = Path(__file__).parents[1] / "fixtures" / "fake_stages.py"
RECIPE = """\
root: {root}
model: fake-model
stages:
  regions: {{kind: extract, extractor: fake-extractor, data: [{{name: fake-data}}]}}
  pretrain: {{data: [{{name: fake-data}}], objectives: [fake-objective]}}
  tune: {{kind: finetune, from: pretrain, task: fake-task}}
  test: {{kind: evaluate, from: tune}}
  scratch: {{kind: finetune, task: fake-task, data: [{{name: fake-data}}]}}
  scratch-test: {{kind: evaluate, from: scratch, split: dev}}
table: {{title: small, rows: {{with: test, without: scratch-test}}, metrics: [accuracy, "accuracy/*"]}}
"""


@pytest.fixture
def world(tmp_path, monkeypatch):
    """A recipe of fake stages and its data."""
    load_file(PLUGIN)
    plugin = next(m for n, m in sys.modules.items() if n.startswith("vlcli_plugin_fake_stages"))
    for name, module in plugin.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(importlib, "import_module", _importer(plugin.modules()))
    data = tmp_path / "data"
    data.mkdir()
    for split in ("train", "dev"):
        (data / f"{split}.txt").write_text(split)
    (tmp_path / "mine.yaml").write_text(RECIPE.format(root=data))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _importer(fakes):
    real = importlib.import_module
    return lambda name, package=None: fakes.get(name) or real(name, package)


def go(words=(), name="mine.yaml", progress=None, **options):
    outcomes = run_recipe(load(name, list(words)), RunOptions(output=Path("runs"), **options), progress)
    return {outcome.name: outcome for outcome in outcomes}


def actions(outcomes):
    return {name: outcome.action for name, outcome in outcomes.items()}


class Told(Silent):
    """Keeps what was said."""

    def __init__(self):
        self.lines = []

    def info(self, message):
        self.lines.append(message)

    warn = info


def planned(words=(), **options):
    planner, steps = planning.make(load("mine.yaml", list(words)), RunOptions(output=Path("runs"), **options))
    return planner.folder.name, {step.name: step.action for step in steps}
