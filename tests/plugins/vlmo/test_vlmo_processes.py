"""Two processes with half the batch each are one process with the whole."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from process_group import places

from tests.plugins.vlmo import ranks
from vlcli.engine.weights import read_tensors

ROOT = Path(__file__).parents[3]


def run_two(*arguments: str) -> None:
    command = [sys.executable, "-m", "tests.plugins.vlmo.ranks", *arguments]
    common = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    started = [
        subprocess.Popen(command, cwd=ROOT, env={**common, **place}, stderr=subprocess.PIPE, text=True)
        for place in places(2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors[-2000:]


@pytest.mark.slow
def test_losses_and_gradients_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    run_two(str(tmp_path / "two.safetensors"))
    two, one = read_tensors(tmp_path / "two.safetensors"), ranks.gradients([0, 1, 2, 3], False)
    assert set(one) == set(two)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value.detach().to(two[name].dtype), rtol=0, atol=1e-9, msg=name)
    assert sum(float(value.abs().sum()) > 0 for name, value in one.items() if name.startswith("grad/")) > 50


@pytest.mark.slow
def test_as_released_halves_the_encoders_gradient_and_not_the_temperature_s(tmp_path: Path) -> None:
    run_two(str(tmp_path / "two.safetensors"), "as_released")
    two, one = read_tensors(tmp_path / "two.safetensors"), ranks.gradients([0, 1, 2, 3], True)
    for name, value in one.items():
        share = 1.0 if "scale" in name.split(".")[-1] or name.startswith("loss/") else 0.5
        share = 0.5 if name.startswith("grad/model") else share
        torch.testing.assert_close(two[name], share * value.detach(), rtol=0, atol=1e-9, msg=name)
    assert two["loss/contrast"].item() == pytest.approx(one["loss/contrast"].item(), abs=1e-10)
