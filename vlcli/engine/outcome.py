"""Score of an evaluation, early stopping, and the outcome of a training."""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from vlcli.engine.evaluation import Autocast
from vlcli.recipe.fields import StopOptions


class EarlyStop:
    """Counts validations and training time on rank 0; ``saved`` is the :meth:`state` of a checkpoint."""

    def __init__(self, options: StopOptions | None, saved: Mapping[str, Any]) -> None:
        self.options = options or StopOptions.model_construct()  # neither patience nor minutes
        self.ended: bool = saved.get("ended", False)
        self._best: float | None = saved.get("best")
        self._step, self._stale = saved.get("step", 0), saved.get("stale", 0)
        self._begun = time.monotonic() - saved.get("seconds", 0.0)

    def state(self) -> dict[str, Any]:
        """Return the counts for a checkpoint; empty without ``patience`` and ``minutes``."""
        if self.options.patience is None and self.options.minutes is None:
            return {}
        seconds = time.monotonic() - self._begun
        return {"ended": self.ended, "best": self._best, "step": self._step, "stale": self._stale, "seconds": seconds}

    def note(self, step: int, score: float) -> None:
        """Count a validation; NaN is not a better score."""
        if score > self._best + self.options.min_delta if self._best is not None else not math.isnan(score):
            self._best, self._step, self._stale = score, step, 0
        else:
            self._stale += 1

    def due(self) -> bool:
        """Whether ``patience`` or ``minutes`` of the recipe are used up."""
        minutes = self.options.minutes
        return self._impatient() or (minutes is not None and time.monotonic() - self._begun > 60 * minutes)

    def reason(self, step: int, steps: int) -> str:
        """Return why training ended at ``step`` of ``steps``, or "" at the last one."""
        if not self.ended or step >= steps:
            return ""
        if self.options.minutes is None or self._impatient():
            return f"step {step:,} of {steps:,}, no better validation since step {self._step:,}"
        return f"step {step:,} of {steps:,}, {self.options.minutes:g} minutes of training are over"

    def _impatient(self) -> bool:
        return self.options.patience is not None and self._stale >= self.options.patience


@dataclass(frozen=True)
class Score:
    """Result of an evaluation during training; the best weights have the highest ``value``."""

    metrics: dict[str, float]
    value: float


Evaluate = Callable[[Autocast, int], Score]
"""Scores the training module in a precision, for an epoch; called on rank 0.

If its attribute ``joint`` is true, it is called on all processes, and its method ``alone`` on rank 0.
"""


@dataclass
class TrainingOutcome:
    """Outcome of a training.

    Attributes:
        losses: means of the last log line.
        metrics: of the best evaluation.
        best: step of that evaluation; -1: there was none.
        examples: seen by all processes.
        stopped: why training ended before its last step, or "".
    """

    steps: int
    epochs: int
    losses: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)
    best: int = -1
    examples: int = 0
    stopped: str = ""
