"""The training loop: batches in, checkpoints and log lines out."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vlcli import stopping
from vlcli.engine import peers, processes
from vlcli.engine.checkpoint import Checkpoints, Position
from vlcli.engine.ema import Ema
from vlcli.engine.memory import prepare_modules
from vlcli.engine.optim import build_optimizer
from vlcli.engine.outcome import Evaluate, Score, TrainingOutcome
from vlcli.engine.plan import StepPlan
from vlcli.engine.schedule import factor
from vlcli.engine.trackers import Tracker
from vlcli.engine.training_module import StepResult, TrainingModule
from vlcli.engine.weights import first_not_finite
from vlcli.engine.window import Window
from vlcli.errors import DataError, Problem, RecipeError, VlcliError
from vlcli.nn.batch import Batch
from vlcli.progress import Progress, Silent
from vlcli.recipe.schema import Training

__all__ = ["Evaluate", "Score", "StepPlan", "Trainer", "TrainingOutcome"]

SHOWN = ("accuracy", "score")  # metrics of objectives that the progress line shows beside the loss
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
        module: what is trained.
        data: a ``vlcli.data.pipeline.Pipeline``.
        config: the stage's section of the recipe.
        folder: the stage's folder.
        seed: the run's seed.
        device: ``cpu``, ``cuda`` ... or ``auto``.
        progress: where to report.
        evaluate: scores held-out data; None for no evaluation.
        trackers: get every log line.
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
        self.config, self.data, self.seed, self.evaluate = config, data, seed, evaluate
        self.progress: Progress = progress or Silent()
        self.accelerator = processes.start(device, config.precision)
        self.module = module.to(self.accelerator.device)
        prepare_modules(module, config, self.progress)
        self.plan = StepPlan.of(len(data), config, processes.world())
        self.optimizer = build_optimizer(module, config.optimizer)
        self.ema = Ema(module, config.ema) if config.ema else None
        self.checkpoints = Checkpoints(folder / "checkpoints", config.keep)
        self.trackers = (trackers or []) if processes.rank() == 0 else []
        self.at = self._resume(resume) or Position()
        with warnings.catch_warnings():
            # torch renames an option that accelerate still passes by its old name.
            warnings.filterwarnings("ignore", ".*broadcast_buffers.*", FutureWarning)
            self._wrapped, self._stepper = self.accelerator.prepare(module, self.optimizer)
        self._restore_scaler()
        self.window = Window(self.at.window)
        self._saved_at = time.monotonic()
        self.last: dict[str, float] = self.at.extra.get("last", {})
        self._pending = bool(self.at.extra.get("pending"))  # what follows this step was broken off

    def run(self) -> TrainingOutcome:
        """Train to the end of the plan.

        Raises:
            VlcliError: the loss, the gradient or a weight is not finite, or the disk is full.
            Stopped: a signal came; a checkpoint is written.
        """
        with stopping.held():
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
            while self.at.step < self.plan.steps:
                self._epoch()
        for tracker in self.trackers:
            tracker.close()
        self._save_if(self.at.step > 0)
        self._agree(stopping.asked())
        processes.wait()
        best, number = processes.share((self.at.best_metrics, self.at.best))
        return TrainingOutcome(self.at.step, self.at.epoch, self.last, best, number, self.at.examples)

    def _epoch(self) -> None:
        batches = self._batches()
        while self.at.step < self.plan.steps and self.at.batch < self.plan.batches:
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
            batch = next(source, None)
            if batch is None:
                return
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
        """Stop on all processes if one of them was asked to (the number of the signal; 0: it was not)."""
        number = processes.highest(asked, self.accelerator.device)
        if number:
            raise stopping.Stopped(number)

    def _step(self, batches: Iterator[Batch], count: int) -> None:
        """One optimizer step over ``count`` batches."""
        first = self._first(batches)
        rate = self._set_rate()
        for part in range(count):
            self._accumulate(self._next(batches) if part else first, part, count, rate)
        norm = self._clip(rate)
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
        with nullcontext() if last else self.accelerator.no_sync(self._wrapped):
            facts = {"epoch": self.at.epoch, "index": self.at.step, "first": part == 0}
            result: StepResult = self._wrapped(batch, **facts)
            self._refuse_bad_loss(result, rate)
            self.accelerator.backward(result.total / count)
        size = min(self.config.batch_size, len(self.data))  # rows of all processes
        self.at.examples += size
        self.window.add(result, size)

    def _clip(self, rate: float) -> Tensor:
        """The gradient's norm before clipping."""
        self.accelerator.unscale_gradients(self._stepper)
        trained = [p for p in self.module.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
        if self.config.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(trained, self.config.clip, norm)
        # In fp16 an overflow is the loss scaler's business: it skips the step.
        if self.config.precision != "fp16" and not math.isfinite(float(norm)):
            found = first_not_finite({n: p.grad for n, p in self.module.named_parameters() if p.grad is not None})
            raise self._not_finite("The gradient is not finite.", f"norm {float(norm)}, first of {found}", rate)
        return norm

    def _refuse_bad_loss(self, result: StepResult, rate: float) -> None:
        # One transfer for all losses.
        names = list(result.losses)
        sums = torch.stack([mean.total for mean in result.losses.values()]).tolist() if names else []
        bad = [f"{name} = {value}" for name, value in zip(names, sums, strict=True) if not math.isfinite(value)]
        if bad:
            raise self._not_finite("The loss is not finite.", ", ".join(bad), rate)

    def _not_finite(self, what: str, got: str, rate: float) -> VlcliError:
        kept = self.checkpoints.complete()
        name = first_not_finite(dict(self.module.named_parameters()))
        weights = f"the first weight that is not finite is {name}" if name else "all weights are finite"
        return VlcliError(
            what,
            where=f"step {self.at.step + 1}, epoch {self.at.epoch + 1}",
            got=f"{got} at learning rate {rate:.3g}; {weights}",
            expected="finite numbers",
            hint="lower optimizer.lr, lengthen schedule.warmup or set clip; "
            + (f"the last good checkpoint is {kept[-1]}" if kept else "no checkpoint was written yet"),
        )

    def _set_rate(self) -> float:
        kind = self.config.optimizer.name == "bert-adam"
        share = factor(self.at.step, self.plan.steps, self.config.schedule, count_after=kind)
        if not math.isfinite(share * self.config.optimizer.lr):
            text = f"the learning rate of step {self.at.step + 1} is no number"
            raise RecipeError([Problem("schedule", text, got=str(share * self.config.optimizer.lr))])
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * share
        return self.config.optimizer.lr * share

    def _after(self, epoch_ended: bool) -> None:
        """What follows an optimizer step: log, evaluate, save."""
        done = self.at.step >= self.plan.steps
        if self.at.step % self.config.log_every == 0 or done:
            self._log(epoch_ended)
        learnt = [name for name in self.last if name.rpartition("/")[2] in SHOWN]
        shown = {name: self.last[name] for name in ("loss", *learnt, "lr") if name in self.last}
        self._bar.advance(1, **shown, **self.window.speed)
        self._close_step(epoch_ended)

    def _close_step(self, epoch_ended: bool, *, again: bool = False) -> None:
        """Evaluate and save; ``again``: a signal broke it off, and the checkpoint of this step says so."""
        done = self.at.step >= self.plan.steps
        every = self.config.evaluate_every
        due = self.at.step % every == 0 if every else epoch_ended
        if self.evaluate is not None and (due or done):
            self._pending = True
            self._evaluate()
        self._pending = False
        due = epoch_ended or done or bool(self.config.save_every)
        self._save_if(self._save_due(epoch_ended) or done or again, passing=not due, again=again)

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
        """Rank 0 scores; everyone learns the score."""
        asked = 0
        if processes.rank() == 0:
            try:
                score = self._score()
            except stopping.Stopped as stop:
                asked = stop.number
            else:
                self._keep_best(score)
                self._track({f"eval/{name}": value for name, value in score.metrics.items()})
        processes.wait()
        self.module.train()
        self._agree(asked)

    def _score(self) -> Score:
        """The score of the weights as they are now (averaged, where averages are kept)."""
        assert self.evaluate is not None
        with self.ema.applied(self.module) if self.ema else nullcontext(), stopping.opened():
            return self.evaluate(self.accelerator.autocast, max(0, self.at.epoch - (self.at.batch == 0)))

    def _keep_best(self, score: Score) -> None:
        if math.isnan(score.value):
            self.progress.warn(f"the validation score of step {self.at.step} is not a number: it cannot be the best")
        elif self.at.best_score is None or score.value > self.at.best_score:
            self.at.best, self.at.best_score, self.at.best_metrics = self.at.step, score.value, score.metrics
            with self.ema.applied(self.module) if self.ema else nullcontext():
                self.checkpoints.save_best(self.module, self.at)

    def chosen(self, outcome: TrainingOutcome) -> tuple[TrainingOutcome, dict[str, Tensor]]:
        """The weights that this run leaves, and the outcome that is true of them; for rank 0.

        They are the best of the validation data, else the last (averaged, where kept). A damaged best is made again
        from the checkpoint of its step; where that is gone, the last weights are scored and stand in for it.
        """
        if outcome.best < 0:
            return outcome, self._last_weights()
        try:
            return outcome, self.checkpoints.best(outcome.best)
        except DataError as error:
            self.checkpoints.set_aside(self.checkpoints.folder / f"best-{outcome.best:08d}", error, self.progress)
        try:
            state = self.checkpoints.weights(outcome.best, averaged=self.ema is not None)
            self.progress.warn(f"the best weights are taken from the checkpoint of step {outcome.best} instead")
            return outcome, state
        except DataError:
            self.progress.warn(f"the best weights are lost: those of step {outcome.steps}, the last, stand in for them")
        score = self._score()
        return replace(outcome, best=outcome.steps, metrics=score.metrics), self._last_weights()

    def _last_weights(self) -> dict[str, Tensor]:
        with self.ema.applied(self.module) if self.ema else nullcontext():
            state = self.module.state_dict()
            return {name: tensor.clone() for name, tensor in state.items()} if self.ema else state

    def _save_due(self, epoch_ended: bool) -> bool:
        if self.config.save_every:
            return self.at.step % self.config.save_every == 0
        return epoch_ended or time.monotonic() - self._saved_at > SAVE_SECONDS

    def _save_if(self, due: bool, *, passing: bool = False, again: bool = False) -> None:
        """Rank 0 writes a checkpoint, unless this step's is there; ``passing`` ones are for a resume alone."""
        last = self.checkpoints.complete()[-1:]
        there = bool(last) and last[0].name == f"step-{self.at.step:08d}"
        if not due or processes.rank() != 0 or (there and not again):
            return
        self.at.window = self.window.sums()
        self.at.extra = {"last": self.last, "threads": torch.get_num_threads(), **self._engine_numbers()}
        self.at.extra |= {"passing": True} if passing else {}
        self.at.extra |= {"pending": True} if self._pending else {}
        self.checkpoints.save(self.module, self.optimizer, self.ema, self.at)
        self._saved_at = time.monotonic()

    def _engine_numbers(self) -> dict[str, Any]:
        scaler = self.accelerator.scaler
        numbers: dict[str, Any] = {"ema": self.ema.updates} if self.ema else {}
        return numbers | ({"scaler": scaler.state_dict()} if scaler is not None else {})

    def _resume(self, wanted: bool) -> Position | None:
        if not wanted:
            if processes.rank() == 0:
                self.checkpoints.clear()
            processes.wait()
            return None
        first = processes.rank() == 0
        if not first:
            processes.wait()  # the first process moves damaged checkpoints away before the others look
        at = self.checkpoints.resume(self.module, self.optimizer, self.ema, self.progress, leads=first)
        if first:
            processes.wait()
        if at is not None:
            self.progress.info(f"resuming at step {at.step} of {self.plan.steps}")
            if self.config.threads is None and "threads" in at.extra:
                torch.set_num_threads(at.extra["threads"])  # sums differ in their last bits with the threads
        return at

    def _restore_scaler(self) -> None:
        saved = self.at.extra.get("scaler")
        if saved and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(saved)
