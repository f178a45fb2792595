"""What a training is scored by, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from vlcli.engine.evaluation import Autocast


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
"""Scores the training module as it is now, in a precision and for an epoch; called on rank 0 only.

One with a true attribute ``joint`` is called on all processes, and its method ``alone`` where rank 0 must do without.
"""


@dataclass
class TrainingOutcome:
    """How a run ended.

    Attributes:
        steps: optimizer steps done.
        epochs: whole epochs done.
        losses: means of the last log line.
        metrics: the best evaluation, or none.
        best: the step of it, -1 where there was no evaluation.
        examples: examples seen, all processes.
        stopped: why it ended before its last step; empty where it did not.
    """

    steps: int
    epochs: int
    losses: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)
    best: int = -1
    examples: int = 0
    stopped: str = ""
