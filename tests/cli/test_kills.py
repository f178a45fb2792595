"""Processes that are killed or asked to end at any moment of a small run: the end is that of an undisturbed run.

Three kills by default, 64 among the slow tests. All folders are compared with one undisturbed run, file by file.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import forked
import pytest

from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.progress import Silent

RECIPE = """\
root: {root}
seed: 3
model: {{name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}}
text: {{vocabulary: {{train: {{name: coco-captions, split: train}}, size: 100}}, length: 16}}
stages:
  regions:
    kind: extract
    extractor: {{name: backbone, arch: tiny-conv, short: 0}}
    data: [{{name: coco-instances, split: [train, val]}}, {{name: nlvr2, split: [train, dev]}}]
    batch_size: 4
  pretrain:
    data: {{name: coco-captions, split: train}}
    validation: {{name: coco-captions, split: val}}
    objectives: [mlm, matching]
    batch_size: 8
    epochs: 3
    save_every: 4
    evaluate_every: 6
    log_every: 5
    ema: {{decay: 0.9}}
    threads: 1
  tune:
    kind: finetune
    from: pretrain
    task: nlvr2
    data: {{name: nlvr2, split: train}}
    validation: {{name: nlvr2, split: dev}}
    batch_size: 8
    epochs: 3
    save_every: 3
    threads: 1
"""
TIMES = ("examples_per_second", "data_wait", "seconds")


class Chains:
    """Runs of one recipe, each in a folder of its own, over the same data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        parts = ("coco", "nlvr2")
        sizes = {"images": 60, "nlvr2_train": 64, "nlvr2_dev": 24, "nlvr2_test": 4, "captions": 2}
        make_shapes(folder / "world", ShapesConfig(parts=parts, **sizes), Silent())
        (folder / "small.yaml").write_text(RECIPE.format(root=folder / "world"))
        begun = time.monotonic()
        self.whole = self.finish("whole")
        self.seconds = time.monotonic() - begun

    def start(self, name: str) -> forked.Started:
        words = ["run", "small.yaml", "--output", name, "--device", "cpu"]
        return forked.Started(words, self.folder, {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""})

    def finish(self, name: str) -> dict[str, object]:
        """Run to the end; what the folder then holds."""
        process = self.start(name)
        _, told = process.communicate(timeout=300)
        assert process.returncode == 0, told[-2000:]
        assert "Traceback" not in told
        return content(self.folder / name / "small")


def content(run: Path) -> dict[str, object]:
    """Every file of a run by its path; of those that tell times, what does not depend on them."""
    found: dict[str, object] = {}
    for path in sorted(run.rglob("*")):
        name = str(path.relative_to(run))
        if path.is_dir():
            found[name] = "folder"
        elif path.name.startswith("stage.json") or path.name == ".stage.json.copy":
            record = json.loads(path.read_text())
            record["sizes"].pop("model/load_report.json", None)  # it names the folder
            found[name] = {key: record[key] for key in ("status", "key", "metrics", "files", "sizes", "data")}
        elif path.name == "log.jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            found[name] = [{key: value for key, value in row.items() if key not in TIMES} for row in rows]
        elif path.suffix == ".png" or path.name.endswith(".lock"):
            found[name] = "there"
        else:
            found[name] = path.read_bytes().replace(run.parent.name.encode(), b"RUNS")
    return found


def differing(first: dict[str, object], second: dict[str, object]) -> list[str]:
    return sorted(name for name in {*first, *second} if first.get(name) != second.get(name))


@pytest.fixture(scope="module")
def chains(tmp_path_factory) -> Chains:
    return Chains(tmp_path_factory.mktemp("kills"))


@pytest.mark.parametrize("kills", [3, pytest.param(64, marks=pytest.mark.slow)])
def test_kills_at_any_moment_change_nothing(chains, kills):
    draw = random.Random(kills)
    done = folders = 0
    while done < kills:
        folders += 1
        name, left, fresh = f"killed-{kills}-{folders}", min(4, kills - done), True
        while left:
            process, begun = chains.start(name), time.monotonic()
            try:
                process.wait(draw.uniform(0.2, 0.95) * chains.seconds)
            except subprocess.TimeoutExpired:
                os.kill(process.pid, signal.SIGKILL)
                done, left = done + 1, left - 1
            else:
                left = 0  # it was at its end already
                chains.seconds = min(chains.seconds, time.monotonic() - begun) if fresh else chains.seconds
            fresh = False
            process.communicate(timeout=60)
        assert differing(chains.whole, chains.finish(name)) == [], name


PLACES = {"extraction": "regions/features.h5.part", "training": "pretrain/checkpoints", "tuning": "tune/log.jsonl"}


@pytest.mark.parametrize(
    ("number", "code", "place"),
    [
        pytest.param(signal.SIGTERM, 143, "training", marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 130, "extraction", marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, 129, "tuning", marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_signal_is_heeded_within_ten_seconds_and_nothing_is_lost(chains, number, code, place, record_property):
    name = f"asked-{number}-{place}"
    run = chains.folder / name / "small"
    process = chains.start(name)
    until = time.monotonic() + 100
    while not (run / PLACES[place]).exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(0.1)
    begun = time.monotonic()
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    seconds = time.monotonic() - begun
    record_property("seconds", seconds)
    assert seconds < 10
    assert process.returncode == code, told
    assert "run the same command again to go on" in told
    assert "Traceback" not in told
    hidden = [path for path in run.rglob(".*") if not path.name.endswith((".lock", ".copy"))]
    assert hidden == []
    steps = [p.name for p in run.glob("*/checkpoints/step-*")]
    assert place == "extraction" or (steps and "in a checkpoint" in told)
    assert differing(chains.whole, chains.finish(name)) == []
