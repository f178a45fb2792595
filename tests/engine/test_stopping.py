"""Signals: when they are taken, what is saved before, and that the resumed run equals the undisturbed one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from tests.engine.parts import FakeData
from tests.engine.test_trainer import lines, losses, make, same
from vlcli import stopping
from vlcli.engine.checkpoint import Checkpoints, read_state
from vlcli.engine.trainer import Score

torch.set_num_threads(1)

COMMON = {"steps": 6, "evaluate_every": 2, "log_every": 4, "accumulate": 2, "ema": {"decay": 0.9}, "save_every": 100}


@pytest.fixture(autouse=True)
def heeded():
    """Signals act as in a terminal, also where the suite runs in the background and its parent ignores some."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in stopping.SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Asking(FakeData):
    """Data in whose loading the process gets a signal, before the batch of that number is there."""

    def __init__(self, at: int, number: int) -> None:
        super().__init__()
        self.left, self.number = at, number

    def loader(self, batch_size, **options):
        for batch in super().loader(batch_size, **options):
            if self.left == 0:
                os.kill(os.getpid(), self.number)
            self.left -= 1
            yield batch


def finish(folder, **more):
    trainer = make(folder, evaluate=losses, **{**COMMON, **more})
    return trainer, trainer.run()


@pytest.fixture
def whole(tmp_path):
    (tmp_path / "whole").mkdir()
    return finish(tmp_path / "whole")


@pytest.mark.parametrize("number", stopping.SIGNALS)
@pytest.mark.parametrize(("at", "step"), [(0, 0), (1, 1), (2, 1), (4, 3)])
def test_a_signal_while_data_load_leaves_a_checkpoint_of_the_last_whole_step(tmp_path, whole, number, at, step):
    (tmp_path / "cut").mkdir()
    trainer = make(tmp_path / "cut", Asking(at, number), evaluate=losses, **COMMON)
    with pytest.raises(stopping.Stopped) as caught, stopping.listening():
        trainer.run()
    assert caught.value.code == 128 + number
    found = Checkpoints(tmp_path / "cut" / "checkpoints").complete()
    assert [read_state(path).step for path in found] == ([step] if step else [])
    _resumes(tmp_path, whole)


@pytest.mark.parametrize("call", [1, 3])
def test_an_evaluation_broken_off_is_made_again(tmp_path, whole, call):
    (tmp_path / "cut").mkdir()
    calls = iter(range(1, 9))

    def evaluate(module, autocast, epoch):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(20)
        return losses(module, autocast, epoch)

    begun = time.monotonic()
    with pytest.raises(stopping.Stopped), stopping.listening():
        make(tmp_path / "cut", evaluate=evaluate, **COMMON).run()
    assert time.monotonic() - begun < 10
    path = Checkpoints(tmp_path / "cut" / "checkpoints").complete()[-1]
    assert read_state(path).extra["pending"]
    _resumes(tmp_path, whole)
    assert "pending" not in read_state(Checkpoints(tmp_path / "cut" / "checkpoints").complete()[-1]).extra


def _resumes(tmp_path, whole):
    """Weights, log, best and averages of the resumed run are those of the undisturbed one."""
    (first, ended), (second, again) = whole, finish(tmp_path / "cut")
    assert same(first.module.state_dict(), second.module.state_dict())
    assert same(first.ema.shadow, second.ema.shadow)
    assert lines(tmp_path / "whole") == lines(tmp_path / "cut")
    assert (ended.best, ended.metrics) == (again.best, again.metrics)
    assert same(first.select_weights(ended)[1], second.select_weights(again)[1])
    names = [sorted(p.name for p in (tmp_path / name / "checkpoints").iterdir()) for name in ("whole", "cut")]
    assert [name for name in names[1] if not name.startswith("step-") or name in names[0]] == names[0]


def test_what_a_signal_had_written_is_not_averaged(tmp_path):
    options = {**COMMON, "save_every": None, "keep": 5}
    with pytest.raises(stopping.Stopped), stopping.listening():
        make(tmp_path, Asking(2, signal.SIGTERM), **options).run()
    assert [path.name for path in Checkpoints(tmp_path / "checkpoints").complete()] == ["step-00000001"]
    make(tmp_path, **options).run()
    found = Checkpoints(tmp_path / "checkpoints", 5)
    assert "step-00000001" not in [path.name for path in found.lasting()]


def test_a_checkpoint_by_signal_of_a_step_that_is_due_anyhow_counts_among_the_lasting_ones(tmp_path):
    def evaluate(module, autocast, epoch):
        if not (tmp_path / "checkpoints").is_dir():
            os.kill(os.getpid(), signal.SIGTERM)
        return Score({"m": 1.0}, 1.0)

    options = {"steps": 6, "save_every": 2, "evaluate_every": 2, "keep": 9}
    with pytest.raises(stopping.Stopped), stopping.listening():
        make(tmp_path, evaluate=evaluate, **options).run()
    make(tmp_path, evaluate=evaluate, **options).run()
    names = [path.name for path in Checkpoints(tmp_path / "checkpoints").lasting()]
    assert names == ["step-00000002", "step-00000004", "step-00000006"]


def _in_sections(number, reached):
    with stopping.listening(), stopping.held():
        os.kill(os.getpid(), number)
        reached.append("held")
        with stopping.held():
            reached.append("held again")
        with stopping.opened():
            reached.append("open")


def test_held_sections_put_a_signal_off_and_open_parts_let_it_in():
    reached = []
    with pytest.raises(stopping.Stopped, match="terminated"):
        _in_sections(signal.SIGTERM, reached)
    assert reached == ["held", "held again"]
    assert not stopping.asked()


def test_an_ignored_signal_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with stopping.listening():
            os.kill(os.getpid(), signal.SIGINT)
            assert not stopping.asked()
    finally:
        signal.signal(signal.SIGINT, before)


SCRIPT = """
import os, signal, sys, time
from vlcli import stopping
with stopping.listening(), stopping.held():
    print("ready", flush=True)
    time.sleep(60)
"""


def test_a_second_signal_ends_at_once():
    words = [sys.executable, "-c", SCRIPT]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        time.sleep(stopping.AGAIN + 0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 143
        assert "second signal" in process.stderr.read()


def test_a_forked_process_takes_no_part():
    reading, writing = os.pipe()
    with stopping.listening():
        child = os.fork()
        if not child:
            os.write(writing, b"1")
            time.sleep(60)
            os._exit(0)
        assert os.read(reading, 1) == b"1"  # it has begun
        os.kill(child, signal.SIGHUP)
        os.kill(child, signal.SIGINT)
        time.sleep(0.2)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
        assert not stopping.asked()
