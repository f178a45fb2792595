"""The measurements for a GPU: their commands, their file, and one of them on the processor."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import gpu  # noqa: E402

INPUTS = {name: f"/made/{name}" for name in ("captions", "vocabulary", "pictures", "runs")}


@pytest.mark.parametrize("piece", gpu.PIECES, ids=lambda piece: piece.name)
@pytest.mark.parametrize("tiny", [False, True])
def test_every_command_is_whole(piece: gpu.Piece, tiny: bool) -> None:
    words = gpu.command(piece, INPUTS, Namespace(device="cuda:0", tiny=tiny))
    assert not any("{" in word for word in words)
    assert "cuda:0" in words
    assert words[1] == "-m" or Path(words[1]).is_file()
    assert piece.about <= gpu.LIMIT


def test_all_pieces_fit_in_forty_minutes() -> None:
    assert sum(piece.about for piece in gpu.PIECES) <= 2400 + 180  # both pieces for two GPUs replace nothing


def test_names_are_different() -> None:
    assert len({piece.name for piece in gpu.PIECES}) == len(gpu.PIECES)


def test_a_half_written_line_does_not_count_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    file = tmp_path / "gpu.jsonl"
    assert gpu.read(file) == []
    gpu.add(file, {"piece": "one"})
    with file.open("a") as opened:
        opened.write('{"piece": "tw')
    gpu.add(file, {"piece": "three"})
    gpu.add(file, {"piece": "four"})
    assert [row["piece"] for row in gpu.read(file)] == ["one", "three", "four"]


RUN = (
    *("irpe-224-forward", "irpe-384-memory", "irpe-224-flex", "lxmert-step", "vlmo-step", "ace-rpe-384", "beam"),
    *("extraction", "loader", "parity", "kill", "ddp", "fsdp2"),
)
"""Pieces that take seconds at the smallest sizes; compiling and the quickstart's take minutes."""


@pytest.mark.slow
@pytest.mark.parametrize("name", RUN)
def test_a_piece_runs_on_the_processor_and_once(tmp_path: Path, name: str) -> None:
    words = [sys.executable, str(BENCHMARKS / "gpu.py"), "--json", str(tmp_path / "cpu.jsonl"), "--device", "cpu"]
    words += ["--tiny", "--only", name]
    first, second = (subprocess.run(words, capture_output=True, text=True, check=False) for _ in range(2))
    assert first.returncode == 0, first.stdout + first.stderr
    assert second.stdout == ""
    (row,) = map(json.loads, (tmp_path / "cpu.jsonl").read_text().splitlines())
    assert row["state"] == "done"
    assert row["lines"]
