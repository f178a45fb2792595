"""Sums losses, metrics and times between two lines of the training log."""

import time
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from vlcli.engine.training_module import StepResult
from vlcli.objectives.base import Mean


class LogWindow:
    """Sums since the last log line; ``sums`` are those of a checkpoint.

    Attributes:
        speed: examples per second of the last line.
        waited: seconds for which training waited for batches.
    """

    TIMES = ("examples_per_second", "data_wait", "seconds")

    def __init__(self, sums: Mapping[str, tuple[float, float]]) -> None:
        self._sums = {name: torch.tensor(pair, dtype=torch.float64) for name, pair in sums.items()}
        self.speed: dict[str, float] = {}
        self._restart()

    def _restart(self) -> None:
        self.waited, self.examples, self._begun = 0.0, 0, time.perf_counter()

    def add(self, result: StepResult, examples: int) -> None:
        for name, mean in ({f"loss/{name}": mean for name, mean in result.losses.items()} | result.metrics).items():
            self._add(name, mean)
        self.examples += examples

    def note(self, norm: Tensor, rate: float) -> None:
        self._add("grad_norm", Mean(norm.detach(), torch.ones_like(norm)))
        self._sums["lr"] = torch.tensor([rate, 1.0], dtype=torch.float64)

    def _add(self, name: str, mean: Mean) -> None:
        pair = torch.stack([mean.total, mean.count]).detach()
        pair = pair.to(torch.float32 if pair.device.type == "mps" else torch.float64)
        old = self._sums.get(name)
        self._sums[name] = pair if old is None else old.to(pair.device) + pair

    def sums(self) -> dict[str, tuple[float, float]]:
        """Return (total, count) by name."""
        return {name: (total, count) for name, pair in self._sums.items() for total, count in [pair.tolist()]}

    def close(self, weight: Callable[[str], float]) -> dict[str, float]:
        """Return means, with ``loss`` the sum of losses times their ``weight``, and start the next window."""
        values = {name: total / count if count else 0.0 for name, (total, count) in self.sums().items()}
        losses = {n.removeprefix("loss/"): v for n, v in values.items() if n.startswith("loss/")}
        elapsed = max(time.perf_counter() - self._begun, 1e-9)
        times = {"examples_per_second": self.examples / elapsed, "data_wait": self.waited / elapsed, "seconds": elapsed}
        self._sums, self.speed = {}, {"ex/s": float(f"{times['examples_per_second']:.3g}")}
        self._restart()
        return {"loss": sum(weight(name) * value for name, value in losses.items()), **values, **times}
