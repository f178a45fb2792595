"""Which stages of several start first, and what their processes say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runner.fakes import PLUGIN
from vlcli.progress import Silent
from vlcli.recipe.load import load
from vlcli.recipe.plan import Planner, RunOptions
from vlcli.runner.parallel import Children, first_the_longest, relay


def test_what_the_longest_chain_waits_for_starts_first():
    inputs = {
        "pretrain": ("regions",),
        "rank": ("pretrain",),
        "scratch": ("regions",),
        "scratch-test": ("scratch",),
        "tune": ("pretrain",),
        "test": ("tune",),
        "export": ("tune",),
    }
    order = first_the_longest({"regions": (), **inputs})
    assert order == ["regions", "pretrain", "scratch", "tune", "rank", "scratch-test", "test", "export"]
    assert first_the_longest({"pretrain": ("regions",), "rank": ("pretrain",)}) == ["pretrain", "rank"]


@settings(deadline=None)  # a busy machine is no fault
@given(st.data(), st.integers(1, 9))
def test_no_stage_stands_before_its_inputs(data: st.DataObject, count: int):
    inputs = {
        str(n): tuple(map(str, data.draw(st.sets(st.integers(0, n - 1), max_size=3)))) if n else ()
        for n in range(count)
    }
    order = first_the_longest(inputs)
    assert sorted(order) == sorted(inputs)
    assert all(order.index(source) < order.index(name) for name in inputs for source in inputs[name])


def test_lines_of_another_program_that_look_like_events_are_plain():
    """Libraries write JSON logs to stderr too."""
    lines = ['{"event": "loaded", "level": "info"}', '{"event": "info"}', "[1]", "words"]
    child = subprocess.Popen(["printf", r"%s\n", *lines], stdout=subprocess.PIPE, encoding="utf-8")
    child.stderr = child.stdout
    assert list(relay(child, "train", Silent())) == lines


@pytest.fixture
def planner(world, monkeypatch):
    monkeypatch.setenv("FAKE_STAGES", "1")
    return Planner(load("mine.yaml", []), RunOptions(output=Path("runs"), plugins=(str(PLUGIN),)), Path("runs/mine"))


def test_the_process_of_the_next_stage_waits_and_leaves_nothing(planner):
    children = Children()
    children.prepare(planner, "tune")
    children.prepare(planner, "tune")  # is there
    ((folder, child),) = children.ready.items()
    assert folder == Path("runs/mine/tune")
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.5)
    children.dismiss(folder)
    assert (child.poll() is not None, children.ready, Path("runs").exists()) == (True, {}, False)


def test_the_process_of_the_next_stage_ends_with_a_run_that_is_killed(planner):
    children = Children()
    children.prepare(planner, "tune")
    (child,) = children.ready.values()
    child.stdin.close()  # what the system does for a parent that is killed
    assert child.wait(60) == 0, child.stderr.read()
    assert not Path("runs").exists()


def test_a_stage_runs_in_the_process_that_waits_for_it(planner, monkeypatch):
    steps = {step.name: step for step in planner.plan()}
    children = Children()
    children.prepare(planner, "regions")
    (child,) = children.ready.values()
    monkeypatch.setattr(subprocess, "Popen", None)  # no other process starts
    record = children.execute(planner, steps["regions"], steps, Silent())
    assert (record.status, record.key, child.poll(), children.ready) == ("done", steps["regions"].key, 0, {})


def test_the_process_of_a_world_imports_no_torch(tmp_path):
    code = """if True:
        import sys
        from vlcli.recipe.load import load
        from vlcli.runner.parallel import wait_for_key
        print(wait_for_key(load("quickstart", []), sys.argv[1]), "torch" in sys.modules)
    """
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code, stage],
            check=True,
            input="k\n",
            capture_output=True,
            encoding="utf-8",
            cwd=tmp_path,
        ).stdout.split()
        for stage in ("world", "pretrain")
    ]
    assert outputs == [["k", "False"], ["k", "True"]]
