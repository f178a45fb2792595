"""Evaluation while training: a task's own score, or the objectives' mean losses on held-out data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.engine.learner import Learner
from vlcli.engine.processes import seed_step
from vlcli.nn.batch import Batch
from vlcli.nn.model import Facts, Model, Recorder, device_of
from vlcli.nn.step import Step
from vlcli.objectives.base import Mean
from vlcli.progress import Progress, Silent
from vlcli.tasks.base import Task

Autocast = Callable[[], AbstractContextManager[Any]]


class TaskRunner:
    """What a task's evaluation is given (``vlcli.tasks.base.Runner``).

    Args:
        learner: model and objectives.
        data: a ``vlcli.data.pipeline.Pipeline``.
        batch_size: examples a batch.
        workers: loader processes.
        progress: where to report.
        autocast: the precision to compute in.
        label: name of the progress bar.
    """

    def __init__(
        self,
        learner: Learner,
        data: Any,
        *,
        batch_size: int = 64,
        workers: int = 0,
        progress: Progress | None = None,
        autocast: Autocast = nullcontext,
        label: str = "evaluate",
    ) -> None:
        self.learner, self.data = learner, data
        self.batch_size, self.workers = batch_size, workers
        self.progress: Progress = progress or Silent()
        self.autocast, self.label = autocast, label

    @property
    def model(self) -> Model:
        """The model."""
        return self.learner.model

    @property
    def facts(self) -> Facts:
        """Sizes and answers."""
        return self.learner.model.facts

    def batches(self) -> Iterator[Batch]:
        """Every batch in order, on the model's device."""
        loader = self.data.loader(self.batch_size, shuffle=False, workers=self.workers)
        device = device_of(self.learner.model)
        with self.progress.task(self.label, getattr(self.data, "total", len(self.data)), "ex") as bar:
            for batch in loader:
                yield batch.to(device)
                bar.advance(len(batch))

    def step(self, batch: Batch, record: Recorder | None = None) -> Step:
        """Passes over one batch; without gradient unless ``record`` wants it."""
        return _Passes(self.learner, batch, record, self.autocast)

    def predict(self, step: Step, only: str | None = None) -> dict[str, dict[str, Tensor]]:
        """``predict`` of every objective that has one, in float32."""
        with _grad(step.record), self.autocast():
            outputs = self.learner.predict(step, only)
        return {name: {key: _plain(value) for key, value in found.items()} for name, found in outputs.items()}


class _Passes(Step):
    """A step whose passes are computed in the runner's precision, with gradient only where it is recorded."""

    def __init__(self, learner: Learner, batch: Batch, record: Recorder | None, autocast: Autocast) -> None:
        super().__init__(learner.model, batch, training=False, teacher=learner.teacher, record=record)
        self._context = autocast

    def _once(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        with _grad(self.record), self._context():
            return super()._once(key, make)


def _grad(record: Recorder | None) -> AbstractContextManager[Any]:
    return nullcontext() if record is not None and record.gradients else torch.no_grad()


def _plain(value: Tensor) -> Tensor:
    return value.float() if value.is_floating_point() else value


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode, and back to what it was."""
    was = module.training
    module.eval()
    try:
        yield
    finally:
        module.train(was)


def score_task(task: Task, runner: TaskRunner) -> dict[str, float]:
    """The task's metrics on the runner's data."""
    with evaluating(runner.learner), torch.no_grad():
        return task.evaluate(runner).metrics


def mean_losses(learner: Learner, runner: TaskRunner, *, epoch: int, seed: int) -> dict[str, float]:
    """Mean losses and metrics over the runner's data; ``loss`` is the weighted sum.

    Each mean is over all terms of the data, not over batches.
    """
    sums: dict[str, list[Tensor]] = {}
    with evaluating(learner), torch.no_grad(), runner.autocast():
        for number, batch in enumerate(runner.batches()):
            seed_step(seed, -1 & 0xFFFFFFFF, number)
            result = learner(batch, epoch=epoch)
            _add(sums, result.losses.items())
            _add(sums, ((f"metric/{name}", mean) for name, mean in result.metrics.items()))
    means = {name: float(total / count) if count > 0 else 0.0 for name, (total, count) in sums.items()}
    losses = {name: value for name, value in means.items() if not name.startswith("metric/")}
    found = {"loss": sum(learner.weight(name, epoch) * value for name, value in losses.items())}
    found |= {f"loss/{name}": value for name, value in losses.items()}
    return found | {n.removeprefix("metric/"): v for n, v in means.items() if n.startswith("metric/")}


def _add(sums: dict[str, list[Tensor]], means: Iterable[tuple[str, Mean]]) -> None:
    for name, mean in means:
        total, count = sums.setdefault(name, [torch.zeros_like(mean.total), torch.zeros_like(mean.total)])
        total += mean.total
        count += mean.count
