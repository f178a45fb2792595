"""Evaluate stages and validation under several processes: the files of one process, byte by byte."""

from __future__ import annotations

import shutil

import pytest

from tests.cli.test_kills import RECIPE
from tests.cli.test_ranks import folder  # noqa: F401 (a fixture)
from tests.engine.test_sharding import together
from vlcli.engine.trackers import read_log

pytestmark = pytest.mark.slow
MORE = """\
  test: {{kind: evaluate, from: tune, split: dev, batch_size: 5, threads: 1}}
"""


def run(folder, recipe, name, world):  # noqa: F811
    words = ["-m", "vlcli", "run", recipe, "--output", name, "--device", "cpu", "--run-folder", f"{name}/run"]
    together(world, words, folder)


@pytest.mark.parametrize("world", [2, 3])
def test_predictions_and_metrics_are_the_same_bytes(folder, world):  # noqa: F811
    (folder / "scored.yaml").write_text((RECIPE + MORE).format(root=folder / "world"))
    if not (folder / "alone").exists():
        run(folder, "scored.yaml", "alone", 1)
    shutil.copytree(folder / "alone", folder / f"all-{world}")
    shutil.rmtree(folder / f"all-{world}/run/test")
    run(folder, "scored.yaml", f"all-{world}", world)  # 24 examples in batches of 5: uneven shares
    for file in ("predictions.jsonl", "metrics.json", "images.jsonl"):
        first, second = (folder / name / "run/test" / file for name in ("alone", f"all-{world}"))
        assert first.read_bytes() == second.read_bytes(), file


@pytest.mark.parametrize("stage", ["pretrain", "tune"])
def test_validation_scores_are_those_of_one_process(folder, stage):  # noqa: F811
    """At a learning rate of nothing the weights are the same: one process validates by loss, then by a task."""
    text = RECIPE.format(root=folder / "world").replace("    batch_size: 8\n", "    batch_size: 7\n")
    text = text.replace("    threads: 1\n", "    threads: 1\n    optimizer: {lr: 0.0}\n").replace(
        "epochs: 3", "epochs: 1"
    )
    (folder / "still.yaml").write_text(text)
    for world in (1, 2):
        if not (folder / f"still-{world}").exists():
            run(folder, "still.yaml", f"still-{world}", world)
    logs = [read_log(folder / f"still-{world}/run/{stage}/log.jsonl") for world in (1, 2)]
    scores = [[{k: v for k, v in line.items() if k.startswith("eval/")} for line in log] for log in logs]
    assert any(scores[0])
    assert scores[0] == scores[1]
