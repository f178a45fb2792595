"""A reduced quickstart, run once; the folder it was run in is the desk on which the shown commands are tried."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from vlcli.recipe.dump import to_yaml
from vlcli.recipe.load import load

from .pages import vlcli

WORLD = {"images": 60, "captions": 2, "nlvr2_train": 64, "nlvr2_dev": 16, "nlvr2_test": 40}
STEPS, SAVE_EVERY = 24, 3


@dataclass(frozen=True)
class Quickstart:
    """A finished, reduced quickstart.

    Attributes:
        desk: the folder it was run in; holds ``quickstart.yaml`` and ``runs/``.
        document: what ``--json`` printed.
    """

    desk: Path
    document: dict[str, Any]

    @property
    def runs(self) -> Path:
        """Its stage folders."""
        return self.desk / "runs" / "quickstart"

    def metrics(self, stage: str) -> dict[str, float]:
        """What a stage found."""
        found: dict[str, float] = json.loads((self.runs / stage / "stage.json").read_text())["metrics"]
        return found


def reduced() -> str:
    """A recipe that extends the quickstart, whatever its stages are, and cuts every count."""
    stages: dict[str, Any] = {}
    for name, stage in load("quickstart").stages.items():
        if stage.kind == "make":
            stages[name] = {"world": WORLD}
        if stage.kind in ("pretrain", "finetune"):
            stages[name] = {"steps": 3, "batch_size": 16}
        if stage.kind == "pretrain":
            stages[name] |= {"steps": STEPS, "save_every": SAVE_EVERY}
    return to_yaml({"extends": "quickstart", "name": "quickstart", "jobs": 1, "stages": stages})


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Quickstart:
    """The reduced quickstart from nothing to its table, by the command line."""
    desk = tmp_path_factory.mktemp("desk")
    (desk / "quickstart.yaml").write_text(reduced(), encoding="utf-8")
    ended = vlcli(desk, "run", "quickstart.yaml", "--json")
    assert ended.code == 0, ended.err
    return Quickstart(desk, json.loads(ended.out))
