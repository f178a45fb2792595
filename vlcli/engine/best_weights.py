"""Selects the weights that a training run returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import Tensor

from vlcli.engine.checkpoint import Checkpoints
from vlcli.engine.outcome import Score, TrainingOutcome
from vlcli.errors import DataError
from vlcli.progress import Progress


def select_weights(
    outcome: TrainingOutcome,
    checkpoints: Checkpoints,
    last_weights: Callable[[], dict[str, Tensor]],
    score_last: Callable[[], Score],
    progress: Progress,
    *,
    averaged: bool,
) -> tuple[TrainingOutcome, dict[str, Tensor]]:
    """Return the weights with the best validation score, or the last weights if the run has no validation.

    If the file with the best weights is damaged, they are read from the checkpoint of the same step. If that checkpoint
    is gone too, the last weights are scored and returned.

    Args:
        last_weights: called only if the last weights are needed; returns their state dict.
        score_last: called only if the last weights replace the best; returns their validation score.
        averaged: read the exponential moving average of the weights.

    Returns:
        The outcome, whose ``best`` step and metrics belong to the returned weights, and the state dict.
    """
    if outcome.best < 0:
        return outcome, last_weights()
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
    return replace(outcome, best=outcome.steps, metrics=score_last().metrics), last_weights()
