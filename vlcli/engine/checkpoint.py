"""Checkpoints of a run under way: complete or absent, and everything a resume needs.

    checkpoints/step-00001200/   model.safetensors       the learner: weights, frozen ones, buffers, momentum copy
                                 optimizer.safetensors   its moments, by "KEY:PARAMETER"
                                 optimizer.json          its numbers and groups
                                 ema.safetensors         averaged weights, where there are any
                                 state.json              where the run stood; sizes and checksums of the other files
    checkpoints/best-00001200/   model.safetensors, state.json: the weights (averaged, if so asked) that scored best

Generators are not stored: :func:`vlcli.engine.processes.seed_step` makes them from the seed and the step.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli.engine.ema import Ema
from vlcli.engine.files import checksum, new_folder, sweep, write_json
from vlcli.engine.learner import Learner
from vlcli.engine.weights import load_exactly, read_tensors, save_tensors
from vlcli.errors import DataError, VlcliError
from vlcli.progress import Progress

FORMAT = 1


@dataclass
class Position:
    """Where a run stands.

    Attributes:
        step: optimizer steps done.
        epoch: 0-based.
        batch: batches of this epoch consumed.
        examples: examples seen, all processes.
        best: step of the best evaluation so far; -1: none.
        best_score: what it scored, higher is better.
        best_metrics: all metrics of that evaluation.
        window: sums of the log line under way, by name: (total, count).
        extra: numbers of the engine: EMA updates, loss scaler, threads.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    examples: int = 0
    best: int = -1
    best_score: float | None = None
    best_metrics: dict[str, float] = field(default_factory=dict)
    window: dict[str, tuple[float, float]] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


class Checkpoints:
    """The checkpoints of one stage.

    Args:
        folder: ``<stage>/checkpoints``.
        keep: how many to keep.
    """

    def __init__(self, folder: Path, keep: int = 2) -> None:
        self.folder, self.keep = folder, max(1, keep)

    def list(self) -> list[Path]:
        """Complete-looking checkpoints, oldest first."""
        return sorted(path for path in self.folder.glob("step-*") if (path / "state.json").is_file())

    def lasting(self) -> list[Path]:
        """Those that were due by step or epoch, and the newest: what is averaged must not hang on a machine's speed.

        The others were written because time had passed (``passing`` in :attr:`Position.extra`), for a resume alone.
        """
        found = self.list()
        return [path for path in found if path == found[-1] or not _is_passing(path)]

    def save(self, learner: Learner, optimizer: torch.optim.Optimizer, ema: Ema | None, at: Position) -> Path:
        """Write a checkpoint and drop the oldest; see :meth:`lasting` for which count.

        Raises:
            VlcliError: the disk is full; older checkpoints are intact.
        """
        final = self.folder / f"step-{at.step:08d}"
        with new_folder(final) as folder:
            save_tensors(folder / "model.safetensors", learner.state_dict())
            _save_optimizer(folder, optimizer)
            if ema is not None:
                save_tensors(folder / "ema.safetensors", ema.shadow)
            _save_state(folder, at)
        self._prune(at)
        return final

    def save_best(self, learner: Learner, at: Position) -> None:
        """Keep the learner's weights as the best; the one before it goes with the next :meth:`save`."""
        with new_folder(self.folder / f"best-{at.best:08d}") as folder:
            save_tensors(folder / "model.safetensors", learner.state_dict())
            _save_state(folder, at)

    def best(self, step: int) -> dict[str, Tensor]:
        """The weights of :meth:`save_best` at ``step``."""
        return read_tensors(self.folder / f"best-{step:08d}" / "model.safetensors")

    def resume(
        self, learner: Learner, optimizer: torch.optim.Optimizer, ema: Ema | None, progress: Progress
    ) -> Position | None:
        """Load the newest checkpoint that is whole; None where there is none.

        A damaged one is passed over with a warning.

        Raises:
            DataError: the newest whole one is of another model.
        """
        sweep(self.folder)
        for path in reversed(self.list()):
            try:
                at = read_state(path)
            except DataError as error:
                progress.warn(f"checkpoint {path.name} is damaged ({error.got or error.what}): trying the one before")
                continue
            load_exactly(learner, read_tensors(path / "model.safetensors"), str(path))
            _load_optimizer(path, optimizer)
            if ema is not None:
                ema.load(read_tensors(path / "ema.safetensors"), int(at.extra.get("ema", 0)))
            self._forget_after(at.step)
            return at
        return None

    def _prune(self, at: Position) -> None:
        found = self.list()
        for path in {*found} - {*self.lasting()[-self.keep :], *found[-min(2, self.keep) :]}:
            shutil.rmtree(path, ignore_errors=True)
        for path in self.folder.glob("best-*"):
            if path.name != f"best-{at.best:08d}":
                shutil.rmtree(path, ignore_errors=True)

    def _forget_after(self, step: int) -> None:
        """Drop what lies in the future of the checkpoint resumed from: damaged ones, later bests."""
        for path in [*self.folder.glob("step-*"), *self.folder.glob("best-*")]:
            if int(path.name.split("-")[1]) > step:
                shutil.rmtree(path, ignore_errors=True)

    def clear(self) -> None:
        """Forget everything (a run that starts anew)."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _is_passing(path: Path) -> bool:
    try:
        return bool(json.loads((path / "state.json").read_text(encoding="utf-8"))["position"]["extra"].get("passing"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # damaged: a resume says so


def read_state(path: Path) -> Position:
    """Where the run stood, after checking that the checkpoint is whole.

    Raises:
        DataError: a file is missing, truncated or changed.
    """
    try:
        state = json.loads((path / "state.json").read_text(encoding="utf-8"))
        wrong = [name for name, facts in state["files"].items() if not _is_whole(path / name, facts)]
        at = Position(**state["position"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError("A checkpoint cannot be read.", where=str(path), got=f"state.json: {error}") from error
    if wrong:
        raise DataError("A checkpoint is damaged.", where=str(path), got=f"{', '.join(wrong)} truncated or changed")
    if state["format"] > FORMAT:
        raise VlcliError("A newer vlcli wrote this checkpoint.", where=str(path), hint="upgrade: pip install -U vlcli")
    return at


def _is_whole(path: Path, facts: dict[str, int]) -> bool:
    return path.is_file() and path.stat().st_size == facts["bytes"] and checksum(path) == facts["crc32"]


def _save_state(folder: Path, at: Position) -> None:
    files = {p.name: {"bytes": p.stat().st_size, "crc32": checksum(p)} for p in sorted(folder.iterdir())}
    write_json(folder / "state.json", {"format": FORMAT, "position": vars(at), "files": files})


def _names(optimizer: torch.optim.Optimizer) -> dict[int, str]:
    """Parameter names in the order of the optimizer's own state."""
    return dict(enumerate(name for group in optimizer.param_groups for name in group["names"]))


def _save_optimizer(folder: Path, optimizer: torch.optim.Optimizer) -> None:
    state, names = optimizer.state_dict(), _names(optimizer)
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, Any] = {}
    for row, values in state["state"].items():
        for key, value in values.items():
            place = f"{key}:{names[row]}"
            # Fused Adam's step counters are one-element tensors that may share storage.
            (tensors if isinstance(value, Tensor) else numbers)[place] = value
    save_tensors(folder / "optimizer.safetensors", {name: value.clone() for name, value in tensors.items()})
    groups = [{k: v for k, v in group.items() if k != "params"} for group in state["param_groups"]]
    write_json(folder / "optimizer.json", {"groups": groups, "numbers": numbers})


def _load_optimizer(path: Path, optimizer: torch.optim.Optimizer) -> None:
    saved = json.loads((path / "optimizer.json").read_text(encoding="utf-8"))
    mine = [group["names"] for group in optimizer.param_groups]
    if mine != [group["names"] for group in saved["groups"]]:
        raise DataError(
            "The checkpoint's optimizer trains other parameters.", where=str(path), hint="start anew with --force"
        )
    values = {**read_tensors(path / "optimizer.safetensors"), **saved["numbers"]}
    rows = {name: row for row, name in _names(optimizer).items()}
    state: dict[int, dict[str, Any]] = {}
    for place, value in values.items():
        key, _, name = place.partition(":")
        state.setdefault(rows[name], {})[key] = value
    groups = optimizer.state_dict()["param_groups"]
    for group, old in zip(groups, saved["groups"], strict=True):
        group.update({k: tuple(v) if isinstance(v, list) and k == "betas" else v for k, v in old.items()})
    optimizer.load_state_dict({"state": state, "param_groups": groups})
