"""Handles signals, hanging processes and due checkpoints of a training run."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import torch

from vlcli import stopping
from vlcli.engine import peers, processes, pulse
from vlcli.engine.checkpoint import Checkpoints, Position
from vlcli.engine.outcome import EarlyStop
from vlcli.engine.schedule import StepPlan
from vlcli.progress import Progress
from vlcli.recipe.schema import Training

T = TypeVar("T")
# Without ``save_every``, a checkpoint is written at each epoch's end and after so many seconds
SAVE_SECONDS = 300.0


@dataclass
class Guard:
    """Agrees between two steps with all processes whether to save and whether to go on.

    Args:
        position: of the run; the trainer advances it.
        stop: asked on rank 0, for all.
        save: writes the checkpoint of the present step, with these values in ``position.extra``.
        device: where the processes compare numbers.

    Attributes:
        unfinished: a signal interrupted the evaluation after the present step.
    """

    position: Position
    plan: StepPlan
    config: Training
    stop: EarlyStop
    checkpoints: Checkpoints
    save: Callable[[Mapping[str, Any]], None]
    device: torch.device
    progress: Progress

    def __post_init__(self) -> None:
        self.unfinished = bool(self.position.extra.get("pending"))
        self._signal, self._saved_at, self._clock_due = 0, time.monotonic(), False

    @property
    def done(self) -> bool:
        return self.position.step >= self.plan.steps or self.stop.ended

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Hold signals back until a step has ended, and end a process that hangs.

        Raises:
            Stopped: a process got a signal; the last step is in a checkpoint.
        """
        alone = processes.world() == 1
        with stopping.held(), pulse.watched_alone(processes.hang_timeout()) if alone else pulse.beating():
            try:
                yield
            except stopping.Stopped as stop:
                if self.position.step:
                    self._save(passing=True)
                    self.progress.info(f"{stop}: step {self.position.step} of {self.plan.steps} is in a checkpoint")
                stopping.end_children()
                raise

    def before_step(self, batches: Iterator[T]) -> Iterator[T]:
        """Wait for the step's first batch, then return all of them; a signal meanwhile ends the run."""
        first = self.interruptible(lambda: next(batches))
        peers.at(self.position.step)
        self._agree()
        assert first is not None, "after a signal all processes raise Stopped"
        return chain([first], batches)

    def after_step(self, *, epoch_ended: bool, resumed: bool = False) -> None:
        """Write a checkpoint if one is due by step, epoch or clock; ``resumed``: again, after its evaluation."""
        every, self.unfinished = self.config.save_every, False
        due = self.position.step % every == 0 if every else epoch_ended or self._clock_due
        if due or self.done or resumed:
            self._save(passing=not (epoch_ended or self.done or every), again=resumed)

    @contextmanager
    def evaluating(self, *, scores: bool) -> Iterator[None]:
        """Evaluate after a step, or (without ``scores``) wait for rank 0; if interrupted, a resumed run repeats it."""
        self.unfinished = True
        with pulse.during(pulse.EVALUATES if scores else pulse.WAITS):
            yield
        self._agree()

    def interruptible(self, work: Callable[[], T]) -> T | None:
        """Return the result of ``work``, or None if a signal interrupts it; the next agreement then ends the run."""
        try:
            with stopping.opened():
                return work()
        except stopping.Stopped as stop:
            self._signal = stop.number
            return None

    def finish(self) -> None:
        """Save the last step and wait for all processes."""
        if self.position.step:
            self._save()
        self._signal = stopping.asked()
        self._agree()
        processes.wait()

    def _agree(self) -> None:
        late = time.monotonic() - self._saved_at > SAVE_SECONDS
        ends = processes.rank() == 0 and self.stop.due()
        number, due = divmod(processes.highest(4 * self._signal + 2 * ends + late, self.device), 4)
        self._clock_due = bool(due % 2)
        if number:
            raise stopping.Stopped(number)
        self.stop.ended = self.stop.ended or due >= 2

    def _save(self, *, passing: bool = False, again: bool = False) -> None:
        shared = self.checkpoints.shared
        if processes.rank() and not shared:
            return
        there = any(path.name == f"step-{self.position.step:08d}" for path in self.checkpoints.complete()[-1:])
        if (processes.share(there) if shared else there) and not again:
            return
        world = processes.world() if processes.world() > 1 else None
        extra = {"world": world, "stop": self.stop.state(), "passing": passing, "pending": self.unfinished}
        with pulse.during(pulse.WRITES):
            self.save(extra)
        self._saved_at = time.monotonic()
