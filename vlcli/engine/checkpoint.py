"""Checkpoints of a run under way: complete or absent, and everything a resume needs.

    checkpoints/step-00001200/   model.safetensors       the module: weights, frozen ones, buffers, momentum copy
                                 optimizer.safetensors   its moments, by "KEY:PARAMETER"
                                 optimizer.json          its numbers and groups
                                 ema.safetensors         averaged weights, where there are any
                                 state.json              where the run stood; sizes and checksums of the other files
                                 shards/, plain.safetensors instead of the first, second and fourth, where parameters
                                 are shared out (vlcli.engine.shared_checkpoint)
    checkpoints/best-00001200/   model.safetensors, state.json: the weights (averaged, if so asked) that scored best
    checkpoints/damaged-*/       one that is damaged, moved aside: nothing reads it, it may be deleted

Every file is checked against ``state.json`` (and that against itself) before anything of it is used. Weights that are
not finite are not written.

Generators are not stored: :func:`vlcli.engine.processes.seed_step` makes them from the seed and the step.
"""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli.engine import processes, shared_checkpoint
from vlcli.engine.ema import Ema
from vlcli.engine.sharding import Shards
from vlcli.engine.training_module import TrainingModule
from vlcli.engine.weights import load_exactly, read_tensors, refuse_not_finite, save_tensors
from vlcli.errors import DataError, VlcliError
from vlcli.files import facts_of, is_whole, new_folder, sweep, write_json
from vlcli.progress import Progress

FORMAT = 1
STATE, WEIGHTS, AVERAGES = "state.json", "model.safetensors", "ema.safetensors"
RESUMED = frozenset({WEIGHTS, "optimizer.safetensors", "optimizer.json"})
"""What a resume cannot do without."""


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
        extra: numbers of the engine: EMA updates, loss scaler, threads, counts of the early stop.
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
        shards: how the parameters lie on the processes; where they are shared out, every process calls what writes.
    """

    def __init__(self, folder: Path, keep: int = 2, shards: Shards | None = None) -> None:
        self.folder, self.keep, self.shards = folder, max(1, keep), shards

    def complete(self) -> list[Path]:
        """Complete-looking checkpoints, oldest first."""
        return [path for path in self._found("step") if (path / STATE).is_file()]

    def _found(self, kind: str) -> list[Path]:
        """Folders of this module's naming, by step; any other (``step-abc``) is not ours."""
        found = [path for path in self.folder.glob(f"{kind}-*") if _step_of(path) >= 0 and path.is_dir()]
        return sorted(found, key=_step_of)

    def lasting(self) -> list[Path]:
        """Those that were due by step or epoch, and the newest: what is averaged must not hang on a machine's speed.

        The others were written because time had passed or a signal came (``passing`` in :attr:`Position.extra`), for a
        resume alone.
        """
        found = self.complete()
        return [path for path in found if path == found[-1] or not _is_passing(path)]

    def save(self, module: TrainingModule, optimizer: torch.optim.Optimizer, ema: Ema | None, at: Position) -> Path:
        """Write a checkpoint and drop the oldest; see :meth:`lasting` for which count.

        Raises:
            VlcliError: weights are not finite, or the disk is full; older checkpoints are intact.
        """
        final = self.folder / f"step-{at.step:08d}"
        if self.shards is not None and self.shards.active:
            return self._save_shares(final, self.shards, optimizer, ema, at)
        self._refuse_not_finite(module.state_dict(), module, at)
        if ema is not None:
            refuse_not_finite({f"average of {name}": v for name, v in ema.shadow.items()}, f"step {at.step}")
        with new_folder(final) as folder:
            save_tensors(folder / WEIGHTS, module.state_dict())
            _save_optimizer(folder, optimizer)
            if ema is not None:
                save_tensors(folder / AVERAGES, ema.shadow)
            _save_state(folder, at)
        self._prune(at)
        return final

    def _save_shares(
        self, final: Path, shards: Shards, optimizer: torch.optim.Optimizer, ema: Ema | None, at: Position
    ) -> Path:
        with shared_checkpoint.together(final) as folder:
            facts = shared_checkpoint.write(folder, shards, optimizer, ema, f"step {at.step}, epoch {at.epoch + 1}")
            if processes.rank() == 0:
                _save_state(folder, at, facts)
        if processes.rank() == 0:
            self._prune(at)
        return final

    def save_best(self, module: TrainingModule, at: Position) -> None:
        """Keep the training module's weights as the best; the one before it goes with the next :meth:`save`.

        Raises:
            VlcliError: they are not finite, or the disk is full.
        """
        state = module.state_dict() if self.shards is None else self.shards.gathered()
        if processes.rank() == 0:
            self._refuse_not_finite(state, module, at)
            with new_folder(self.folder / f"best-{at.best:08d}") as folder:
                save_tensors(folder / WEIGHTS, state)
                _save_state(folder, at)

    def _refuse_not_finite(self, state: Mapping[str, Tensor], module: TrainingModule, at: Position) -> None:
        kept = self.complete()
        hint = f"the last good checkpoint is {kept[-1]}; " if kept else "no checkpoint was written yet; "
        hint += "lower optimizer.lr, lengthen schedule.warmup or set clip"
        buffers = {name for name, _ in module.named_buffers()}
        refuse_not_finite(state, f"step {at.step}, epoch {at.epoch + 1}", buffers, hint)

    def best(self, step: int) -> dict[str, Tensor]:
        """The weights of :meth:`save_best` at ``step``.

        Raises:
            DataError: they are gone or damaged.
        """
        path = self.folder / f"best-{step:08d}"
        read_state(path)
        return read_tensors(path / WEIGHTS)

    def weights(self, step: int, *, averaged: bool) -> dict[str, Tensor]:
        """The weights of :meth:`save` at ``step``; ``averaged``: with the averages in their places.

        Raises:
            DataError: there are none, or they are damaged.
        """
        path = self.folder / f"step-{step:08d}"
        read_state(path, frozenset({WEIGHTS, AVERAGES} if averaged else {WEIGHTS}))
        if (path / shared_checkpoint.PLAIN).is_file():
            return shared_checkpoint.weights(path, averaged=averaged)
        plain = read_tensors(path / WEIGHTS)
        averages = read_tensors(path / AVERAGES) if averaged else {}
        placed = {id(plain[name]): value for name, value in averages.items()}
        return {name: placed.get(id(value), value) for name, value in plain.items()}  # tied names have one average

    def resume(
        self,
        module: TrainingModule,
        optimizer: torch.optim.Optimizer,
        ema: Ema | None,
        progress: Progress,
        *,
        leads: bool = True,
    ) -> Position | None:
        """Load the newest checkpoint that is whole; None where there is none.

        Damaged ones are passed over with a warning and moved aside.

        Args:
            module: to fill.
            optimizer: to fill.
            ema: to fill, where there is one.
            progress: where to warn.
            leads: whether this process is the one that writes, and so moves and clears up.

        Raises:
            DataError: the newest whole one is of another model.
        """
        shared = self.shards is not None and self.shards.active
        found = self._newest(ema, progress, leads=leads) if leads or not shared else None
        found = processes.share(found) if shared else found  # all of them read the same one
        if found is not None:
            path, at = found
            self._load(path, module, optimizer, ema)
            if ema is not None:
                ema.updates = int(at.extra.get("ema", 0))
            if leads:
                self._forget_after(at.step)
            return at
        for path in self._found("best") if leads else ():
            target = _free_name(path, "left")
            progress.warn(f"training starts at step 0; {path.name} of the run before is kept as {target.name}")
            path.rename(target)
        return None

    def _newest(self, ema: Ema | None, progress: Progress, *, leads: bool) -> tuple[Path, Position] | None:
        """The newest whole checkpoint; damaged ones are moved aside."""
        if leads:
            sweep(self.folder)
        for path in reversed(self._found("step")):
            try:
                return path, read_state(path, RESUMED | ({AVERAGES} if ema is not None else frozenset()))
            except DataError as error:
                self.set_aside(path, error, progress, leads=leads)
        return None

    def _load(self, path: Path, module: TrainingModule, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
        """Either kind of checkpoint into parameters that lie either way."""
        shards = self.shards or Shards(module)
        if (path / shared_checkpoint.PLAIN).is_file():
            shared_checkpoint.load(path, shards, optimizer, ema)
            return
        load_exactly(module, read_tensors(path / WEIGHTS), str(path), shards.part_of)
        _load_optimizer(path, optimizer, shards)
        if ema is not None:
            for name, value in read_tensors(path / AVERAGES).items():
                ema.shadow[name].copy_(shards.part_of(name, value))

    def set_aside(self, path: Path, error: DataError, progress: Progress, *, leads: bool = True) -> None:
        """Move a damaged checkpoint to ``damaged-NAME``, where it can neither stand for a sound one nor prune one."""
        target = _free_name(path, "damaged")
        progress.warn(f"checkpoint {path.name} is damaged ({error.got or error.what}): moved to {target.name}")
        if leads and path.exists():
            path.rename(target)

    def _prune(self, at: Position) -> None:
        found = self.complete()
        for path in {*found} - {*self.lasting()[-self.keep :], *found[-min(2, self.keep) :]}:
            shutil.rmtree(path, ignore_errors=True)
        for path in self._found("best"):
            if _step_of(path) != at.best:
                shutil.rmtree(path, ignore_errors=True)

    def _forget_after(self, step: int) -> None:
        """Drop what lies in the future of the checkpoint resumed from."""
        for path in [*self._found("step"), *self._found("best")]:
            if _step_of(path) > step:
                shutil.rmtree(path, ignore_errors=True)

    def clear(self) -> None:
        """Forget everything (a run that starts anew)."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _free_name(path: Path, word: str) -> Path:
    """``WORD-NAME`` beside ``path``, numbered where that is taken."""
    target, number = path.with_name(f"{word}-{path.name}"), 1
    while target.exists():
        number += 1
        target = path.with_name(f"{word}-{path.name}-{number}")
    return target


def _step_of(path: Path) -> int:
    """The step in a checkpoint's name; -1 where the name is none of ours."""
    number = path.name.partition("-")[2]
    return int(number) if number.isascii() and number.isdigit() and 8 <= len(number) <= 18 else -1


def _is_passing(path: Path) -> bool:
    try:
        return bool(json.loads((path / STATE).read_text(encoding="utf-8"))["position"]["extra"].get("passing"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # damaged: a resume says so


def read_state(path: Path, needed: frozenset[str] = frozenset({WEIGHTS})) -> Position:
    """Where the run stood, after checking that the checkpoint is whole.

    Args:
        path: the checkpoint.
        needed: files that it must hold.

    Raises:
        DataError: a file is missing, truncated or changed.
        VlcliError: a newer vlcli wrote it.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if state["format"] > FORMAT:
            hint = "upgrade: pip install -U vlcli"
            raise VlcliError("A newer vlcli wrote this checkpoint.", where=str(path), hint=hint)
        spread = shared_checkpoint.is_spread(state["files"])
        needed = frozenset({shared_checkpoint.PLAIN, shared_checkpoint.NUMBERS}) if spread else needed
        lacking = [name for name in sorted(needed) if name not in state["files"]]
        wrong = lacking + [name for name, facts in state["files"].items() if not is_whole(path / name, facts)]
        at = _position(state, _step_of(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError("A checkpoint cannot be read.", where=str(path), got=f"{STATE}: {error}") from error
    if wrong:
        got = f"{', '.join(wrong)} missing, truncated or changed"
        raise DataError("A checkpoint is damaged.", where=str(path), got=got)
    return at


def read_weights(path: Path) -> dict[str, Tensor]:
    """The whole weights of a checkpoint of either kind, or of a file of weights; tied names hold one tensor.

    Raises:
        DataError: they cannot be read.
    """
    if (path / shared_checkpoint.PLAIN).is_file():
        return shared_checkpoint.weights(path)
    return read_tensors(path / WEIGHTS if path.is_dir() else path)


def _position(state: dict[str, Any], step: int) -> Position:
    """The position, where it is the one that was written.

    Raises:
        ValueError: it is not.
    """
    given = state["position"]
    if "crc32" in state and state["crc32"] != _sum_of(given):  # vlcli 0.1 of earlier days wrote none
        raise ValueError("its position was changed")
    at = Position(**given)
    counts = (at.step, at.epoch, at.batch, at.examples, at.best)
    if any(type(number) is not int for number in counts) or not isinstance(at.extra, dict):
        raise ValueError("its position is no position")
    if step not in (at.step, at.best):
        raise ValueError(f"it is of step {at.step}")
    return at


def _sum_of(position: Any) -> int:
    return zlib.crc32(json.dumps(position, sort_keys=True).encode())


def _save_state(folder: Path, at: Position, files: Mapping[str, Any] | None = None) -> None:
    files = files or {path.name: facts_of(path) for path in sorted(folder.iterdir())}
    position = json.loads(json.dumps(vars(at)))  # as it will be read: tuples are lists
    state = {"format": FORMAT, "position": position, "crc32": _sum_of(position), "files": files}
    write_json(folder / STATE, state)


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


def _load_optimizer(path: Path, optimizer: torch.optim.Optimizer, shards: Shards) -> None:
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
        part = shards.part_of(name, value) if isinstance(value, Tensor) else value
        state.setdefault(rows[name], {})[key] = part
    groups = optimizer.state_dict()["param_groups"]
    for group, old in zip(groups, saved["groups"], strict=True):
        group.update({k: tuple(v) if isinstance(v, list) and k == "betas" else v for k, v in old.items()})
    optimizer.load_state_dict({"state": state, "param_groups": groups})
