"""Writes the checkpoints of a training run, complete or not at all, and resumes from the newest that is whole.

    checkpoints/step-00001200/   model.safetensors       the module: weights, frozen ones, buffers, momentum copy
                                 optimizer.safetensors   its moments, by "KEY:PARAMETER"
                                 optimizer.json          its numbers and groups
                                 ema.safetensors         averaged weights, if the run has them
                                 state.json              the position; sizes and checksums of the other files
                                 shards/, plain.safetensors instead of the first, second and fourth, if parameters
                                 are sharded (vlcli.engine.shared_checkpoint)
    checkpoints/best-00001200/   model.safetensors, state.json: the weights (averaged, if so asked) that scored best
    checkpoints/damaged-*/       a damaged checkpoint, moved aside: nothing reads it, it may be deleted

Every file is checked against ``state.json``, which has a checksum of its own. No generators are stored:
:func:`vlcli.engine.processes.seed_step` seeds them from the seed and the step.
"""

import json
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli.engine import processes, shared_checkpoint
from vlcli.engine.ema import Ema
from vlcli.engine.optimizer_state import NUMBERS, load_state, read_numbers, write_state
from vlcli.engine.sharding import Shards
from vlcli.engine.training_module import TrainingModule
from vlcli.engine.weights import REMEDY, load_exactly, read_tensors, refuse_not_finite, save_tensors
from vlcli.errors import DataError, VlcliError
from vlcli.files import facts_of, is_whole, new_folder, sweep, write_json
from vlcli.progress import Progress

FORMAT = 1
STATE, WEIGHTS, MOMENTS, AVERAGES = "state.json", "model.safetensors", "optimizer.safetensors", "ema.safetensors"


@dataclass
class Position:
    """Where a run is.

    Attributes:
        step: optimizer steps done.
        epoch: 0-based.
        batch: batches of this epoch consumed.
        examples: seen by all processes.
        best: step of the best evaluation so far, by ``best_score`` (higher is better); -1: none.
        window: (total, count) by name, for the next log line.
        extra: numbers of EMA, loss scaler, threads and early stop.
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
    """The checkpoints of one stage; if parameters are sharded, every process calls the methods that write.

    Args:
        folder: ``<stage>/checkpoints``.
    """

    def __init__(self, folder: Path, keep: int = 2, shards: Shards | None = None) -> None:
        self.folder, self.keep, self.shards = folder, max(1, keep), shards

    @property
    def shared(self) -> bool:
        """Whether each process writes its shards."""
        return self.shards is not None and self.shards.active

    def complete(self) -> list[Path]:
        """Return checkpoints that have a ``state.json``, oldest first."""
        return [path for path in self._folders("step") if (path / STATE).is_file()]

    def _folders(self, kind: str) -> list[Path]:
        folders = [path for path in self.folder.glob(f"{kind}-*") if _step_of(path) >= 0 and path.is_dir()]
        return sorted(folders, key=_step_of)

    def lasting(self) -> list[Path]:
        """Return the newest checkpoint and those that were due by step or epoch, oldest first.

        Others were written after a signal or by the clock; an average must not depend on a machine's speed.
        """
        complete = self.complete()
        return [path for path in complete if path == complete[-1] or not _is_passing(path)]

    def save(
        self, module: TrainingModule, optimizer: torch.optim.Optimizer, ema: Ema | None, position: Position
    ) -> Path:
        """Write a checkpoint and delete all but the last ``keep`` of :meth:`lasting`.

        Raises:
            VlcliError: weights are not finite, or the disk is full; older checkpoints are intact.
        """
        final = self.folder / f"step-{position.step:08d}"
        if self.shards is not None and self.shared:
            with shared_checkpoint.together(final) as folder:
                where = f"step {position.step}, epoch {position.epoch + 1}"
                facts = shared_checkpoint.write(folder, self.shards, optimizer, ema, where)
                if processes.rank() == 0:
                    _save_state(folder, position, facts)
        else:
            averages = {f"average of {name}": value for name, value in ema.shadow.items()} if ema is not None else {}
            self._refuse_not_finite({**module.state_dict(), **averages}, module, position)
            with new_folder(final) as folder:
                save_tensors(folder / WEIGHTS, module.state_dict())
                moments = write_state(folder, optimizer)
                # Fused Adam's step counters are one-element tensors that may share storage.
                save_tensors(folder / MOMENTS, {name: value.clone() for name, value in moments.items()})
                if ema is not None:
                    save_tensors(folder / AVERAGES, ema.shadow)
                _save_state(folder, position)
        if processes.rank() == 0:
            self._delete_old(position)
        return final

    def _delete_old(self, position: Position) -> None:
        complete, lasting = self.complete(), self.lasting()
        old = {*complete} - {*lasting[-self.keep :], *complete[-min(2, self.keep) :]}
        old |= {path for path in self._folders("step") if path not in complete and _step_of(path) < position.step}
        for path in [*old, *(path for path in self._folders("best") if _step_of(path) != position.best)]:
            shutil.rmtree(path, ignore_errors=True)

    def save_best(self, module: TrainingModule, position: Position) -> None:
        """Save the weights as the best; the next :meth:`save` deletes earlier ones. Raises VlcliError: as there."""
        state = module.state_dict() if self.shards is None else self.shards.gathered()
        if processes.rank() == 0:
            self._refuse_not_finite(state, module, position)
            with new_folder(self.folder / f"best-{position.best:08d}") as folder:
                save_tensors(folder / WEIGHTS, state)
                _save_state(folder, position)

    def _refuse_not_finite(self, state: Mapping[str, Tensor], module: TrainingModule, position: Position) -> None:
        buffers = {name for name, _ in module.named_buffers()}
        refuse_not_finite(state, f"step {position.step}, epoch {position.epoch + 1}", buffers, self.remedy())

    def remedy(self) -> str:
        kept = self.complete()
        last = f"the last good checkpoint is {kept[-1]}" if kept else "no checkpoint was written yet"
        return f"{REMEDY}; {last}"

    def best(self, step: int) -> dict[str, Tensor]:
        """Return the weights of :meth:`save_best` at ``step``. Raises DataError: they are gone or damaged."""
        path = self.folder / f"best-{step:08d}"
        read_state(path)
        return read_tensors(path / WEIGHTS)

    def weights(self, step: int, *, averaged: bool) -> dict[str, Tensor]:
        """Return the weights of :meth:`save` at ``step``, or their averages. Raises DataError: gone or damaged."""
        path = self.folder / f"step-{step:08d}"
        read_state(path, frozenset({WEIGHTS, AVERAGES} if averaged else {WEIGHTS}))
        if (path / shared_checkpoint.PLAIN).is_file():
            return shared_checkpoint.weights(path, averaged=averaged)
        plain = read_tensors(path / WEIGHTS)
        averages = read_tensors(path / AVERAGES).items() if averaged else ()
        replaced = {id(plain[name]): value for name, value in averages}
        return {name: replaced.get(id(value), value) for name, value in plain.items()}  # tied names have one average

    def resume(
        self, module: TrainingModule, optimizer: torch.optim.Optimizer, ema: Ema | None, progress: Progress
    ) -> Position | None:
        """Load the newest whole checkpoint, if any, into module, optimizer and averages; return its position.

        Every process calls this. Damaged checkpoints are moved aside with a warning.

        Raises:
            DataError: the checkpoint is of another model.
        """
        first = processes.rank() == 0
        if not (first or self.shared):
            processes.wait()  # rank 0 moves damaged checkpoints away before the others look
        newest = self._newest(ema, progress) if first or not self.shared else None
        newest = processes.share(newest) if self.shared else newest  # all of them read the same one
        if newest is not None:
            self._load(newest[0], module, optimizer, ema)
            if ema is not None:
                ema.updates = int(newest[1].extra.get("ema", 0))
        for path in [*self._folders("step"), *self._folders("best")] if first else ():
            if newest is None and path.name.startswith("best"):
                target = _free_name(path, "left")
                progress.warn(f"training starts at step 0; {path.name} of the run before is kept as {target.name}")
                path.rename(target)
            elif newest is not None and _step_of(path) > newest[1].step:
                shutil.rmtree(path, ignore_errors=True)
        if first and newest is not None:
            self._delete_old(newest[1])  # a run that was killed while it deleted them leaves some
        if first and not self.shared:
            processes.wait()
        return newest and newest[1]

    def _newest(self, ema: Ema | None, progress: Progress) -> tuple[Path, Position] | None:
        if processes.rank() == 0:
            sweep(self.folder)
        needed = frozenset({WEIGHTS, MOMENTS, NUMBERS}) | ({AVERAGES} if ema is not None else set())
        for path in reversed(self._folders("step")):
            try:
                return path, read_state(path, needed)
            except DataError as error:
                self.set_aside(path, error, progress)
        return None

    def _load(self, path: Path, module: TrainingModule, optimizer: torch.optim.Optimizer, ema: Ema | None) -> None:
        shards = self.shards or Shards(module)
        if (path / shared_checkpoint.PLAIN).is_file():
            shared_checkpoint.load(path, shards, optimizer, ema)
            return
        load_exactly(module, read_tensors(path / WEIGHTS), str(path), shards.part_of)
        saved, moments = read_numbers(path, optimizer), read_tensors(path / MOMENTS)
        load_state(optimizer, saved, {k: shards.part_of(k.partition(":")[2], value) for k, value in moments.items()})
        if ema is not None:
            for name, value in read_tensors(path / AVERAGES).items():
                ema.shadow[name].copy_(shards.part_of(name, value))

    def set_aside(self, path: Path, error: DataError, progress: Progress) -> None:
        """Rename a damaged checkpoint to ``damaged-NAME``, so that it neither shadows nor prunes a whole one."""
        target = _free_name(path, "damaged")
        progress.warn(f"checkpoint {path.name} is damaged ({error.got or error.what}): moved to {target.name}")
        if processes.rank() == 0 and path.exists():
            path.rename(target)

    def clear(self) -> None:
        """Delete all checkpoints; every process calls this."""
        if processes.rank() == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
        processes.wait()


def _free_name(path: Path, word: str) -> Path:
    names = (f"{word}-{path.name}{f'-{number}' * (number > 1)}" for number in count(1))
    return next(target for target in map(path.with_name, names) if not target.exists())


def _step_of(path: Path) -> int:
    # -1 for a name that is not one of `Checkpoints`
    number = path.name.partition("-")[2]
    return int(number) if number.isascii() and number.isdigit() and 8 <= len(number) <= 18 else -1


def _is_passing(path: Path) -> bool:
    try:
        return bool(json.loads((path / STATE).read_text(encoding="utf-8"))["position"]["extra"].get("passing"))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False  # damaged: a resume says so


def read_state(path: Path, needed: frozenset[str] = frozenset({WEIGHTS})) -> Position:
    """Return the position of a checkpoint whose files are whole, the ``needed`` ones among them.

    Raises:
        DataError: a file is missing, truncated or changed.
        VlcliError: a newer vlcli wrote it.
    """
    try:
        state = json.loads((path / STATE).read_text(encoding="utf-8"))
        if state["format"] > FORMAT:
            hint = "upgrade: pip install -U vlcli"
            raise VlcliError("A newer vlcli wrote this checkpoint.", where=str(path), hint=hint)
        if shared_checkpoint.PLAIN in state["files"]:
            needed = frozenset({shared_checkpoint.PLAIN, NUMBERS})
        lacking = [name for name in sorted(needed) if name not in state["files"]]
        wrong = lacking + [name for name, facts in state["files"].items() if not is_whole(path / name, facts)]
        position = _position(state, _step_of(path))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError("A checkpoint cannot be read.", where=str(path), got=f"{STATE}: {error}") from error
    if wrong:
        got = f"{', '.join(wrong)} missing, truncated or changed"
        raise DataError("A checkpoint is damaged.", where=str(path), got=got)
    return position


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the whole weights of a checkpoint or a file; tied names hold one tensor. Raises DataError: unreadable."""
    if (path / shared_checkpoint.PLAIN).is_file():
        return shared_checkpoint.weights(path)
    return read_tensors(path / WEIGHTS if path.is_dir() else path)


def _position(state: dict[str, Any], step: int) -> Position:
    values = state["position"]
    if "crc32" in state and state["crc32"] != _checksum(values):
        raise ValueError("its position was changed")
    position = Position(**values)
    counts = (position.step, position.epoch, position.batch, position.examples, position.best)
    if any(type(number) is not int for number in counts) or not isinstance(position.extra, dict):
        raise ValueError("its position is no position")
    if step not in (position.step, position.best):
        raise ValueError(f"it is of step {position.step}")
    return position


def _checksum(position: Any) -> int:
    return zlib.crc32(json.dumps(position, sort_keys=True).encode())


def _save_state(folder: Path, position: Position, files: Mapping[str, Any] | None = None) -> None:
    files = files or {path.name: facts_of(path) for path in sorted(folder.iterdir())}
    values = json.loads(json.dumps(vars(position)))  # as it will be read: tuples are lists
    write_json(folder / STATE, {"format": FORMAT, "position": values, "crc32": _checksum(values), "files": files})
