"""Which stages of several start first, and what their processes say."""

from __future__ import annotations

import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.progress import Silent
from vlcli.runner.parallel import first_the_longest, relay


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
