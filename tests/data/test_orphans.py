"""Loader workers end with the process that reads from them, even where their pipe is full."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.generic import JsonLines
from vlcli.data.vocabulary import Tokenizer
from vlcli.nn.model import InputSpec

LEAST = 1 << 16
"""Bytes that a pipe of Linux holds: larger batches wait for their reader."""


def read(root: Path) -> None:
    """Take one batch of many, print the workers' process ids, and stay."""
    data = Pipeline([JsonLines(root)], needs=InputSpec(text=True), tokenizer=Tokenizer.train(["red"], 40), length=8)
    batches = iter(data.loader(2000, workers=2))
    batch = next(batches)
    assert batch.clean.text is not None
    assert batch.clean.text.ids.nbytes > LEAST
    print(json.dumps([child.pid for child in multiprocessing.active_children()]), flush=True)
    time.sleep(60)


def runs(pid: int) -> bool:
    """Whether a process is there, one that nobody has waited for left out."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="asks the system by /proc")
def test_workers_of_a_killed_process_end(tmp_path: Path) -> None:
    rows = [{"id": f"e{n}", "image": "a.jpg", "text": f"red {n} red red red red red red"} for n in range(20_000)]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [sys.executable, "-m", "tests.data.test_orphans", str(tmp_path)]
    root = Path(__file__).parents[2]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True, env=dict(os.environ)) as process:
        assert process.stdout is not None
        workers = json.loads(process.stdout.readline())
        time.sleep(1)  # by now they wait for a reader
        assert len(workers) == 2
        assert all(map(runs, workers))
        process.kill()
    until = time.monotonic() + 20
    while any(map(runs, workers)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(map(runs, workers))


if __name__ == "__main__":
    read(Path(sys.argv[1]))
