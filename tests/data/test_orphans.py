"""Helper processes end with the process that they work for, even where their pipe is full."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import forked
import pytest

from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.generic import JsonLines
from vlcli.data.vocabulary import Tokenizer
from vlcli.nn.model import InputSpec

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="asks the system by /proc")
LEAST = 1 << 16
"""Bytes that a pipe of Linux holds: larger batches wait for their reader."""


def read(root: Path) -> object:
    """Take one batch of many from two workers of a loader."""
    data = Pipeline([JsonLines(root)], needs=InputSpec(text=True), tokenizer=Tokenizer.train(["red"], 40), length=8)
    batches = iter(data.loader(2000, workers=2))
    batch = next(batches)
    assert batch.clean.text is not None
    assert batch.clean.text.ids.nbytes > LEAST
    return batches


def runs(pid: int) -> bool:
    """Whether a process is there, one that nobody has waited for left out."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def awaited(condition: Callable[[], bool], seconds: float = 240) -> bool:
    """Whether a condition comes true in time, on a busy machine."""
    until = time.monotonic() + seconds
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    return condition()


def end_with(process: forked.Started | subprocess.Popen[str], workers: list[int]) -> bool:
    """Whether processes end soon after the one that started them is killed."""
    assert len(workers) > 1
    assert all(map(runs, workers))
    process.kill()
    process.wait(timeout=60)
    return awaited(lambda: not any(map(runs, workers)), 20)


def test_workers_of_a_killed_process_end(tmp_path: Path) -> None:
    rows = [{"id": f"e{n}", "image": "a.jpg", "text": f"red {n} red red red red red red"} for n in range(20_000)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    process = forked.Started([tmp_path], tmp_path, os.environ, Path(__file__))
    told = tmp_path / "pids.json"
    try:
        assert awaited(lambda: told.exists() or process.poll() is not None)
        time.sleep(1)  # by now they wait for a reader
        assert end_with(process, json.loads(told.read_text()))
    finally:
        process.kill()


def test_drawing_processes_of_a_killed_command_end(tmp_path: Path) -> None:
    words = ["data", "make", "shapes", "world", "parts=[coco]", "--images", "20000", "--workers", "2"]
    process = forked.Started(words, tmp_path, os.environ)
    try:
        assert awaited(lambda: any(tmp_path.rglob("*.png")) or process.poll() is not None)
        assert end_with(process, forked.children(process.pid))
    finally:
        process.kill()


POOL = """
import multiprocessing, sys, time
from concurrent.futures import ProcessPoolExecutor
from vlcli.stopping import end_with_parent

pool = ProcessPoolExecutor(2, multiprocessing.get_context(sys.argv[1]), end_with_parent)
for _ in range(2):
    pool.submit(time.sleep, 600)
time.sleep(1)
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_end_however_they_were_started(method: str) -> None:
    process = subprocess.Popen([sys.executable, "-c", POOL, method], stdout=subprocess.PIPE, text=True)
    with process:
        try:
            assert process.stdout is not None
            assert end_with(process, list(map(int, process.stdout.readline().split())))
        finally:
            process.kill()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    held = read(folder)
    (folder / "pids.tmp").write_text(json.dumps([child.pid for child in multiprocessing.active_children()]))
    (folder / "pids.tmp").rename(folder / "pids.json")
    time.sleep(600)
