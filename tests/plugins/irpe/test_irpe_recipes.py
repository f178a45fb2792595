"""The recipes of iRPE's tables: exact sizes, published settings, and one of them run in small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import vlcli
from vlcli.cli import app
from vlcli.recipe.load import load
from vlcli.tools.counting import count

SIZES = {
    "irpe": (22_089_064, 4_644_271_104),
    "irpe/table2:contextual-unshared": (22_281_064, 4_644_271_104),
    "irpe/table4:7": (22_165_864 - 197 * 384, 4_735_048_704),
    "irpe/table5:tiny-k": (5_755_816, 1_276_377_600),
    "irpe/table5:base-k": (86_606_056, 17_654_605_824),
    "irpe/table5:small-huang": (None, 4_598_882_304 + 90_777_600),
    "irpe/table5:small-cpvt": (None, None),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes(name: str) -> None:
    parameters, macs = SIZES[name]
    found = count(load(name, []), "train")
    assert parameters in (None, found["total"])
    assert macs in (None, found["macs"]["total"])


def test_settings_are_deits() -> None:
    stage = load("irpe/table3:clip-bias", []).stages["train"]
    assert (stage.epochs, stage.batch_size, stage.repeats, stage.clip) == (300, 1024, 3, None)
    assert (stage.optimizer.lr, stage.optimizer.weight_decay) == (1e-3, 0.05)
    assert stage.schedule.warmup * stage.epochs == pytest.approx(5, abs=1e-3)
    assert stage.schedule.end * stage.optimizer.lr == pytest.approx(1e-5)
    assert stage.objectives == [{"name": "image-classification", "smoothing": 0.1, "mixup": 0.8, "cutmix": 1.0}]
    assert load("irpe/swin:tiny", []).stages["train"].clip == 5.0


def photographs(root: Path) -> None:
    rng = np.random.default_rng(0)
    for split, each in (("train", 6), ("val", 2)):
        for name in ("n01", "n02", "n03"):
            (root / split / name).mkdir(parents=True)
            for number in range(each):
                pixels = rng.integers(0, 256, (40, 50, 3), np.uint8)
                Image.fromarray(pixels).save(root / split / name / f"{name}_{number}.JPEG")


def test_a_recipe_in_small(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """The base recipe and its fine-tuning at a higher resolution, on a few pictures; scores use the same crop."""
    photographs(tmp_path / "data")
    small = ["hidden=16", "layers=2", "heads=2", "image_size=32"]
    words = [f"root={tmp_path / 'data'}", *(f"model.{word}" for word in small), "stages.larger.model.image_size=48"]
    for name in ("train", "larger"):
        words += [f"stages.{name}.{word}" for word in ("epochs=2", "batch_size=6", "workers=0", "precision=float32")]
    words += ["stages.test.workers=0"]
    with pytest.raises(SystemExit) as left:
        app(["run", "irpe/base-384", *words, "--output", str(tmp_path / "runs"), "--json"])
    assert left.value.code in (0, None)
    stages = {row["stage"]: row for row in json.loads(capsys.readouterr().out)["stages"]}
    assert set(stages["test"]["metrics"]) >= {"top1", "top5", "top1/n01"}
    assert stages["test"]["metrics"]["top5"] == 1.0
    config = json.loads((Path(stages["larger"]["folder"]) / "model/config.json").read_text())
    assert config["transform"]["name"] == "imagenet"  # taken over from the stage it starts from
    assert config["facts"]["answers"] == ["n01", "n02", "n03"]
    row = json.loads((Path(stages["test"]["folder"]) / "predictions.jsonl").read_text().splitlines()[2])
    found = vlcli.load(stages["larger"]["folder"]).predict("", tmp_path / f"data/val/n02/{row['key']}.JPEG")
    assert found["top"] == row["top"]
    assert found["score"] == pytest.approx(row["score"], abs=1e-5)
    report = json.loads((Path(stages["larger"]["folder"]) / "model/load_report.json").read_text())
    assert any("2x2 places interpolated to 3x3" in line for line in report["reshaped"])
