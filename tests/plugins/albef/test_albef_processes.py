"""Momentum queues do not depend on the number of processes, whatever the batch and the queue."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from process_group import places

from tests.plugins.albef import ranks
from vlcli.engine.weights import read_tensors
from vlcli.objectives.contrast import dealt_order

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("size", [1, 3, 7, 15])
def test_gathered_rows_go_back_to_the_order_they_were_dealt_in(size: int, world: int) -> None:
    parts = [torch.arange(size)[rank::world] for rank in range(world)]
    order = dealt_order(torch.tensor([len(part) for part in parts]))
    assert torch.cat(parts)[order].tolist() == list(range(size))


@pytest.mark.slow
def test_two_processes_are_one_also_with_a_queue_that_is_no_multiple_of_the_batch(tmp_path: Path) -> None:
    common = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.plugins.albef.ranks", str(tmp_path / "two.safetensors")]
    started = [
        subprocess.Popen(command, cwd=ROOT, env={**common, **place}, stderr=subprocess.PIPE, text=True)
        for place in places(2)
    ]
    one = ranks.trained(0, 1)
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-2000:]
    two = read_tensors(tmp_path / "two.safetensors")
    assert set(one) == set(two)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-9, msg=name)
    assert int(one["objectives.momentum-contrast.filled"]) == ranks.QUEUE
