"""Computes the learning rate of each step."""

from __future__ import annotations

import math

import torch

from vlcli.errors import Problem, RecipeError
from vlcli.recipe.schema import Training
from vlcli.recipe.training_options import ScheduleOptions


def factor(index: int, total: int, options: ScheduleOptions, *, count_after: bool = False) -> float:
    """Return the factor of the peak rate for update number ``index`` (0-based) of ``total``.

    ``warmup`` below 1 is a share of ``total``, else a number of steps; ``end`` is a share of the peak.

    Args:
        count_after: the step is counted after it is used, so that the first update of a warm-up has factor 0
            (BertAdam); else the warm-up ends with the full rate and the decay starts from it.
    """
    warm = options.warmup * total if options.warmup < 1 else options.warmup
    if index < warm:
        return min(1.0, (index if count_after else index + 1) / warm)
    if options.name == "step":
        return options.factor ** sum(index >= round(drop * total) for drop in options.drops)
    left = min(1.0, (index - warm) / max(total - warm, 1e-9))
    return options.end + (1 - options.end) * _shape(options, left)


def _shape(options: ScheduleOptions, done: float) -> float:
    if options.name == "constant":
        return 1.0
    if options.name == "cosine":
        return 0.5 * (1 + math.cos(math.pi * done))
    power = options.power if options.name == "polynomial" else 1.0
    return float((1 - done) ** power)


def set_rate(optimizer: torch.optim.Optimizer, config: Training, step: int, steps: int) -> float:
    """Set the learning rates of step ``step`` (0-based) of ``steps``, and return that of a group with factor 1.

    Raises:
        RecipeError: the rate is not finite.
    """
    share = factor(step, steps, config.schedule, count_after=config.optimizer.name == "bert-adam")
    rate = share * (config.optimizer.lr or 0.0)
    if not math.isfinite(rate):
        text = f"the learning rate of step {step + 1} is no number"
        raise RecipeError([Problem("schedule", text, got=str(rate))])
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share
    return rate
