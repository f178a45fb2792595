"""Which weights a training leaves, and what a resumed one says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from vlcli.engine import processes
from vlcli.engine.checkpoint import Checkpoints
from vlcli.engine.outcome import Score, TrainingOutcome
from vlcli.errors import DataError
from vlcli.progress import Progress


def chosen(
    outcome: TrainingOutcome,
    checkpoints: Checkpoints,
    last: Callable[[], dict[str, Tensor]],
    score: Callable[[], Score],
    progress: Progress,
    *,
    averaged: bool,
) -> tuple[TrainingOutcome, dict[str, Tensor]]:
    """The weights that a run leaves, and the outcome that is true of them.

    They are the best of the validation data, else the last (averaged, where kept). A damaged best is made again from
    the checkpoint of its step; where that is gone, the last weights are scored and stand in for it.

    Args:
        outcome: of the run.
        checkpoints: of the run.
        last: gives the last weights.
        score: scores them.
        progress: where to warn.
        averaged: whether averages of weights are kept.
    """
    if outcome.best < 0:
        return outcome, last()
    try:
        return outcome, checkpoints.best(outcome.best)
    except DataError as error:
        checkpoints.set_aside(checkpoints.folder / f"best-{outcome.best:08d}", error, progress)
    try:
        state = checkpoints.weights(outcome.best, averaged=averaged)
        progress.warn(f"the best weights are taken from the checkpoint of step {outcome.best} instead")
        return outcome, state
    except DataError:
        progress.warn(f"the best weights are lost: those of step {outcome.steps}, the last, stand in for them")
    found = score()
    return replace(outcome, best=outcome.steps, metrics=found.metrics), last()


def changed_world(before: int) -> str:
    """What to tell where another number of processes goes on than wrote the checkpoint; empty where it is the same."""
    now = processes.world()
    if before == now:
        return ""
    text = f"{before} process{'es' * (before > 1)} wrote the checkpoint, {now} go{'es' * (now == 1)} on: "
    return text + "batches are the same; dropout draws other numbers, and sums round otherwise"
