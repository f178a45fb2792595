"""Own data with one answer a question: trained, scored, chosen by and doubted as they should be."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from small_run import SENTENCES, make_store

from vlcli.builders.context import StageContext
from vlcli.progress import Silent
from vlcli.recipe.schema import Evaluate, Finetune, Recipe
from vlcli.stages import evaluate, finetune

MODEL = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
TASK = {"name": "vqa", "min_count": 1}


class Heard(Silent):
    def __init__(self) -> None:
        self.warned: list[str] = []

    def warn(self, message: str) -> None:
        self.warned.append(message)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    torch.set_num_threads(1)
    rows = [
        {"image": f"i{n}", "text": SENTENCES[n % 4], "answers": "garbage_bin" if n % 4 else "Two"} for n in range(12)
    ]
    for name, part in {"train": rows, "val": rows[:8], "blank": [{**row, "answers": None} for row in rows]}.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    make_store(tmp_path / "regions", [f"i{n}" for n in range(12)])
    return tmp_path


def context(root: Path, name: str, config: object, heard: Heard) -> StageContext:
    recipe = Recipe(
        model=MODEL, text={"vocabulary": {"train": {"name": "jsonl", "file": "train.jsonl"}, "size": 80}}, stages={}
    )
    (root / name).mkdir()
    kinds = {"tuned": "finetune"} if name != "tuned" else {}
    inputs = {stage: root / stage for stage in kinds}
    return StageContext(
        recipe, name, config, root / name, inputs, root, seed=0, device="cpu", kinds=kinds, progress=heard
    )


def tuning(root: Path, validation: str, **given: object) -> Finetune:
    data = {"name": "jsonl", "file": "train.jsonl"}
    return Finetune(
        kind="finetune", data=data, task=TASK, features=[str(root / "regions/features.h5")], batch_size=6, threads=1,
        validation={"name": "jsonl", "file": f"{validation}.jsonl"}, optimizer={"lr": 0.01}, **given,
    )  # fmt: skip


def test_a_table_of_single_answers_is_learned_scored_and_compared(root: Path) -> None:
    heard = Heard()
    found = finetune.run(context(root, "tuned", tuning(root, "val", epochs=4), heard))
    assert found.metrics["accuracy"] >= 0.75
    assert found.metrics["most_frequent"] == 0.75
    stage = Evaluate(
        kind="evaluate", data={"name": "jsonl", "file": "val.jsonl"}, features=[str(root / "regions/features.h5")],
        **{"from": "tuned"},
    )  # fmt: skip
    scored = evaluate.run(context(root, "test", stage, heard))
    assert scored.metrics["accuracy"] == found.metrics["accuracy"]
    assert list(scored.metrics)[:2] == ["accuracy", "most_frequent"]
    doubted = scored.metrics["accuracy"] == 0.75
    assert doubted == any("most frequent answer" in line for line in heard.warned)
    assert doubted == any("most frequent answer" in line for line in scored.notes)
    rows = [json.loads(line) for line in (root / "test/predictions.jsonl").read_text().splitlines()]
    assert {row["prediction"] for row in rows} <= {"garbage bin", "2"}
    assert rows[0]["answers"] == {"2": 1.0}


def test_validation_without_answers_keeps_the_last_weights_and_says_so(root: Path) -> None:
    heard = Heard()
    found = finetune.run(context(root, "tuned", tuning(root, "blank", epochs=3), heard))
    assert any("give no accuracy" in line for line in heard.warned)
    assert any("holds step 6" in line for line in found.notes)
