"""Evaluates a training module on all processes: metrics of a task, or mean losses of the objectives."""

from __future__ import annotations

import hashlib
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from vlcli import stopping
from vlcli.detection.extraction import Share
from vlcli.engine import processes, pulse
from vlcli.engine.processes import seed_step
from vlcli.engine.training_module import TrainingModule
from vlcli.errors import VlcliError
from vlcli.metrics.baseline import one_answer
from vlcli.nn.batch import Batch
from vlcli.nn.forward_passes import ForwardPasses
from vlcli.nn.model import DataSpec, Model, Recorder, device_of
from vlcli.objectives.base import full_precision
from vlcli.progress import Progress, Silent
from vlcli.tasks.base import Task


class JointEvaluation:
    """Collective operations of one evaluation; each raises ``Stopped`` on all processes if one got a signal.

    A process that got one joins the next operation of the others, so that none waits in vain.
    """

    signal = 0

    def gather(self, value: Any, signal: int = 0) -> list[Any]:
        """Return every process's ``value``, in order of rank."""
        with stopping.held():
            rows = processes.collect((signal, value))
        self.signal = max(signal for signal, _ in rows)
        if self.signal:
            raise stopping.Stopped(self.signal)
        return [value for _, value in rows]

    def wait(self) -> None:
        self.gather(None)

    def share(self) -> Share:
        return Share(processes.rank(), processes.world(), self.wait, self.gather)

    def run(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``; every process calls this."""
        try:
            with stopping.opened():
                result = work()
            self.wait()
            return result
        except stopping.Stopped as stop:
            if not self.signal:  # it came to this process
                with suppress(stopping.Stopped):
                    self.gather(None, stop.number)
            raise


T = TypeVar("T")
Autocast = Callable[[], AbstractContextManager[Any]]


class TaskRunner:
    """Runs a model for a task's evaluation (``vlcli.tasks.base.Runner``).

    Args:
        data: a ``vlcli.data.pipeline.Pipeline``.
        workers: loader processes.
        autocast: context of the precision.
        label: of the progress bar.
        folder: for files of a task.
        share: of this process, if several evaluate together.
    """

    def __init__(
        self,
        module: TrainingModule,
        data: Any,
        *,
        batch_size: int = 64,
        workers: int = 0,
        progress: Progress | None = None,
        autocast: Autocast = nullcontext,
        label: str = "evaluate",
        folder: Path | None = None,
        share: Share | None = None,
    ) -> None:
        self.module, self.data, self.folder, self.share = module, data, folder, share or Share()
        self.batch_size, self.workers, self.autocast, self.label = batch_size, workers, autocast, label
        self.progress: Progress = progress or Silent()

    @property
    def model(self) -> Model:
        return self.module.model

    @property
    def data_spec(self) -> DataSpec:
        return self.module.model.data_spec

    def batches(self, data: Any = None) -> Iterator[Batch]:
        """Yield every batch of ``data`` (None: of the runner's data) in order, on the model's device."""
        yield from self._batches(self.data if data is None else data, {}, 1)

    def rows(self, make: Callable[[Batch], list[T]]) -> list[T]:
        """Return the rows of ``make`` for every batch, in order; processes take turns at whole batches.

        Raises:
            Stopped: a process got a signal.
        """
        if self.share.count == 1:
            return [row for batch in self.batches() for row in make(batch)]
        turn = {"start_batch": self.share.rank, "stride": self.share.count}
        rows_of_batches = [make(batch) for batch in self._batches(self.data, turn, self.share.count)]
        pulse.note(pulse.WAITS)
        gathered = self.share.gather(rows_of_batches)
        pulse.note(pulse.EVALUATES)
        turns = itertools.zip_longest(*gathered, fillvalue=[])
        return [row for batches in turns for rows in batches for row in rows]

    def _batches(self, data: Any, turn: dict[str, int], count: int) -> Iterator[Batch]:
        loader = data.loader(self.batch_size, shuffle=False, workers=self.workers, **turn)
        device = device_of(self.module.model)
        with self.progress.task(self.label, -(-getattr(data, "total", len(data)) // count), "ex") as bar:
            for batch in loader:
                pulse.note(pulse.EVALUATES)
                yield batch.to(device)
                bar.advance(len(batch))

    def step(self, batch: Batch, record: Recorder | None = None) -> ForwardPasses:
        """Return the passes over one batch, without gradients unless ``record`` has them."""
        return _Passes(self.module, batch, record, self.autocast)

    def predict(self, step: ForwardPasses, only: str | None = None) -> dict[str, dict[str, Tensor]]:
        """Return the predictions of every objective, in float32 (float64 if the model computes in it)."""
        with _grad(step.record), self.autocast():
            outputs = self.module.predict(step, only)
        return {name: {k: full_precision(_numbers(v, k)) for k, v in each.items()} for name, each in outputs.items()}

    def embed(self, step: ForwardPasses, objective: str, side: Literal["text", "image"]) -> Tensor:
        """Return the vectors of a batch's unique sentences or pictures, in float32."""
        with torch.no_grad(), self.autocast():
            return _numbers(self.module.embed(step, objective, side), f"{side} vectors").float()

    def identity(self, objective: str) -> dict[str, Any]:
        """Return a digest of the weights behind an objective's vectors, and the precision."""
        kind = device_of(self.module.model).type
        with self.autocast():
            precision = str(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else "float32"
        return {"weights": fingerprint(self.module, objective), "objective": objective, "precision": precision}


class NotANumberError(VlcliError):
    """A model's scores or vectors hold NaN."""


def _numbers(values: Tensor, what: str) -> Tensor:
    # -inf marks what cannot be chosen. NaN compares as false: an accuracy of NaN looks like an accuracy.
    if bool(values.isnan().any()):
        got = f"{what}: {int(values.isnan().sum())} of {values.numel()} values"
        hint = "other weights (an earlier checkpoint), or precision: fp32"
        raise NotANumberError("The model predicts NaN.", got=got, expected="numbers", hint=hint)
    return values


class _Passes(ForwardPasses):
    def __init__(self, module: TrainingModule, batch: Batch, record: Recorder | None, autocast: Autocast) -> None:
        super().__init__(module.model, batch, training=False, teacher=module.teacher, record=record)
        self._context = autocast

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        with _grad(self.record), self._context():
            return super()._once(key, make)


def _grad(record: Recorder | None) -> AbstractContextManager[Any]:
    return nullcontext() if record is not None and record.gradients else torch.no_grad()


def fingerprint(module: TrainingModule, objective: str) -> str:
    """Return a digest of the weights of the model and of the objective that embeds."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (module.model, module.embedder(objective)):
        for name, value in sorted(part.state_dict().items()):
            digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Set evaluation mode, and the former mode at the end."""
    was = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was)


def score_task(task: Task, runner: TaskRunner) -> dict[str, float]:
    """Return the task's metrics on the runner's data, NaN if the model predicts NaN, ``one_answer`` if it collapsed."""
    try:
        with evaluating(runner.module), torch.no_grad():
            result = task.evaluate(runner)
    except NotANumberError:
        if runner.share.count > 1:  # other processes wait for this one's rows
            raise
        return {task.metric: math.nan}
    return {**result.metrics, **one_answer(result.predictions)}


def mean_losses(module: TrainingModule, runner: TaskRunner, *, epoch: int, seed: int) -> dict[str, float]:
    """Return mean losses and metrics over the runner's data; ``loss`` is the weighted sum of losses."""
    totals, counts = defaultdict[str, float](float), defaultdict[str, float](float)
    numbers = itertools.count(runner.share.rank, runner.share.count)

    def means_of(batch: Batch) -> list[dict[str, tuple[float, float]]]:
        seed_step(seed, -1 & 0xFFFFFFFF, next(numbers), 0)
        result = module(batch, epoch=epoch)
        named = result.losses | {f"metric/{name}": mean for name, mean in result.metrics.items()}
        return [{name: (float(mean.total), float(mean.count)) for name, mean in named.items()}]

    with evaluating(module), torch.no_grad(), runner.autocast():
        for row in runner.rows(means_of):
            for name, (total, count) in row.items():
                totals[name] += total
                counts[name] += count
    means = {name: total / counts[name] if counts[name] > 0 else 0.0 for name, total in totals.items()}
    losses = {name: value for name, value in means.items() if not name.startswith("metric/")}
    result = {"loss": sum(module.weight(name, epoch) * value for name, value in losses.items())}
    result |= {f"loss/{name}": value for name, value in losses.items()}
    return result | {n.removeprefix("metric/"): v for n, v in means.items() if n.startswith("metric/")}
