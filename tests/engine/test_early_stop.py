"""Training that ends before its last step: by patience, by time, the same after a kill and on two processes."""

from __future__ import annotations

import itertools
import signal
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from tests.engine import workers
from tests.engine.parts import config
from tests.engine.test_processes import run, start
from tests.engine.test_trainer import StoppedError, Stopping, lines, make, same
from vlcli import stopping
from vlcli.engine import outcome
from vlcli.engine.trackers import read_log
from vlcli.engine.trainer import Score
from vlcli.engine.weights import read_tensors

DATA = {"validation": "coco-captions"}


def scored(*values):
    left = iter(values)
    return lambda *_: Score({"m": 1.0}, next(left))


def test_patience_counts_validations_without_a_better_score(tmp_path):
    options = {"steps": 40, "evaluate_every": 2, "log_every": 4, "stop": {"patience": 3}, **DATA}
    outcome = make(tmp_path, evaluate=scored(1, 5, 2, float("nan"), 5, 9), **options).run()
    assert (outcome.steps, outcome.best) == (10, 4)
    assert outcome.stopped == "step 10 of 40, no better validation since step 4"
    assert [row["step"] for row in read_log(tmp_path / "log.jsonl") if "loss" in row] == [4, 8, 10]
    assert make(tmp_path, Stopping(0), **options).run() == outcome  # it is at its end: nothing is trained again


def test_small_gains_are_kept_as_the_best_and_do_not_restore_patience(tmp_path):
    options = {"steps": 40, "evaluate_every": 2, "stop": {"patience": 2, "min_delta": 1.0}, **DATA}
    outcome = make(tmp_path, evaluate=scored(1, 1.5, 2.5, 3.0, 3.4), **options).run()
    assert (outcome.steps, outcome.best) == (10, 10)
    assert outcome.stopped.endswith("no better validation since step 6")


def test_patience_that_ends_at_the_last_step_cuts_nothing_short(tmp_path):
    options = {"steps": 6, "evaluate_every": 2, "stop": {"patience": 2}, **DATA}
    assert make(tmp_path, evaluate=scored(3, 2, 1), **options).run().stopped == ""


def test_the_rate_follows_the_steps_of_the_recipe(tmp_path):
    for name in ("whole", "short"):
        (tmp_path / name).mkdir()
    options = {"steps": 12, "evaluate_every": 2, "schedule": {"name": "linear"}, **DATA}
    make(tmp_path / "whole", evaluate=scored(*range(9)), **options).run()
    make(tmp_path / "short", evaluate=scored(3, 2, 1), stop={"patience": 2}, **options).run()
    rates = [[row["lr"] for row in lines(tmp_path / name) if "lr" in row] for name in ("whole", "short")]
    assert rates[1] == rates[0][:3]


@pytest.fixture
def clock(monkeypatch):
    """Every look at the clock of the early stop takes ten seconds."""
    ticks = itertools.count(0, 10)
    monkeypatch.setattr(outcome, "time", SimpleNamespace(monotonic=lambda: next(ticks)))


def test_minutes_end_training_after_a_validation_and_count_over_resumes(tmp_path, clock):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    options = {"steps": 900, "save_every": 1, "stop": {"minutes": 2}, **DATA}
    whole = make(tmp_path / "whole", evaluate=scored(*range(900)), **options).run()
    assert whole.steps < 12
    assert whole.stopped == f"step {whole.steps} of 900, 2 minutes of training are over"
    assert whole.best == whole.steps
    with pytest.raises(StoppedError):
        make(tmp_path / "cut", Stopping(whole.steps - 2), evaluate=scored(*range(900)), **options).run()
    assert make(tmp_path / "cut", evaluate=scored(*range(900)), **options).run().steps <= whole.steps


def test_a_signal_during_the_validation_that_ends_training_repeats_it(tmp_path, monkeypatch):
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
    options = {"steps": 40, "evaluate_every": 2, "stop": {"patience": 2}, **DATA}
    whole = make(tmp_path / "whole", evaluate=scored(5, 2, 1), **options)
    ended, scores = whole.run(), iter([5, 2])

    def asked(*_):
        value = next(scores, None)
        if value is None:
            signal.raise_signal(signal.SIGTERM)
        return Score({"m": 1.0}, value)

    with pytest.raises(stopping.Stopped), stopping.listening():
        make(tmp_path / "cut", evaluate=asked, **options).run()
    again = make(tmp_path / "cut", evaluate=scored(1), **options)
    assert again.run() == ended
    assert same(whole.module.state_dict(), again.module.state_dict())


def test_kill_9_changes_neither_the_step_nor_a_bit(tmp_path):
    workers.patient(tmp_path / "whole")
    steps, reason = (tmp_path / "whole" / "outcome-0").read_text().split("; ")
    assert 10 < int(steps) < 400
    assert reason
    for left in (7, 3, int(steps) - 12):
        process = start(["patient", tmp_path / "killed", left])
        process.communicate(timeout=120)
        assert process.returncode == -signal.SIGKILL
    run(["patient", tmp_path / "killed"])
    for name in ("final", "chosen"):
        first, second = (read_tensors(tmp_path / run / f"{name}.safetensors") for run in ("whole", "killed"))
        assert same(first, second)
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")
    assert (tmp_path / "killed" / "outcome-0").read_text() == f"{steps}; {reason}"


def test_two_processes_end_at_the_same_step(tmp_path):
    run(["patient", tmp_path], 2)
    first, second = ((tmp_path / f"outcome-{rank}").read_text() for rank in (0, 1))
    assert first == second
    assert "no better validation since step" in first


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stop": {"patience": 4}}, "`validation` beside `patience`"),
        ({"stop": {}, **DATA}, "`patience` .a number of validations., `minutes`, or both"),
        ({"stop": {"patience": 0}, **DATA}, "from 1 to"),
        ({"stop": {"minutes": 0}, **DATA}, "above 0"),
    ],
)
def test_a_stop_that_cannot_be_counted_is_refused(options, told):
    with pytest.raises(ValidationError, match=told):
        config(**options)
