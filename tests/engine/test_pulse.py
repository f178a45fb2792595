"""A training that does not get on is found, whatever it does, and one that stood still as a whole is left alone."""

from __future__ import annotations

import time

import pytest

from tests.engine.parts import FakeData
from tests.engine.test_trainer import make
from vlcli.engine import processes, pulse
from vlcli.engine.peers import Watch


class Stuck(FakeData):
    """Data that take too long at the second batch."""

    def loader(self, batch_size, **options):
        for number, batch in enumerate(super().loader(batch_size, **options)):
            if number == 1:
                time.sleep(2.5)
            yield batch


@pytest.fixture
def ended(monkeypatch):
    """What the watching thread would have ended this process with."""
    told = []
    monkeypatch.setattr(pulse, "_end", lambda *facts: told.append(facts))
    return told


def test_a_loader_that_hangs_is_named_with_its_line(tmp_path, ended, monkeypatch):
    monkeypatch.setattr(processes, "_seconds", 1.0)
    make(tmp_path, Stuck(), steps=2).run()
    got, where, limit = ended[0]
    assert got.startswith("it loads data for ")
    assert ".py:" in where
    assert limit == 1.0


def test_time_before_the_training_is_not_taken_for_a_standstill(monkeypatch):
    """The clock of looks starts with the training: else the first look forgives what passed since the import."""
    clock = iter([0.0, 0.0, 100.0, 103.0])
    monkeypatch.setattr(pulse.time, "monotonic", lambda: next(clock))
    beat = pulse.Pulse()
    beat.begin()
    assert beat.look() == 3.0


def test_the_environment_goes_before_the_recipe_and_a_quiet_training_is_left_alone(tmp_path, ended, monkeypatch):
    monkeypatch.setattr(processes, "_seconds", 1.0)
    monkeypatch.setenv("VLCLI_HANG_TIMEOUT", "30")
    make(tmp_path, Stuck(), steps=2).run()
    assert ended == []


def test_time_in_which_the_whole_process_stood_still_does_not_count():
    beat = pulse.Pulse()
    beat.note(pulse.COMPUTES)
    beat.since -= 100
    assert beat.look() == pytest.approx(100, abs=1)
    beat.since -= 1000
    beat._looked -= 1000  # as after SIGSTOP and SIGCONT
    assert beat.look() == pytest.approx(100, abs=1)
    beat.doing = ""
    assert beat.look() == 0


LATE = 60.0
CASES = {
    "one loads": ([(LATE, pulse.COMPUTES, "a"), (0.85 * LATE, pulse.LOADS, "b.py:3")], "Process 1 of 2 hangs"),
    "the first writes": ([(LATE, pulse.WRITES, "a"), (LATE, pulse.COMPUTES, "b")], "Process 0 of 2 hangs"),
    "all compute": ([(LATE, pulse.COMPUTES, "a"), (LATE, pulse.COMPUTES, "b")], "All 2 processes"),
    "all wait": ([(LATE, pulse.WAITS, "a"), (LATE, pulse.WAITS, "b")], "All 2 processes"),
    "one waits for an evaluation": ([(1.0, pulse.EVALUATES, "a"), (LATE, pulse.WAITS, "b")], ""),
    "one may wait inside a collective": ([(1.0, pulse.LOADS, "a"), (LATE, pulse.COMPUTES, "b")], ""),
}


@pytest.mark.parametrize("name", CASES)
def test_the_process_that_holds_the_others_up_is_the_one_named(name, monkeypatch):
    works, expected = CASES[name]
    watch, told = Watch(0, 2, 50.0), []
    monkeypatch.setattr(watch, "_tell", lambda what, rank, got: told.append(what))
    watch.works = dict(enumerate(works))
    watch._check()
    assert bool(told) == bool(expected)
    assert all(what.startswith(expected) for what in told)
