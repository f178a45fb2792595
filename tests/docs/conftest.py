"""A reduced quickstart, run once; the folder it was run in is the desk on which the shown commands are tried."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vlcli.recipe.load import load
from vlcli.recipe.yaml import to_yaml

from .pages import vlcli

WORLD = {"images": 60, "captions": 2, "nlvr2_train": 64, "nlvr2_pool": 150, "nlvr2_dev": 16, "nlvr2_test": 40}
STEPS, SAVE_EVERY = 24, 3
LAYERS = {"text_layers": 1, "image_layers": 1, "cross_layers": 1}
"""Most of the time goes into the export to ONNX, which takes as long as the model has layers."""
WORDS = ("red", "green", "blue")


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
    stages["pretrain"] |= {"steps": STEPS, "save_every": SAVE_EVERY}  # a test kills it between two checkpoints
    made = {"extends": "quickstart", "name": "quickstart", "jobs": 1, "model": LAYERS, "stages": stages}
    return to_yaml(made)


@pytest.fixture(scope="session")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Quickstart:
    """The reduced quickstart from nothing to its table, by the command line: run by one worker, copied by all."""
    base = tmp_path_factory.getbasetemp()
    made = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "quickstart"
    made.mkdir(exist_ok=True)
    with (made / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (made / "document.json").is_file():
            _make(made / "desk")
            (made / "document.json").write_text((made / "desk" / "document.json").read_text())
    desk = tmp_path_factory.mktemp("desk") / "desk"
    shutil.copytree(made / "desk", desk)
    return Quickstart(desk, json.loads((made / "document.json").read_text()))


def _make(desk: Path) -> None:
    shutil.rmtree(desk, ignore_errors=True)
    desk.mkdir()
    (desk / "quickstart.yaml").write_text(reduced(), encoding="utf-8")
    ended = vlcli(desk, "run", "quickstart.yaml", "--json")
    assert ended.code == 0, ended.err
    (desk / "document.json").write_text(ended.out)


def photographs(folder: Path) -> Path:
    """Twelve photographs for training and four held out, two captions each, in COCO's own layout; made once."""
    if folder.is_dir():
        return folder
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    (folder / "coco" / "annotations").mkdir(parents=True)
    for split, count in (("train", 12), ("test", 4)):
        pictures, captions = [], []
        for number in range(count):
            file, colour = f"{split}{number}.jpg", number % 3
            pixels = rng.integers(0, 60, (120, 160, 3), dtype=np.uint8)
            pixels[..., colour] += 150
            Image.fromarray(pixels).save(folder / "images" / file)
            pictures.append({"id": number, "file_name": file, "height": 120, "width": 160})
            for turn, text in enumerate((f"a {WORDS[colour]} wall", f"something {WORDS[colour]}")):
                captions.append({"id": 2 * number + turn, "image_id": number, "caption": text})
        document = {"images": pictures, "annotations": captions}
        (folder / "coco" / "annotations" / f"captions_{split}.json").write_text(json.dumps(document))
    return folder
