"""Score of an evaluation, and outcome of a training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vlcli.engine.evaluation import Autocast


@dataclass(frozen=True)
class Score:
    """Result of an evaluation during training.

    Attributes:
        value: by which the best weights are chosen; higher is better.
    """

    metrics: dict[str, float]
    value: float


Evaluate = Callable[[Autocast, int], Score]
"""Scores the training module in a precision, for an epoch; called on rank 0 only.

If its attribute ``joint`` is true, it is called on all processes, and its method ``alone`` on rank 0 only.
"""


@dataclass
class TrainingOutcome:
    """Outcome of a training.

    Attributes:
        steps: optimizer steps done.
        epochs: whole epochs done.
        losses: means of the last log line.
        metrics: of the best evaluation.
        best: the step of that evaluation; -1: there was none.
        examples: examples seen by all processes.
        stopped: why training ended before its last step; empty if it did not.
    """

    steps: int
    epochs: int
    losses: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)
    best: int = -1
    examples: int = 0
    stopped: str = ""
