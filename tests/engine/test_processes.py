from __future__ import annotations

import os
import signal
from pathlib import Path

import forked
import pytest
import torch
from process_group import places

from tests.engine import workers
from vlcli.engine import processes
from vlcli.engine.trackers import read_log
from vlcli.engine.weights import read_tensors
from vlcli.errors import UsageError

ROOT = Path(__file__).parents[2]


def environment(**more):
    given = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", **more}
    return {**os.environ, **given}


def start(arguments, **more):
    return forked.Started(arguments, ROOT, environment(**more), Path(workers.__file__))


def run(arguments, processes_count=1):
    """One process, or several joined by gloo."""
    for process in [start(arguments, **place) for place in places(processes_count)]:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-3000:]


def test_two_processes_equal_one_with_the_whole_batch(tmp_path):
    for kind in workers.OBJECTIVES:
        workers.train(tmp_path / "one" / kind, kind)
    run(["train", tmp_path / "two"], 2)
    for kind in workers.OBJECTIVES:
        first, second = (read_tensors(tmp_path / name / kind / "final.safetensors") for name in ("one", "two"))
        assert set(first) == set(second)
        for name, value in first.items():
            assert torch.allclose(unordered(name, value), unordered(name, second[name]), atol=1e-6, rtol=0), name
        logs = [read_log(tmp_path / name / kind / "log.jsonl") for name in ("one", "two")]
        assert [line["step"] for line in logs[0]] == [line["step"] for line in logs[1]]
        for left, right in zip(*logs, strict=True):
            kept = [name for name in left if name.startswith(("loss", "engine"))]
            assert [left[name] for name in kept] == pytest.approx([right[name] for name in kept], abs=1e-5)


def unordered(name, value):
    """A queue holds the same rows in the order of ranks, not of the batch."""
    value = value.double()
    return value[value[:, 0].argsort()] if name.endswith("queue.queue") else value


def test_gathering_keeps_rank_order_unequal_rows_and_gradients(tmp_path):
    run(["gather", tmp_path], 2)
    found = read_tensors(tmp_path / "gather.safetensors")
    assert found["whole"][:, 0].tolist() == [0, 1, 10, 11, 12]
    assert found["flags"].tolist() == [1, 0, 1, 0, 1]
    assert found["grad"][:, 0].tolist() == [0, 2 * 1 * (1 + 2)]


def test_queue_and_momentum_copy_survive_kill_9(tmp_path):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    workers.train(whole, "all", 99, 0.2)
    process = start(["kill", killed, 3])
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    assert not (killed / "final.safetensors").exists()
    workers.train(killed, "all", 99, 0.2)
    first, second = (read_tensors(folder / "final.safetensors") for folder in (whole, killed))
    assert {"objectives.engine-queue.queue", "teacher.words.weight"} <= set(first)
    assert all(torch.equal(first[name], second[name]) for name in first)
    steps = [line["step"] for line in read_log(killed / "log.jsonl")]
    assert steps == sorted(set(steps))


def test_a_device_that_is_not_there_is_told():
    assert processes.resolve_device("auto") in ("cpu", "cuda", "mps")
    with pytest.raises(UsageError, match="not there"):
        processes.resolve_device("tpu")


@pytest.mark.parametrize("name", ["cuda:2", "cuda:", "cuda:first", "cpu:1"])
def test_a_device_of_a_number_that_is_not_there_is_told(monkeypatch, name):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [processes.resolve_device(one) for one in ("cuda", "cuda:1", "cpu:0")] == ["cuda", "cuda:1", "cpu"]
    with pytest.raises(UsageError, match="cuda:0 to cuda:1, cpu"):
        processes.resolve_device(name)


@pytest.mark.parametrize("said", ["long", "nan", "0", "-5", "inf", ""])
def test_a_hang_timeout_that_is_no_number_of_seconds_is_told(monkeypatch, said):
    assert processes.hang_timeout() == 600
    monkeypatch.setenv("VLCLI_HANG_TIMEOUT", "90.5")
    assert processes.hang_timeout() == 90.5
    monkeypatch.setenv("VLCLI_HANG_TIMEOUT", said)
    with pytest.raises(UsageError, match="no number of seconds"):
        processes.hang_timeout()


def test_threads_are_those_asked_for_and_at_least_one(monkeypatch):
    before = torch.get_num_threads()
    try:
        assert processes.use_threads(2) == 2
        monkeypatch.setenv("OMP_NUM_THREADS", "1")
        assert processes.use_threads(None) == 1
        monkeypatch.delenv("OMP_NUM_THREADS")
        monkeypatch.setattr(processes, "busy_cores", lambda cores: 99.0)
        assert processes.use_threads(None) == 1
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("busy", "threads"), [(0.0, 2), (0.3, 2), (0.7, 1), (2.0, 1)])
def test_a_core_that_others_use_a_little_is_not_given_up(monkeypatch, busy, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(processes, "_quota", lambda: 64)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 9.0, 9.0))  # the minute before says nothing about now
    monkeypatch.setattr(processes, "busy_cores", lambda cores: busy)
    assert processes._free_cores() == threads


def test_the_work_of_this_process_does_not_count_as_that_of_others(monkeypatch):
    """Ticks and clocks stand still but for what is said here: 0.3 s of two busy cores, 0.3 s of it this process."""
    tick = os.sysconf("SC_CLK_TCK")
    ticks, own, clock = iter([100, 100 + 0.6 * tick]), iter([(1.0, 0.0), (1.2, 0.1)]), iter([5.0, 5.3])
    monkeypatch.setattr(processes, "_ticks", lambda cores: next(ticks))
    monkeypatch.setattr(processes.os, "times", lambda: next(own))
    monkeypatch.setattr(processes.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(processes.time, "sleep", lambda seconds: None)
    assert processes.busy_cores({0, 1}) == pytest.approx(1.0)
