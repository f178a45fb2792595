"""Twenty kills of either of two processes at any moment: what remains is that of a run that nobody killed."""

from __future__ import annotations

import random
import subprocess
import time
from contextlib import nullcontext, suppress
from pathlib import Path

import forked
import pytest
import torch
from process_group import places

from tests.engine import sharded
from tests.engine.test_processes import ROOT, environment
from vlcli.engine.trackers import read_log
from vlcli.engine.weights import read_tensors

pytestmark = pytest.mark.slow


def both(folder: Path, mode: str) -> list[forked.Started]:
    """Two processes of one training; they go on from the folder's checkpoints."""
    words, script = [folder, mode, "6", "sgd", "all", "long"], Path(sharded.__file__)
    return [forked.Started(words, ROOT, environment(**place), script) for place in places(2)]


def newest(folder: Path) -> int:
    return max((int(path.name[5:]) for path in (folder / "checkpoints").glob("step-*")), default=0)


def killed(folder: Path, mode: str, draw: random.Random) -> None:
    """Start both, kill one of them some steps after the newest checkpoint, or before they have gone on."""
    before, ranks = newest(folder), both(folder, mode)
    wanted = before + draw.randrange(1, 12)
    until = time.monotonic() + (draw.uniform(0.5, 4) if draw.random() < 0.2 else 120)
    while newest(folder) < wanted and time.monotonic() < until:
        assert None in [process.poll() for process in ranks], ranks[0].communicate()[1][-3000:]
        time.sleep(0.005)
    time.sleep(draw.uniform(0, 0.03))
    dies = draw.randrange(2)
    assert ranks[dies].poll() is None, "it was at its end already"
    ranks[dies].kill()
    met = newest(folder) != before
    with nullcontext() if met else suppress(subprocess.TimeoutExpired):  # before they met, one waits for the other
        ranks[1 - dies].wait(10)
    if ranks[1 - dies].poll() is None:
        ranks[1 - dies].kill()
    for process in ranks:
        process.communicate(60)


def finished(folder: Path, mode: str) -> Path:
    for process in both(folder, mode):
        errors = process.communicate(300)[1]
        assert process.returncode == 0, errors[-3000:]
    return folder


@pytest.mark.parametrize("mode", ["none", "full"])
def test_twenty_kills_change_no_bit(tmp_path, mode):
    whole, folder, draw = finished(tmp_path / "whole", mode), tmp_path / "killed", random.Random(mode)
    for _ in range(20):
        killed(folder, mode, draw)
    finished(folder, mode)
    for name in ("final", "ema", "chosen"):
        first, second = (read_tensors(run / f"{name}.safetensors") for run in (whole, folder))
        assert set(first) == set(second)
        assert all(torch.equal(first[key], second[key]) for key in first), name
    logs = [read_log(run / "log.jsonl") for run in (whole, folder)]
    kept = [[{k: v for k, v in row.items() if k.startswith(("step", "loss", "eval"))} for row in log] for log in logs]
    assert kept[0] == kept[1]
