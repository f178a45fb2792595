"""Computes the number of steps of a training, and the learning rate of each step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from vlcli.errors import Problem, RecipeError
from vlcli.nn.shape import NetworkShape
from vlcli.recipe.fields import ScheduleOptions
from vlcli.recipe.schema import Training


@dataclass(frozen=True)
class StepPlan:
    """Numbers of batches and steps.

    Attributes:
        batches: per epoch.
        steps: optimizer steps of the whole training.
        drop_last: whether an epoch's last, smaller batch is left out.
    """

    batches: int
    steps: int
    drop_last: bool

    @classmethod
    def of(cls, examples: int, config: Training, world: int) -> StepPlan:
        """Compute the plan for a number of examples; of ``steps`` and ``epochs`` whichever ends first, else one epoch.

        Raises:
            RecipeError: a batch is smaller than the number of processes.
        """
        size = min(config.batch_size, examples)
        if size < world:
            problem = Problem("batch_size", "a batch must hold an example for every process", got=f"{size} for {world}")
            raise RecipeError([problem])
        # Fewer examples than one batch: the batch is what there is.
        drop = examples >= config.batch_size
        batches = max(1, examples // config.batch_size)
        per_epoch = -(-batches // config.accumulate)
        limits = [config.steps, None if config.epochs is None else config.epochs * per_epoch]
        return cls(batches, min([n for n in limits if n is not None], default=per_epoch), drop)


BASE, BASE_WIDTH, BASE_DEPTH, BASE_BATCH = 3e-4, 64, 3, 32
"""The rate of a post-norm network of this width and depth with batches of this size."""
PRE_NORM = 2.0
"""Factor for networks that normalise before each block, whatever their depth."""
LOWEST, HIGHEST = 1e-6, 2e-3
WARMUP, WARMUP_SHARE, BETA = 200, 0.2, 0.98


def rule(shape: NetworkShape, batch: int) -> float:
    """Return the highest learning rate for AdamW, to two digits.

    It falls with the square root of the width and, in post-norm networks, with the depth to the power 3/4; it rises
    with the square root of the batch. Without layers that hold a layer norm (convolutions, one hidden layer) the width
    does not count. docs/learning.md has the trials behind it.

    Args:
        batch: examples of an optimizer step, over all processes.
    """
    depth = (BASE_DEPTH / max(1, shape.depth)) ** 0.75 if shape.post_norm else PRE_NORM
    width = shape.width if shape.depth else BASE_WIDTH
    rate = BASE * shape.factor * (BASE_WIDTH / max(1, width)) ** 0.5 * depth * (batch / BASE_BATCH) ** 0.5
    return float(f"{min(HIGHEST, max(LOWEST, rate)):.1e}")


def batch_of(config: Training, examples: int) -> int:
    """Return the number of examples of an optimizer step, over all processes."""
    return min(config.batch_size, examples) * config.accumulate


def with_rate(config: Training, shape: NetworkShape, examples: int, steps: int) -> tuple[Training, str]:
    """Return the configuration with a learning rate, and one line on its choice; empty if the recipe states the rate.

    With the rate come, where the recipe does not state them, a warm-up of 200 steps (of fewer than 1,000 steps a fifth,
    of more than 4,000 the usual share) and a second beta of 0.98.
    """
    optimizer, schedule = config.optimizer, config.schedule
    if optimizer.lr is not None:
        return config, ""
    batch = batch_of(config, examples)
    changes: dict[str, Any] = {"lr": rule(shape, batch)}
    if "betas" not in optimizer.model_fields_set:
        changes["betas"] = (optimizer.betas[0], BETA)
    if "warmup" not in schedule.model_fields_set:
        warmup = max(schedule.warmup * steps, min(WARMUP, WARMUP_SHARE * steps))
        schedule = schedule.model_copy(update={"warmup": float(max(1, round(warmup)))})
    chosen = config.model_copy(update={"optimizer": optimizer.model_copy(update=changes), "schedule": schedule})
    return chosen, _described(chosen, shape, batch)


def _described(config: Training, shape: NetworkShape, batch: int) -> str:
    warmup = config.schedule.warmup
    warm = f"{warmup:,.0f} steps" if warmup >= 1 else f"{warmup:.0%} of all steps"
    layers = f"{shape.depth} {'post' if shape.post_norm else 'pre'}-norm layer{'s' * (shape.depth != 1)}, "
    depth = layers if shape.depth else ""
    return f"learning rate {config.optimizer.lr:g} (width {shape.width}, {depth}batch {batch}), warm-up {warm}"


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
    return float((1 - done) ** (options.power if options.name == "polynomial" else 1.0))


def set_rate(optimizer: torch.optim.Optimizer, config: Training, step: int, steps: int) -> float:
    """Set the learning rates of step ``step`` (0-based) of ``steps``, and return that of a group with factor 1.

    Raises:
        RecipeError: the rate is not finite.
    """
    share = factor(step, steps, config.schedule, count_after=config.optimizer.name == "bert-adam")
    rate = share * (config.optimizer.lr or 0.0)
    if not math.isfinite(rate):
        raise RecipeError([Problem("schedule", f"the learning rate of step {step + 1} is no number", got=str(rate))])
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share
    return rate
