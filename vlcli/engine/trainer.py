"""The training loop: batches in, checkpoints and log lines out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli import stopping
from vlcli.engine import peers, processes, pulse
from vlcli.engine.checkpoint import Checkpoints, Position
from vlcli.engine.chosen import changed_world, chosen
from vlcli.engine.early_stop import EarlyStop
from vlcli.engine.ema import Ema
from vlcli.engine.learning_rate import with_rate
from vlcli.engine.memory import prepare_modules
from vlcli.engine.optim import build_optimizer
from vlcli.engine.outcome import Evaluate, Score, TrainingOutcome
from vlcli.engine.plan import StepPlan
from vlcli.engine.refusals import bad_losses, first_bad_gradient, not_finite
from vlcli.engine.schedule import set_rate
from vlcli.engine.sharding import Shards
from vlcli.engine.trackers import Tracker
from vlcli.engine.training_module import StepResult, TrainingModule
from vlcli.engine.window import Window
from vlcli.errors import DataError, VlcliError
from vlcli.nn.batch import Batch
from vlcli.progress import Progress, Silent
from vlcli.recipe.schema import Training

__all__ = ["Evaluate", "Score", "StepPlan", "Trainer", "TrainingOutcome"]

SHOWN = ("accuracy", "score")
SAVE_SECONDS = 300.0
"""Without ``save_every``, a checkpoint is written at each epoch's end and when this long has passed."""


class Trainer:
    """Trains a training module; made once per training stage, in every process, and started by :meth:`run`.

    An optimizer step takes ``accumulate`` batches of ``batch_size`` examples, summed over all processes. Random numbers
    of a step depend on (seed, step, rank), batches on (seed, epoch): on a CPU with the same number of threads, a
    resumed run computes the same bits as one that was not interrupted.

    A signal to end (:mod:`vlcli.stopping`) takes effect between two steps or during an evaluation. All processes agree
    on the step and write its checkpoint; the resumed run repeats an evaluation that was interrupted.

    Args:
        data: a ``vlcli.data.pipeline.Pipeline``.
        device: ``cpu``, ``cuda`` ... or ``auto``.
        evaluate: scores held-out data; None for no evaluation.
        resume: go on from the folder's checkpoints.
    """

    def __init__(
        self,
        module: TrainingModule,
        data: Any,
        config: Training,
        folder: Path,
        *,
        seed: int = 0,
        device: str = "auto",
        progress: Progress | None = None,
        evaluate: Evaluate | None = None,
        trackers: list[Tracker] | None = None,
        resume: bool = True,
    ) -> None:
        self.data, self.seed, self.evaluate = data, seed, evaluate
        self.progress: Progress = progress or Silent()
        self.accelerator = processes.start(device, config.precision)
        self.module = module.to(self.accelerator.device)
        prepare_modules(module, config, self.progress)
        self.plan = StepPlan.of(len(data), config, processes.world())
        shape, steps = module.model.network_shape, self.plan.steps
        self.config, self.rate_line = with_rate(config, shape, len(data), steps)
        self.shards = Shards(module, config.sharding)
        self.optimizer = self.shards.localise(build_optimizer(module, self.config.optimizer))
        self.ema = Ema(module, config.ema) if config.ema else None
        self.checkpoints = Checkpoints(folder / "checkpoints", config.keep, self.shards)
        self.trackers = (trackers or []) if processes.rank() == 0 else []
        self.at = self._resume(resume) or Position()
        idle = self.at.extra.get("idle")
        self._wrapped, self._stepper = self.shards.prepare(self.accelerator, self.optimizer, idle)
        if (saved := self.at.extra.get("scaler")) and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(saved)
        self.window = Window(self.at.window)
        self.stop = EarlyStop(config.stop, self.at.extra.get("stop", {}))
        self._saved_at = time.monotonic()
        self.last: dict[str, float] = self.at.extra.get("last", {})
        self._clock_due = False
        self._pending = bool(self.at.extra.get("pending"))  # what follows this step was broken off

    def run(self) -> TrainingOutcome:
        """Train to the end of the plan.

        Raises:
            VlcliError: the loss, the gradient or a weight is not finite, or the disk is full.
            Stopped: a signal came; a checkpoint is written.
        """
        alone = processes.world() == 1
        with stopping.held(), pulse.watched_alone(processes.hang_timeout()) if alone else pulse.beating():
            try:
                return self._run()
            except stopping.Stopped as stop:
                self._save_if(self.at.step > 0, passing=True)
                if self.at.step:
                    self.progress.info(f"{stop}: step {self.at.step} of {self.plan.steps} is in a checkpoint")
                stopping.end_children()
                raise

    def _run(self) -> TrainingOutcome:
        for tracker in self.trackers:
            tracker.resume(self.at.step)
        self.module.train()
        with self.progress.task("train", self.plan.steps, unit="step", done=self.at.step) as self._bar:
            if self._pending:
                self._close_step(self.at.batch == 0, again=True)
            while not self._done:
                self._epoch()
        for tracker in self.trackers:
            tracker.close()
        self._save_if(self.at.step > 0)
        self._agree(stopping.asked())
        processes.wait()
        self.shards.dissolve(self.ema.shadow if self.ema else {})
        reason = self.stop.reason(self.at.step, self.plan.steps)
        best, number, reason = processes.share((self.at.best_metrics, self.at.best, reason))
        return TrainingOutcome(self.at.step, self.at.epoch, self.last, best, number, self.at.examples, reason)

    @property
    def _done(self) -> bool:
        return self.at.step >= self.plan.steps or self.stop.ended

    def _epoch(self) -> None:
        batches = self._batches()
        while not self._done and self.at.batch < self.plan.batches:
            count = min(self.config.accumulate, self.plan.batches - self.at.batch)
            self._step(batches, count)
            self.at.batch += count
            ended = self.at.batch >= self.plan.batches
            if ended:
                self.at.epoch, self.at.batch = self.at.epoch + 1, 0
            self._after(ended)
            if ended:
                return

    def _batches(self) -> Iterator[Batch]:
        loader = self.data.loader(
            self.config.batch_size,
            shuffle=True,
            epoch=self.at.epoch,
            start_batch=self.at.batch,
            rank=processes.rank(),
            world=processes.world(),
            workers=self.config.workers,
            drop_last=self.plan.drop_last,
        )
        source = iter(loader)
        while True:
            begun = time.perf_counter()
            pulse.note(pulse.LOADS)
            batch = next(source, None)
            if batch is None:
                return
            pulse.note(pulse.COMPUTES)
            batch = batch.to(self.accelerator.device, non_blocking=True)
            self.window.waited += time.perf_counter() - begun
            yield batch

    def _next(self, batches: Iterator[Batch]) -> Batch:
        batch = next(batches, None)
        if batch is None:
            where, expected = f"epoch {self.at.epoch + 1}, batch {self.at.batch + 1}", f"{self.plan.batches} batches"
            raise DataError("The data ended before the epoch did.", where=where, expected=expected)
        return batch

    def _first(self, batches: Iterator[Batch]) -> Batch:
        """The batch that opens a step: nothing of the step is done yet, so that it can be left to a later run."""
        asked, batch = 0, None
        try:
            with stopping.opened():
                batch = self._next(batches)
        except stopping.Stopped as stop:
            asked = stop.number
        peers.at(self.at.step)
        self._agree(asked)
        assert batch is not None
        return batch

    def _agree(self, asked: int) -> None:
        """Agree on all processes whether a signal stops them (0: none), a checkpoint is due, this step is the last."""
        late = time.monotonic() - self._saved_at > SAVE_SECONDS
        ends = processes.rank() == 0 and self.stop.due()
        number, due = divmod(processes.highest(4 * asked + 2 * ends + late, self.accelerator.device), 4)
        self._clock_due = bool(due % 2)
        if number:
            raise stopping.Stopped(number)
        self.stop.ended = self.stop.ended or due >= 2

    def _step(self, batches: Iterator[Batch], count: int) -> None:
        """One optimizer step over ``count`` batches."""
        first = self._first(batches)
        rate = set_rate(self.optimizer, self.config, self.at.step, self.plan.steps)
        for part in range(count):
            self._accumulate(self._next(batches) if part else first, part, count, rate)
        norm = self._clip(rate)
        self.shards.hand_over(self.optimizer)
        self._stepper.step()
        self._stepper.zero_grad(set_to_none=True)
        if self.accelerator.optimizer_step_was_skipped:
            self.module.drop_step()
        else:
            self.module.close_step()
            if self.ema is not None:
                self.ema.update(self.module)
        self.at.step += 1
        self.window.note(norm, rate)

    def _accumulate(self, batch: Batch, part: int, count: int, rate: float) -> None:
        processes.seed_step(self.seed, self.at.step, part)
        last = part == count - 1
        facts = {"epoch": self.at.epoch, "index": self.at.step}
        if part == 0:
            self.module.open_step(batch, **facts)
        with nullcontext() if last or self.shards.active else self.accelerator.no_sync(self._wrapped):
            result: StepResult = self._wrapped(batch, **facts, first=False)
            if bad := bad_losses(result):
                raise self._not_finite("The loss is not finite.", bad, rate)
            self.accelerator.backward(self.shards.agreed(result.total) / count)
        size = min(self.config.batch_size, len(self.data))  # rows of all processes
        self.at.examples += size
        self.window.add(result, size)

    def _clip(self, rate: float) -> Tensor:
        """The gradient's norm before clipping."""
        self.shards.average_rest()
        self.accelerator.unscale_gradients(self._stepper)
        trained = [p for p in self.module.parameters() if p.grad is not None]
        norm = self.shards.total_norm([p.grad for p in trained if p.grad is not None])
        # In fp16 an overflow is the loss scaler's business: it skips the step.
        if self.config.precision != "fp16" and not math.isfinite(float(norm)):
            got = f"norm {float(norm)}, first of {first_bad_gradient(self.module)}"
            raise self._not_finite("The gradient is not finite.", got, rate)
        if self.config.clip is not None:
            self.shards.clip(trained, self.config.clip, norm)
        return norm

    def _not_finite(self, what: str, got: str, rate: float) -> VlcliError:
        where = f"step {self.at.step + 1}, epoch {self.at.epoch + 1}"
        return not_finite(what, got, where, rate, self.module, self.checkpoints.complete())

    def _after(self, epoch_ended: bool) -> None:
        """What follows an optimizer step: log, evaluate, save."""
        if self.at.step % self.config.log_every == 0 or self._done:
            self._log(epoch_ended)
        learnt = [name for name in self.last if name.rpartition("/")[2] in SHOWN]
        shown = {name: self.last[name] for name in ("loss", *learnt, "lr") if name in self.last}
        self._bar.advance(1, **shown, **self.window.speed)
        self._close_step(epoch_ended)

    def _close_step(self, epoch_ended: bool, *, again: bool = False) -> None:
        """Evaluate and save; ``again``: a signal broke it off, and the checkpoint of this step says so."""
        every, done = self.config.evaluate_every, self._done
        due = self.at.step % every == 0 if every else epoch_ended
        if self.evaluate is not None and (due or done):
            self._pending = True
            self._evaluate()
        self._pending = False
        if self._done and not done and self.at.step % self.config.log_every:
            self._log(epoch_ended)
        due = epoch_ended or self._done or bool(self.config.save_every)
        self._save_if(self._save_due(epoch_ended) or self._done or again, passing=not due, again=again)

    def _log(self, epoch_ended: bool) -> None:
        epoch = self.at.epoch - 1 if epoch_ended else self.at.epoch  # the last window's, for weights
        values = self.window.close(lambda name: self.module.weight(name, epoch))
        progress = self.at.epoch + self.at.batch / self.plan.batches
        self.last = {name: value for name, value in values.items() if name not in Window.TIMES}
        self._track({"epoch": progress, **values})

    def _track(self, values: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            tracker.log(self.at.step, values)

    def _evaluate(self) -> None:
        """Rank 0 scores, or all ranks together; those that need it learn the score."""
        asked, first = 0, processes.rank() == 0
        scores = first or bool(getattr(self.evaluate, "joint", False))
        pulse.note(pulse.EVALUATES if scores else pulse.WAITS)
        score: Score | None = None
        with self._scored_weights():
            if scores:
                try:
                    score = self._score()
                except stopping.Stopped as stop:
                    asked = stop.number
            processes.wait()
        score = processes.share(score) if self.shards.active else score
        if score is not None and (first or self.shards.active):
            self.stop.note(self.at.step, score.value)
            self._keep_best(score)
            self._track({f"eval/{name}": value for name, value in score.metrics.items()})
        processes.wait()
        self.module.train()
        self._agree(asked)

    @contextmanager
    def _scored_weights(self) -> Iterator[None]:
        """The weights that are scored: averaged where averages are kept, and whole."""
        with self.ema.applied(self.module) if self.ema else nullcontext(), self.shards.whole():
            yield

    def _score(self, *, alone: bool = False) -> Score:
        """The score of the weights as they are now (averaged, where averages are kept)."""
        assert self.evaluate is not None
        score = getattr(self.evaluate, "alone", self.evaluate) if alone else self.evaluate
        with stopping.opened():
            return score(self.accelerator.autocast, max(0, self.at.epoch - (self.at.batch == 0)))

    def _keep_best(self, score: Score) -> None:
        if math.isnan(score.value):
            self.progress.warn(f"the validation score of step {self.at.step} is not a number: it cannot be the best")
        elif self.at.best_score is None or score.value > self.at.best_score:
            self.at.best, self.at.best_score, self.at.best_metrics = self.at.step, score.value, score.metrics
            with self.ema.applied(self.module) if self.ema else nullcontext():
                self.checkpoints.save_best(self.module, self.at)

    def chosen(self, outcome: TrainingOutcome) -> tuple[TrainingOutcome, dict[str, Tensor]]:
        """The weights that this run leaves, and the outcome that is true of them; for rank 0."""
        makers = self._last_weights, self._last_score
        return chosen(outcome, self.checkpoints, *makers, self.progress, averaged=self.ema is not None)

    def _last_score(self) -> Score:
        with self._scored_weights():
            return self._score(alone=True)

    def _last_weights(self) -> dict[str, Tensor]:
        with self.ema.applied(self.module) if self.ema else nullcontext():
            state = self.module.state_dict()
            return {name: tensor.clone() for name, tensor in state.items()} if self.ema else state

    def _save_due(self, epoch_ended: bool) -> bool:
        if self.config.save_every:
            return self.at.step % self.config.save_every == 0
        return epoch_ended or self._clock_due

    def _save_if(self, due: bool, *, passing: bool = False, again: bool = False) -> None:
        """Write a checkpoint (rank 0, or all their shares), unless this step's is there; ``passing``: for resumes."""
        if not due or (processes.rank() != 0 and not self.shards.active):
            return
        last = self.checkpoints.complete()[-1:]
        there = bool(last) and last[0].name == f"step-{self.at.step:08d}"
        if (processes.share(there) if self.shards.active else there) and not again:
            return
        self.at.window = self.window.sums()
        self.at.extra = {"last": self.last, "threads": torch.get_num_threads(), **self._engine_numbers()}
        self.at.extra |= {"world": processes.world()} if processes.world() > 1 else {}
        self.at.extra |= {"stop": stop} if (stop := self.stop.state()) else {}
        self.at.extra |= {"passing": True} if passing else {}
        self.at.extra |= {"pending": True} if self._pending else {}
        pulse.note(pulse.WRITES)
        self.checkpoints.save(self.module, self.optimizer, self.ema, self.at)
        pulse.note(pulse.COMPUTES)
        self._saved_at = time.monotonic()

    def _engine_numbers(self) -> dict[str, Any]:
        scaler = self.accelerator.scaler
        numbers: dict[str, Any] = {"ema": self.ema.updates} if self.ema else {}
        copies = self.shards.copies
        numbers |= {"idle": copies.idle} if copies is not None and copies.idle is not None else {}
        return numbers | ({"scaler": scaler.state_dict()} if scaler is not None else {})

    def _resume(self, wanted: bool) -> Position | None:
        if not wanted:
            if processes.rank() == 0:
                self.checkpoints.clear()
            processes.wait()
            return None
        first, turns = processes.rank() == 0, not self.shards.active
        if turns and not first:
            processes.wait()  # the first process moves damaged checkpoints away before the others look
        at = self.checkpoints.resume(self.module, self.optimizer, self.ema, self.progress, leads=first)
        if turns and first:
            processes.wait()
        if at is not None:
            self.progress.info(f"resuming at step {at.step} of {self.plan.steps}")
            if told := changed_world(int(at.extra.get("world", 1))):
                self.progress.info(told)
            if self.config.threads is None and "threads" in at.extra:
                torch.set_num_threads(at.extra["threads"])  # sums differ in their last bits with the threads
        return at
