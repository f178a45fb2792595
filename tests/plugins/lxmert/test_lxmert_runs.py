"""The tiny recipe from end to end, much reduced: its artifacts, questions from Python, weights out and in again."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

import vlcli
from vlcli.cli import app
from vlcli.engine.bundle import load_bundle, read_bundle
from vlcli.errors import UsageError
from vlcli.recipe.stage_record import read as read_record

torch.set_num_threads(1)
SMALL = (
    "jobs=1",
    "stages.world.world.images=30",
    "stages.world.world.nlvr2_train=16",
    "stages.world.world.nlvr2_dev=4",
    "stages.world.world.nlvr2_test=8",
    "stages.eyes.steps=5",
    "stages.pretrain.epochs=5",
    "stages.pretrain.objectives.image-qa.from_epoch=2",
    "stages.pretrain.batch_size=32",
    "stages.nlvr2.epochs=1",
    "stages.vqa.epochs=1",
    "stages.vqa.task.min_count=2",
    "model.hidden=16",
    "model.heads=2",
    "model.image_position.numbers=4",
)


def vlcli_run(folder, recipe, *words):
    """Run a recipe under ``folder`` and return its run folder."""
    ended = CliRunner().invoke(app, ["run", str(recipe), "--output", str(folder / "runs"), *words])
    assert ended.exit_code == 0, ended.output
    (found,) = (folder / "runs").glob("*lxmert*")
    return found


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lxmert")
    return vlcli_run(folder, "tiny/lxmert", *SMALL)


def test_every_stage_leaves_its_artifact(run):
    assert {path.name for path in run.iterdir() if (path / "stage.json").is_file()} == {
        *("world", "eyes", "regions", "pretrain", "vqa", "vqa-test", "nlvr2", "nlvr2-test"),
    }
    lines = [json.loads(line) for line in (run / "pretrain" / "log.jsonl").read_text().splitlines()]
    losses = {name for line in lines for name in line if name.startswith("loss/")}
    kinds = {"mlm", "matching", "image-qa", *(f"masked-object/{t}" for t in ("label", "attribute", "feature"))}
    assert losses == {f"loss/{kind}" for kind in kinds}
    answers = json.loads((run / "vqa-test" / "vqa.json").read_text())
    assert set(answers[0]) == {"question_id", "answer"}
    rows = list(csv.reader((run / "nlvr2-test" / "nlvr2.csv").open()))
    assert len(rows) == 8
    assert {row[1] for row in rows} <= {"True", "False"}


def test_the_answer_head_moves_by_string(run):
    report = json.loads((run / "vqa" / "model" / "load_report.json").read_text())
    assert any("answer rows" in line for line in report["reshaped"])
    before, after = load_bundle(run / "pretrain"), load_bundle(run / "vqa")
    assert set(after.data_spec.answers) <= set(before.data_spec.answers)
    assert not [name for name in report["new"] if name.startswith("objectives.answering.head")]


def test_a_question_in_three_lines(run):
    model = vlcli.load(run / "vqa", features=run / "regions")
    picture = next(iter(read_pictures(run)))
    found = model.answers("how many circles are there", picture, best=3)
    assert len(found) == 3
    assert all(answer in model.data_spec.answers and 0 <= score <= 1 for answer, score in found)
    assert found[0][0] == model.predict("how many circles are there", picture)["prediction"]
    words = [
        "ask",
        str(run / "vqa"),
        "how many circles are there",
        picture,
        "--features",
        str(run / "regions"),
        "--json",
    ]
    ended = CliRunner().invoke(app, words)
    assert json.loads(ended.stdout)["answers"][0]["answer"] == found[0][0]
    with pytest.raises(UsageError, match="no answer table"):
        vlcli.load(run / "nlvr2", features=run / "regions").answers("is it red", picture)


def read_pictures(run):
    from vlcli.features import FeatureStore

    return FeatureStore(run / "regions" / "features.h5").ids


def test_weights_leave_for_transformers_and_come_back_through_an_import(run, tmp_path):
    """A fine-tuned model in transformers' layout becomes a bundle by a stage that takes no step."""
    recipe = tmp_path / "lxmert-move.yaml"
    model = read_bundle(run / "vqa").model_spec
    table = tmp_path / "answers.json"
    table.write_text(json.dumps(list(read_bundle(run / "vqa").data_spec.answers)))
    recipe.write_text(
        json.dumps(
            {
                "root": str(run / "world" / "world"),
                "model": model,
                "text": {"vocabulary": str(run / "vqa" / "model" / "vocab"), "length": 24},
                "stages": {
                    "out": {"kind": "export", "from": str(run / "vqa"), "format": "transformers"},
                    "back": {
                        "kind": "finetune",
                        "from": str(tmp_path / "published"),
                        "task": {"name": "vqa", "min_count": 2, "source_answers": str(table)},
                        "features": str(run / "regions"),
                        "steps": 0,
                    },
                },
            }
        )
    )
    first = vlcli_run(tmp_path, recipe, "--until", "out")
    (first / "out" / "model").rename(tmp_path / "published")
    second = vlcli_run(tmp_path, recipe, "--only", "back")
    own, other = load_bundle(run / "vqa").module.state_dict(), load_bundle(second / "back").module.state_dict()
    for name, value in own.items():
        if "table" not in name and "segments" not in name:
            torch.testing.assert_close(other[name], value, msg=name)


@pytest.mark.slow
def test_two_processes_see_the_losses_of_one(run, tmp_path):
    """The same recipe under torchrun: every logged loss agrees."""
    words = ["run", "tiny/lxmert", *SMALL, "--only", "pretrain", "--output", str(run.parent), "--force"]
    words += ["stages.pretrain.log_every=1"]
    logs = []
    for launcher in (
        [sys.executable, "-m", "vlcli"],
        [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "-m", "vlcli"],
    ):
        ended = subprocess.run(
            [*launcher, *words],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        )
        assert ended.returncode == 0, ended.stderr[-2000:]
        folder = max(
            (p for p in run.parent.iterdir() if (p / "pretrain" / "log.jsonl").is_file()),
            key=lambda p: (p / "pretrain" / "log.jsonl").stat().st_mtime,
        )
        logs.append([json.loads(line) for line in (folder / "pretrain" / "log.jsonl").read_text().splitlines()])
    assert len(logs[0]) == len(logs[1]) > 3
    for one, two in zip(*logs, strict=True):
        for name, value in one.items():
            if name.startswith("loss"):
                assert two[name] == pytest.approx(value, rel=2e-3), name
    assert read_record(run / "pretrain").status == "done"
