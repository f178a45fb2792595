"""Valid files that the trials are made of, and the tally of a session."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fuzz.harness import Tally
from vlcli.cli import app

VALID = """\
root: world
model: {name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1, intermediate: 16}
text: {vocabulary: {train: [{name: coco-captions, split: train}], size: 120}, length: 12}
stages:
  world:
    kind: make
    world: {name: shapes, images: 20, size: 64, parts: [coco, vqa, gqa, nlvr2, karpathy, snli-ve, refcoco, vist],
            nlvr2_train: 12, nlvr2_dev: 6, nlvr2_test: 6, albums: 3}
  regions:
    kind: extract
    extractor: {name: backbone, arch: tiny-conv, short: 0, resolution: 1, boxes: given, limit: 4}
    data: {name: coco-instances, split: train}
  train: {kind: finetune, task: vqa, data: {name: vqa, split: train}, steps: 1, batch_size: 2, threads: 1}
"""

_tally = Tally()


@pytest.fixture(scope="session")
def tally() -> Tally:
    """Counts what the session's trials came to."""
    return _tally


@pytest.fixture(scope="session")
def valid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recipe (``valid.yaml``), its world, store, model and stage records under ``runs/valid``."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "valid.yaml").write_text(VALID)
    here = Path.cwd()
    os.chdir(folder)
    try:
        ended = CliRunner().invoke(app, ["run", "valid.yaml", "--quiet"])
    finally:
        os.chdir(here)
    assert ended.exit_code == 0, ended.output
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many inputs, and how many of them ended in a way that nobody foresaw."""
    if _tally.inputs:
        terminalreporter.write_line(_tally.line())
