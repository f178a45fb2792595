"""Several processes of one run: one dies, hangs or fails, or all are asked to end; one message tells it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import forked
import pytest
from process_group import places

from tests.cli.test_kills import RECIPE
from vlcli.data.shapes import ShapesConfig, make_shapes
from vlcli.engine.checkpoint import Checkpoints, read_state
from vlcli.engine.weights import read_tensors
from vlcli.progress import Silent


class Ranks:
    """Two processes of a run, as a launcher starts them.

    Args:
        folder: with ``small.yaml`` and its data.
        name: of the folder of runs.
        words: overrides.
        more: environment.
    """

    def __init__(self, folder: Path, name: str, *words: str, **more: str) -> None:
        self.run = folder / name / "small"
        options = ["--output", name, "--device", "cpu", "--run-folder", f"{name}/small", "--until", "pretrain"]
        common = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        self.ranks = [
            forked.Started(["run", "small.yaml", *words, *options], folder, {**common, **place, **more})
            for place in places(2)
        ]

    def until(self, place: str) -> None:
        """Wait for a file of the run."""
        end = time.monotonic() + 120
        while not (self.run / place).exists() and time.monotonic() < end:
            assert self.ranks[0].poll() is None, self.ranks[0].communicate()[1][-2000:]
            time.sleep(0.02)

    def ended(self, timeout: float = 200) -> list[tuple[int, str]]:
        """Exit code and stderr of each."""
        told = [process.communicate(timeout=timeout)[1] for process in self.ranks]
        return [(process.returncode, text) for process, text in zip(self.ranks, told, strict=True)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("ranks")
    sizes = {"images": 60, "nlvr2_train": 64, "nlvr2_dev": 24, "nlvr2_test": 4, "captions": 2}
    make_shapes(made / "world", ShapesConfig(parts=("coco", "nlvr2"), **sizes), Silent())
    (made / "small.yaml").write_text(RECIPE.format(root=made / "world"))
    return made


LONG = ("stages.pretrain.epochs=4000", "stages.pretrain.evaluate_every=100000")
TRAINING = "pretrain/checkpoints/step-00000008"


@pytest.mark.parametrize("rank", [1, pytest.param(0, marks=pytest.mark.slow)])
def test_a_killed_process_is_named_by_one_message(folder, rank):
    both = Ranks(folder, f"killed-{rank}", *LONG)
    both.until(TRAINING)
    both.ranks[rank].kill()
    begun = time.monotonic()
    ended = both.ended()
    assert time.monotonic() - begun < 30
    code, told = ended[1 - rank]
    assert code == 1, told
    assert told.count("error: ") == 1
    assert f"Process {rank} of 2 is gone" in told
    assert "killed, perhaps because memory ran out" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_a_process_that_hangs_is_named_by_one_message(folder):
    both = Ranks(folder, "hung", *LONG, VLCLI_HANG_TIMEOUT="3")
    both.until(TRAINING)
    both.ranks[1].send_signal(signal.SIGSTOP)
    begun = time.monotonic()
    told = both.ranks[0].communicate(timeout=60)[1]
    seconds = time.monotonic() - begun
    both.ranks[1].kill()
    both.ranks[1].communicate()
    assert both.ranks[0].returncode == 1, told
    assert seconds < 20
    assert told.count("error: ") == 1
    assert "Process 1 of 2 hangs" in told
    assert "Traceback" not in told


@pytest.mark.slow
def test_what_fails_on_all_is_told_once(folder):
    both = Ranks(
        folder,
        "failed",
        "stages.pretrain.optimizer={name: sgd, lr: 1000.0}",
        "stages.pretrain.schedule.warmup=0",
        *LONG,
    )
    (first, told), (second, other) = both.ended()
    assert (first, second) == (1, 1)
    assert (told + other).count("error: ") == 1
    assert "not finite" in told + other
    assert "Traceback" not in told + other


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_all_processes_agree_on_the_step_a_signal_ends(folder, number):
    name, words = f"asked-{number}", ("stages.pretrain.epochs=5", "stages.pretrain.evaluate_every=100000")
    both = Ranks(folder, name, *words)
    both.until(TRAINING)
    both.ranks[1].send_signal(number)
    time.sleep(0.2)
    both.ranks[0].send_signal(number)
    begun = time.monotonic()
    for code, told in both.ended():
        assert code == 128 + number, told
        assert "Traceback" not in told
    assert time.monotonic() - begun < 10
    found = Checkpoints(both.run / "pretrain" / "checkpoints").complete()
    assert 8 <= read_state(found[-1]).step <= 60
    again = Ranks(folder, name, *words).ended()
    assert [code for code, _ in again] == [0, 0], again[0][1][-2000:]
    whole = Ranks(folder, f"whole-{number}", *words)
    assert [code for code, _ in whole.ended()] == [0, 0]
    first, second = (read_tensors(run / "pretrain/model/model.safetensors") for run in (both.run, whole.run))
    assert all((first[key] == second[key]).all() for key in first)
