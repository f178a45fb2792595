"""Sums losses, metrics and times between two lines of the training log."""

import time
from collections.abc import Callable, Mapping, Sequence


class LogWindow:
    """Sums since the last log line; ``sums`` are those of a checkpoint.

    Attributes:
        speed: examples per second of the last line.
        waited: seconds for which training waited for batches.
    """

    TIMES = ("examples_per_second", "data_wait", "seconds")

    def __init__(self, sums: Mapping[str, tuple[float, float]]) -> None:
        self._sums = dict(sums)
        self.speed: dict[str, float] = {}
        self._restart()

    def _restart(self) -> None:
        self.waited, self.examples, self._begun = 0.0, 0, time.perf_counter()

    def add(self, sums: Mapping[str, Sequence[float]], examples: int = 0) -> None:
        """Add (total, count) by name: ``loss/NAME`` of losses, and metrics."""
        for name, (total, count) in sums.items():
            before = self._sums.get(name, (0.0, 0.0))
            self._sums[name] = before[0] + total, before[1] + count
        self.examples += examples

    def note(self, norm: float, rate: float) -> None:
        self.add({"grad_norm": (norm, 1.0)})
        self._sums["lr"] = rate, 1.0

    def sums(self) -> dict[str, tuple[float, float]]:
        """Return (total, count) by name."""
        return dict(self._sums)

    def close(self, weight: Callable[[str], float]) -> dict[str, float]:
        """Return means, with ``loss`` the sum of losses times their ``weight``, and start the next window."""
        values = {name: total / count if count else 0.0 for name, (total, count) in self._sums.items()}
        losses = {n.removeprefix("loss/"): v for n, v in values.items() if n.startswith("loss/")}
        elapsed = max(time.perf_counter() - self._begun, 1e-9)
        times = {"examples_per_second": self.examples / elapsed, "data_wait": self.waited / elapsed, "seconds": elapsed}
        self._sums, self.speed = {}, {"ex/s": float(f"{times['examples_per_second']:.3g}")}
        self._restart()
        return {"loss": sum(weight(name) * value for name, value in losses.items()), **values, **times}
