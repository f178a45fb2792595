"""The training loop: batches in, checkpoints and log lines out."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.engine import processes
from vlcli.engine.checkpoint import Checkpoints, Position
from vlcli.engine.ema import Ema
from vlcli.engine.evaluation import Autocast
from vlcli.engine.learner import Learner, StepResult
from vlcli.engine.optim import build_optimizer
from vlcli.engine.schedule import factor
from vlcli.engine.trackers import Tracker
from vlcli.errors import DataError, Problem, RecipeError, VlcliError
from vlcli.nn.batch import Batch
from vlcli.objectives.base import Mean
from vlcli.progress import Progress, Silent
from vlcli.recipe.schema import Training

SAVE_SECONDS = 300.0
"""Without ``save_every``, a checkpoint is written at each epoch's end and when this long has passed."""


@dataclass(frozen=True)
class Score:
    """What an evaluation during training found.

    Attributes:
        metrics: by name.
        value: what chooses the best; higher is better.
    """

    metrics: dict[str, float]
    value: float


Evaluate = Callable[[Autocast, int], Score]
"""Scores the learner as it is now, in a precision and for an epoch; called on rank 0 only."""


@dataclass
class Outcome:
    """How a run ended.

    Attributes:
        steps: optimizer steps done.
        epochs: whole epochs done.
        losses: means of the last log line.
        metrics: the best evaluation, or none.
        best: the step of it, -1 where there was no evaluation.
        examples: examples seen, all processes.
    """

    steps: int
    epochs: int
    losses: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)
    best: int = -1
    examples: int = 0


class Loop:
    """Trains a learner.

    An optimizer step takes ``accumulate`` batches of ``batch_size`` examples, counted over all processes. What a step
    draws depends on (seed, step, rank) alone and batches on (seed, epoch), so that a resumed run equals an undisturbed
    one to the bit on a CPU with the same threads.

    Args:
        learner: what is trained.
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
        learner: Learner,
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
        self.learner = learner.to(self.accelerator.device)
        _prepare_modules(learner, config, self.progress)
        self.plan = Plan.of(len(data), config, processes.world())
        self.optimizer = build_optimizer(learner, config.optimizer)
        self.ema = Ema(learner, config.ema) if config.ema else None
        self.checkpoints = Checkpoints(folder / "checkpoints", config.keep)
        self.trackers = (trackers or []) if processes.rank() == 0 else []
        self.at = self._resume(resume) or Position()
        with warnings.catch_warnings():
            # torch renames an option that accelerate still passes by its old name.
            warnings.filterwarnings("ignore", ".*broadcast_buffers.*", FutureWarning)
            self._wrapped, self._stepper = self.accelerator.prepare(learner, self.optimizer)
        self._restore_scaler()
        self.window = Window(self.at.window)
        self._saved_at = time.monotonic()
        self.last: dict[str, float] = self.at.extra.get("last", {})

    def run(self) -> Outcome:
        """Train to the end of the plan.

        Raises:
            VlcliError: the loss or the gradient is not finite, or the disk is full.
        """
        for tracker in self.trackers:
            tracker.resume(self.at.step)
        self.learner.train()
        facts = {"unit": "step", "done": self.at.step}
        with self.progress.task("train", self.plan.steps, **facts) as self._bar:  # type: ignore[arg-type]
            while self.at.step < self.plan.steps:
                self._epoch()
        for tracker in self.trackers:
            tracker.close()
        self._save_if(self.at.step > 0)
        processes.wait()
        best, number = processes.share((self.at.best_metrics, self.at.best))
        return Outcome(self.at.step, self.at.epoch, self.last, best, number, self.at.examples)

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

    def _step(self, batches: Iterator[Batch], count: int) -> None:
        """One optimizer step over ``count`` batches."""
        rate = self._set_rate()
        for part in range(count):
            self._accumulate(self._next(batches), part, count, rate)
        norm = self._clip(rate)
        self._stepper.step()
        self._stepper.zero_grad(set_to_none=True)
        if self.accelerator.optimizer_step_was_skipped:
            self.learner.drop_step()
        else:
            self.learner.close_step()
            if self.ema is not None:
                self.ema.update(self.learner)
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
        trained = [p for p in self.learner.parameters() if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in trained if p.grad is not None])
        if self.config.clip is not None:
            torch.nn.utils.clip_grads_with_norm_(trained, self.config.clip, norm)
        # In fp16 an overflow is the loss scaler's business: it skips the step.
        if self.config.precision != "fp16" and not math.isfinite(float(norm)):
            raise self._not_finite("The gradient is not finite.", f"norm {float(norm)}", rate)
        return norm

    def _refuse_bad_loss(self, result: StepResult, rate: float) -> None:
        # One transfer for all losses.
        names = list(result.losses)
        sums = torch.stack([mean.total for mean in result.losses.values()]).tolist() if names else []
        bad = [f"{name} = {value}" for name, value in zip(names, sums, strict=True) if not math.isfinite(value)]
        if bad:
            raise self._not_finite("The loss is not finite.", ", ".join(bad), rate)

    def _not_finite(self, what: str, got: str, rate: float) -> VlcliError:
        kept = self.checkpoints.list()
        return VlcliError(
            what,
            where=f"step {self.at.step + 1}, epoch {self.at.epoch + 1}",
            got=f"{got} at learning rate {rate:.3g}",
            expected="finite numbers",
            hint="lower optimizer.lr, lengthen schedule.warmup or set clip; "
            + (f"the last good checkpoint is {kept[-1]}" if kept else "no checkpoint was written yet"),
        )

    def _set_rate(self) -> float:
        kind = self.config.optimizer.name == "bert-adam"
        share = factor(self.at.step, self.plan.steps, self.config.schedule, count_after=kind)
        for group in self.optimizer.param_groups:
            group["lr"] = group["peak"] * share
        return self.config.optimizer.lr * share

    def _after(self, epoch_ended: bool) -> None:
        """What follows an optimizer step: log, evaluate, save."""
        done = self.at.step >= self.plan.steps
        if self.at.step % self.config.log_every == 0 or done:
            self._log(epoch_ended)
        shown = {name: self.last[name] for name in ("loss", "lr") if name in self.last}
        self._bar.advance(1, **shown)
        every = self.config.evaluate_every
        due = self.at.step % every == 0 if every else epoch_ended
        if self.evaluate is not None and (due or done):
            self._evaluate()
        due = epoch_ended or done or bool(self.config.save_every)
        self._save_if(self._save_due(epoch_ended) or done, passing=not due)

    def _log(self, epoch_ended: bool) -> None:
        epoch = self.at.epoch - 1 if epoch_ended else self.at.epoch  # the last window's, for weights
        values = self.window.close(lambda name: self.learner.weight(name, epoch))
        progress = self.at.epoch + self.at.batch / self.plan.batches
        self.last = {name: value for name, value in values.items() if name not in Window.TIMES}
        self._track({"epoch": progress, **values})

    def _track(self, values: Mapping[str, float]) -> None:
        for tracker in self.trackers:
            tracker.log(self.at.step, values)

    def _evaluate(self) -> None:
        """Rank 0 scores; everyone learns the score."""
        score: Score | None = None
        if processes.rank() == 0:
            assert self.evaluate is not None
            with self.ema.applied(self.learner) if self.ema else nullcontext():
                score = self.evaluate(self.accelerator.autocast, max(0, self.at.epoch - (self.at.batch == 0)))
                self._keep_best(score)
            self._track({f"eval/{name}": value for name, value in score.metrics.items()})
        processes.wait()
        self.learner.train()

    def _keep_best(self, score: Score) -> None:
        if self.at.best_score is None or score.value > self.at.best_score:
            self.at.best, self.at.best_score, self.at.best_metrics = self.at.step, score.value, score.metrics
            self.checkpoints.save_best(self.learner, self.at)

    def _save_due(self, epoch_ended: bool) -> bool:
        if self.config.save_every:
            return self.at.step % self.config.save_every == 0
        return epoch_ended or time.monotonic() - self._saved_at > SAVE_SECONDS

    def _save_if(self, due: bool, *, passing: bool = False) -> None:
        """Rank 0 writes a checkpoint, unless this step's is there; ``passing`` ones are due by the clock alone."""
        last = self.checkpoints.list()[-1:]
        if not due or processes.rank() != 0 or (last and last[0].name == f"step-{self.at.step:08d}"):
            return
        self.at.window = self.window.sums()
        self.at.extra = {"last": self.last, "threads": torch.get_num_threads(), **self._engine_numbers()}
        self.at.extra |= {"passing": True} if passing else {}
        self.checkpoints.save(self.learner, self.optimizer, self.ema, self.at)
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
        at = self.checkpoints.resume(self.learner, self.optimizer, self.ema, self.progress)
        if at is not None:
            self.progress.info(f"resuming at step {at.step} of {self.plan.steps}")
            if self.config.threads is None and "threads" in at.extra:
                torch.set_num_threads(at.extra["threads"])  # sums differ in their last bits with the threads
        return at

    def _restore_scaler(self) -> None:
        saved = self.at.extra.get("scaler")
        if saved and self.accelerator.scaler is not None:
            self.accelerator.scaler.load_state_dict(saved)


@dataclass(frozen=True)
class Plan:
    """How many steps a run takes.

    Attributes:
        batches: batches an epoch.
        steps: optimizer steps in all.
        drop_last: whether an epoch's last, smaller batch is left out.
    """

    batches: int
    steps: int
    drop_last: bool

    @classmethod
    def of(cls, examples: int, config: Training, world: int) -> Plan:
        """From the number of examples; ``steps`` and ``epochs`` together: whichever ends first; neither: one epoch.

        Raises:
            RecipeError: a batch is smaller than the number of processes.
        """
        size = min(config.batch_size, examples)
        if size < world:
            problem = Problem("batch_size", "a batch must hold an example for every process", got=f"{size} for {world}")
            raise RecipeError([problem])
        # Fewer examples than one batch: the batch is what there is.
        drop = examples >= config.batch_size
        batches = max(1, examples // config.batch_size)
        per_epoch = -(-batches // config.accumulate)
        limits = [config.steps, None if config.epochs is None else config.epochs * per_epoch]
        return cls(batches, min([n for n in limits if n is not None], default=per_epoch), drop)


class Window:
    """Sums since the last log line.

    Args:
        sums: what a checkpoint kept of the line under way.
    """

    TIMES = ("examples_per_second", "data_wait", "seconds")

    def __init__(self, sums: Mapping[str, tuple[float, float]] | None = None) -> None:
        self._sums: dict[str, Tensor] = {}
        for name, pair in (sums or {}).items():
            self._sums[name] = torch.tensor(pair, dtype=torch.float64)
        self._restart()

    def _restart(self) -> None:
        self.waited, self.examples, self._begun = 0.0, 0, time.perf_counter()

    def add(self, result: StepResult, examples: int) -> None:
        """The losses and metrics of a batch."""
        for name, mean in result.losses.items():
            self._add(f"loss/{name}", mean)
        for name, mean in result.metrics.items():
            self._add(name, mean)
        self.examples += examples

    def note(self, norm: Tensor, rate: float) -> None:
        """The gradient's norm and the learning rate of a step."""
        self._add("grad_norm", Mean(norm.detach(), torch.ones_like(norm)))
        self._sums["lr"] = torch.tensor([rate, 1.0], dtype=torch.float64)

    def _add(self, name: str, mean: Mean) -> None:
        pair = torch.stack([mean.total, mean.count]).detach()
        pair = pair.to(torch.float32 if pair.device.type == "mps" else torch.float64)
        old = self._sums.get(name)
        self._sums[name] = pair if old is None else old.to(pair.device) + pair

    def sums(self) -> dict[str, tuple[float, float]]:
        """For a checkpoint."""
        return {name: tuple(pair.tolist()) for name, pair in self._sums.items()}  # type: ignore[misc]

    def close(self, weight: Callable[[str], float]) -> dict[str, float]:
        """The log line, ``loss`` being the weighted sum; starts the next window."""
        values = {name: total / count if count else 0.0 for name, (total, count) in self.sums().items()}
        losses = {n.removeprefix("loss/"): v for n, v in values.items() if n.startswith("loss/")}
        elapsed = max(time.perf_counter() - self._begun, 1e-9)
        times = {"examples_per_second": self.examples / elapsed, "data_wait": self.waited / elapsed, "seconds": elapsed}
        self._sums = {}
        self._restart()
        return {"loss": sum(weight(name) * value for name, value in losses.items()), **values, **times}


def _prepare_modules(learner: nn.Module, config: Training, progress: Progress) -> None:
    """Switch activation checkpointing and compilation on, where asked for."""
    stacks = [module for module in learner.modules() if hasattr(module, "checkpointing")]
    if config.checkpointing:
        for stack in stacks:
            stack.checkpointing = True  # type: ignore[assignment]
        if not stacks:
            progress.warn("this model has no layers that can be recomputed: checkpointing changes nothing")
    if config.compile:
        for module in stacks or list(learner.children()):
            module.compile(dynamic=True)
