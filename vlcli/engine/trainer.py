"""Trains a model: the loop of epochs and steps, validation, and the log."""

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.engine import processes, pulse
from vlcli.engine.allocator import keep_freed_memory
from vlcli.engine.checkpoint import Checkpoints, Position
from vlcli.engine.ema import Ema
from vlcli.engine.guard import Guard
from vlcli.engine.log_window import LogWindow
from vlcli.engine.optim import build_optimizer
from vlcli.engine.outcome import EarlyStop, Evaluate, Score, TrainingOutcome
from vlcli.engine.schedule import StepPlan, set_rate, with_rate
from vlcli.engine.sharding import Shards, blocks_of, local
from vlcli.engine.trackers import Tracker, tell
from vlcli.engine.training_module import TrainingModule
from vlcli.engine.weights import first_not_finite
from vlcli.errors import DataError, VlcliError
from vlcli.nn.batch import Batch
from vlcli.progress import Progress, Silent
from vlcli.recipe.schema import Training

__all__ = ["Evaluate", "Score", "StepPlan", "Trainer", "TrainingOutcome"]

SHOWN = ("accuracy", "score")


class Trainer:
    """Trains a training module; every process of a stage builds one and calls :meth:`run`.

    An optimizer step takes ``accumulate`` batches of ``batch_size`` examples, summed over all processes. Random numbers
    of a step depend on (seed, step, rank), batches on (seed, epoch): on a CPU with the same number of threads, a
    resumed run computes the same bits as an uninterrupted one. :class:`vlcli.engine.guard.Guard` saves and stops.

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
        torch_device = self.accelerator.device
        if torch_device.type == "cpu":
            keep_freed_memory()
        self.module = module.to(torch_device)
        _recompute_and_compile(module, config, self.progress)
        self.plan = StepPlan.of(len(data), config, processes.world())
        self.config, self.rate_line = with_rate(config, module.model.network_shape, len(data), self.plan.steps)
        self.shards = Shards(module, config.sharding)
        optimizer = self.shards.localise(build_optimizer(module, self.config.optimizer))
        self.ema = Ema(module, config.ema) if config.ema else None
        self.trackers = (trackers or []) if processes.rank() == 0 else []
        self.checkpoints = Checkpoints(folder / "checkpoints", config.keep, self.shards)
        if not resume:
            self.checkpoints.clear()
        self.position = (resume and self._resume(optimizer)) or Position()
        extra = self.position.extra
        self._wrapped, self.optimizer = self.shards.prepare(self.accelerator, optimizer, extra.get("idle"))
        self._parameters = list(module.parameters())  # a walk over all modules, not made in every step
        if "scaler" in extra and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(extra["scaler"])
        self.window = LogWindow(self.position.window)
        self.last: dict[str, float] = extra.get("last", {})
        self.stop = EarlyStop(config.stop, extra.get("stop", {}))
        self.guard = Guard(
            self.position, self.plan, self.config, self.stop, self.checkpoints, self._save, torch_device, self.progress
        )

    def _resume(self, optimizer: torch.optim.Optimizer) -> Position | None:
        position = self.checkpoints.resume(self.module, optimizer, self.ema, self.progress)
        if position is not None:
            self.progress.info(f"resuming at step {position.step} of {self.plan.steps}")
            before, now = int(position.extra.get("world", 1)), processes.world()
            if before != now:
                text = f"{before} process{'es' * (before > 1)} wrote the checkpoint, {now} go{'es' * (now == 1)} on: "
                self.progress.info(f"{text}batches are the same; dropout draws other numbers, and sums round otherwise")
            if self.config.threads is None and "threads" in position.extra:
                # Sums differ in their last bits with the threads.
                torch.set_num_threads(position.extra["threads"])
        return position

    def run(self) -> TrainingOutcome:
        """Train to the last step.

        Raises:
            VlcliError: the loss, the gradient or a weight is not finite, or the disk is full.
            Stopped: a process got a signal; a checkpoint is written.
        """
        position = self.position
        with self.guard.watching():
            tell(self.trackers, lambda tracker: tracker.resume(position.step), self.progress)
            self.module.train()
            with self.progress.task("train", self.plan.steps, unit="step", done=position.step) as self._bar:
                if self.guard.unfinished:
                    self._validate_and_save(position.batch == 0, resumed=True)
                while not self.guard.done:
                    self._epoch()
            tell(self.trackers, lambda tracker: tracker.close(), self.progress)
            self.guard.finish()
            self.shards.dissolve(self.ema.shadow if self.ema else {})
            reason = self.stop.reason(position.step, self.plan.steps)
            metrics, best, reason = processes.share((position.best_metrics, position.best, reason))
        return TrainingOutcome(position.step, position.epoch, self.last, metrics, best, position.examples, reason)

    def _epoch(self) -> None:
        position, batches, ended = self.position, self._batches(), False
        while not (ended or self.guard.done):
            count = min(self.config.accumulate, self.plan.batches - position.batch)
            self._step(self.guard.before_step(batches), count)
            position.batch += count
            ended = position.batch >= self.plan.batches
            if ended:
                position.epoch, position.batch = position.epoch + 1, 0
            self._after_step(ended)

    def _batches(self) -> Iterator[Batch]:
        position = self.position
        at = {"epoch": position.epoch, "start_batch": position.batch}
        at |= {"rank": processes.rank(), "world": processes.world(), "workers": self.config.workers}
        source = iter(self.data.loader(self.config.batch_size, shuffle=True, drop_last=self.plan.drop_last, **at))
        for number in range(position.batch, self.plan.batches):
            begun = time.perf_counter()
            with pulse.during(pulse.LOADS):
                batch = next(source, None)
            if batch is None:
                where, expected = f"epoch {position.epoch + 1}, batch {number + 1}", f"{self.plan.batches} batches"
                raise DataError("The data ended before the epoch did.", where=where, expected=expected)
            if self.accelerator.device.type != "cpu":
                batch = batch.to(self.accelerator.device, non_blocking=True)
            self.window.waited += time.perf_counter() - begun
            yield batch

    def _step(self, batches: Iterator[Batch], count: int) -> None:
        """Update the weights once, with the mean gradient of the next ``count`` batches."""
        rate = set_rate(self.optimizer, self.config, self.position.step, self.plan.steps)
        for part, batch in enumerate(islice(batches, count)):
            with nullcontext() if part == count - 1 else self.shards.no_sync():
                loss = self._forward(batch, part, rate)
                self.accelerator.backward(loss / count)
        norm = self._clip(rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        stepped = not self.accelerator.optimizer_step_was_skipped  # in fp16 a gradient may overflow
        self.module.close_step(stepped=stepped)
        if stepped and self.ema is not None:
            self.ema.update(self.module)
        self.position.step += 1
        self.window.note(norm, rate)

    def _forward(self, batch: Batch, part: int, rate: float) -> Tensor:
        processes.seed_step(self.seed, self.position.step, part)
        where = {"epoch": self.position.epoch, "index": self.position.step}
        if part == 0:
            self.module.open_step(batch, **where)  # momentum copies
        result = self._wrapped(batch, **where, first=False)
        names = [*(f"loss/{name}" for name in result.losses), *result.metrics]
        sums = dict(zip(names, result.sums.tolist(), strict=True))  # one transfer from the device
        bad = {name: value for name in result.losses if not math.isfinite(value := sums[f"loss/{name}"][0])}
        if bad:
            got = ", ".join(f"{name} = {value}" for name, value in bad.items())
            raise self._not_finite("The loss is not finite.", got, rate)
        size = min(self.config.batch_size, len(self.data))  # rows of all processes
        self.position.examples += size
        self.window.add(sums, size)
        return self.shards.agreed(result.total)

    def _clip(self, rate: float) -> float:
        self.shards.average_rest()
        self.accelerator.unscale_gradients(self.optimizer)
        trained = [p for p in self._parameters if p.grad is not None]
        norm = self.shards.total_norm([p.grad for p in trained if p.grad is not None])
        value = float(norm)
        # In fp16 an overflow is the loss scaler's business: it skips the step.
        if self.config.precision != "fp16" and not math.isfinite(value):
            grads = {name: local(p.grad) for name, p in self.module.named_parameters() if p.grad is not None}
            first = next(filter(None, processes.collect(first_not_finite(grads))), None)  # of any process
            raise self._not_finite("The gradient is not finite.", f"norm {value}, first of {first}", rate)
        if self.config.clip is not None:
            self.shards.clip(trained, self.config.clip, norm)
        return value

    def _not_finite(self, what: str, got: str, rate: float) -> VlcliError:
        name = first_not_finite({name: local(p) for name, p in self.module.named_parameters()})
        weights = f"the first weight that is not finite is {name}" if name else "all weights are finite"
        where = f"step {self.position.step + 1}, epoch {self.position.epoch + 1}"
        got, hint = f"{got} at learning rate {rate:.3g}; {weights}", self.checkpoints.remedy()
        return VlcliError(what, where=where, got=got, expected="finite numbers", hint=hint)

    def _after_step(self, epoch_ended: bool) -> None:
        if self.position.step % self.config.log_every == 0 or self.guard.done:
            self._log(epoch_ended)
        learnt = [name for name in self.last if name.rpartition("/")[2] in SHOWN]
        shown = {name: self.last[name] for name in ("loss", *learnt, "lr") if name in self.last}
        self._bar.advance(1, **shown, **self.window.speed)
        self._validate_and_save(epoch_ended)

    def _validate_and_save(self, epoch_ended: bool, *, resumed: bool = False) -> None:
        every, done = self.config.evaluate_every, self.guard.done
        due = self.position.step % every == 0 if every else epoch_ended
        if self.evaluate is not None and (due or done):
            self._validate()
        if self.guard.done and not done and self.position.step % self.config.log_every:
            self._log(epoch_ended)
        self.guard.after_step(epoch_ended=epoch_ended, resumed=resumed)

    def _log(self, epoch_ended: bool) -> None:
        epoch = self.position.epoch - epoch_ended  # the last window's, for weights
        values = self.window.close(lambda name: self.module.weight(name, epoch))
        progress = self.position.epoch + self.position.batch / self.plan.batches
        self.last = {name: value for name, value in values.items() if name not in LogWindow.TIMES}
        self._track({"epoch": progress, **values})

    def _track(self, values: Mapping[str, float]) -> None:
        tell(self.trackers, lambda tracker: tracker.log(self.position.step, values), self.progress)

    def _validate(self) -> None:
        first = processes.rank() == 0
        scores, score = first or bool(getattr(self.evaluate, "joint", False)), None
        with self.guard.evaluating(scores=scores):
            with self._averages(), self.shards.whole():
                if scores:
                    score = self.guard.interruptible(self._score)
                processes.wait()
            score = processes.share(score) if self.shards.active else score
            if score is not None and (first or self.shards.active):
                self.stop.note(self.position.step, score.value)
                self._keep_best(score)
                self._track({f"eval/{name}": value for name, value in score.metrics.items()})
            processes.wait()
            self.module.train()

    def _averages(self) -> AbstractContextManager[None]:
        return self.ema.applied(self.module) if self.ema else nullcontext()

    def _score(self, *, alone: bool = False) -> Score:
        assert self.evaluate is not None
        score = getattr(self.evaluate, "alone", self.evaluate) if alone else self.evaluate
        return score(self.accelerator.autocast, max(0, self.position.epoch - (self.position.batch == 0)))

    def _keep_best(self, score: Score) -> None:
        position = self.position
        if math.isnan(score.value):
            self.progress.warn(f"the validation score of step {position.step} is not a number: it cannot be the best")
        elif position.best_score is None or score.value > position.best_score:
            position.best, position.best_score, position.best_metrics = position.step, score.value, score.metrics
            with self._averages():
                self.checkpoints.save_best(self.module, position)

    def select_weights(self, outcome: TrainingOutcome) -> tuple[TrainingOutcome, dict[str, Tensor]]:
        """Return the outcome and the state dict of the best weights (the last without validation); for rank 0.

        If the best weights are damaged, they are read from the checkpoint of the same step; if that is gone too, the
        last weights are scored and returned, with ``best`` and metrics of the outcome changed.
        """
        if outcome.best >= 0:
            try:
                return outcome, self.checkpoints.best(outcome.best)
            except DataError as error:
                self.checkpoints.set_aside(self.checkpoints.folder / f"best-{outcome.best:08d}", error, self.progress)
            try:
                state = self.checkpoints.weights(outcome.best, averaged=self.ema is not None)
                self.progress.warn(f"the best weights are taken from the checkpoint of step {outcome.best} instead")
                return outcome, state
            except DataError:
                lost = f"the best weights are lost: those of step {outcome.steps}, the last, stand in for them"
                self.progress.warn(lost)
            with self._averages(), self.shards.whole():
                outcome = replace(outcome, best=outcome.steps, metrics=self._score(alone=True).metrics)
        with self._averages():
            state = self.module.state_dict()
            return outcome, {name: tensor.clone() for name, tensor in state.items()} if self.ema else state

    def _save(self, extra: Mapping[str, Any]) -> None:
        scaler, copies = self.accelerator.scaler, self.shards.copies
        numbers = {"last": self.last, "threads": torch.get_num_threads(), "ema": self.ema and self.ema.updates}
        numbers |= {"idle": copies and copies.idle, "scaler": scaler and scaler.state_dict(), **extra}
        self.position.window = self.window.sums()
        self.position.extra = {name: value for name, value in numbers.items() if value not in (None, False, {})}
        self.checkpoints.save(self.module, self.optimizer, self.ema, self.position)


def _recompute_and_compile(module: nn.Module, config: Training, progress: Progress) -> None:
    stacks: list[Any] = [part for part in module.modules() if hasattr(part, "checkpointing")]
    for stack in stacks if config.checkpointing else ():
        stack.checkpointing = True
    if config.checkpointing and not stacks:
        progress.warn("this model has no layers that can be recomputed: checkpointing changes nothing")
    if config.compile:
        # Blocks whose parameters are gathered one after another are compiled one by one.
        blocks = blocks_of(module) if config.sharding != "none" else []
        for part in blocks or stacks or list(module.children()):
            part.compile(dynamic=True)
