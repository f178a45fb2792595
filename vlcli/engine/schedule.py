"""Computes the number of steps of a training and the learning rate of each."""

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
    """Batches of an epoch, optimizer steps of the training, and whether an epoch's last, smaller batch is left out."""

    batches: int
    steps: int
    drop_last: bool

    @classmethod
    def of(cls, examples: int, config: Training, world: int) -> StepPlan:
        """Compute the plan: ``steps`` or ``epochs``, whichever ends first, else one epoch.

        Raises:
            RecipeError: a batch is smaller than the number of processes.
        """
        size = min(config.batch_size, examples)
        if size < world:
            problem = Problem("batch_size", "a batch must hold an example for every process", got=f"{size} for {world}")
            raise RecipeError([problem])
        drop = examples >= config.batch_size
        batches = max(1, examples // config.batch_size)
        per_epoch = -(-batches // config.accumulate)
        limits = [config.steps, None if config.epochs is None else config.epochs * per_epoch]
        return cls(batches, min([n for n in limits if n is not None], default=per_epoch), drop)


BASE, BASE_WIDTH, BASE_DEPTH, BASE_BATCH = 3e-4, 64, 3, 32
"""The rate of a post-norm network of this width and depth with batches of this size."""
_PRE_NORM = 2.0  # factor for networks that normalise before each block, whatever their depth
LOWEST, HIGHEST = 1e-6, 2e-3
WARMUP, WARMUP_SHARE, BETA = 200, 0.2, 0.98


def rule(shape: NetworkShape, batch: int) -> float:
    """Return the peak learning rate for AdamW, to two digits (trials: docs/learning.md).

    It is proportional to width^-1/2, in post-norm networks to depth^-3/4, and to batch^1/2 (examples of an optimizer
    step over all processes). Without layers with a layer norm the width does not count.
    """
    depth = (BASE_DEPTH / max(1, shape.depth)) ** 0.75 if shape.post_norm else _PRE_NORM
    width = shape.width if shape.depth else BASE_WIDTH
    rate = BASE * shape.factor * (BASE_WIDTH / max(1, width)) ** 0.5 * depth * (batch / BASE_BATCH) ** 0.5
    return float(f"{min(HIGHEST, max(LOWEST, rate)):.1e}")


def batch_of(config: Training, examples: int) -> int:
    """Return the examples of an optimizer step over all processes."""
    return min(config.batch_size, examples) * config.accumulate


def with_rate(config: Training, shape: NetworkShape, examples: int, steps: int) -> tuple[Training, str]:
    """Return the configuration with a learning rate, and a line on its choice, or "" if the recipe states the rate.

    If the recipe does not state them, warm-up is 200 steps (of fewer than 1,000 steps a fifth, of more than 4,000 the
    usual share) and the second beta 0.98.
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
    """Return the factor of the peak rate for update ``index`` (0-based) of ``total``.

    ``warmup`` below 1 is a share of ``total``, else a number of steps; ``end`` is a share of the peak. With
    ``count_after`` the first update of a warm-up has factor 0 (BertAdam), else the last has factor 1.
    """
    warm = options.warmup * total if options.warmup < 1 else options.warmup
    if index < warm:
        return min(1.0, (index if count_after else index + 1) / warm)
    if options.name == "step":
        return options.factor ** sum(index >= round(drop * total) for drop in options.drops)
    done = min(1.0, (index - warm) / max(total - warm, 1e-9))
    shapes = {"constant": 1.0, "cosine": 0.5 * (1 + math.cos(math.pi * done)), "linear": 1 - done}
    shape = shapes[options.name] if options.name in shapes else float((1 - done) ** options.power)
    return options.end + (1 - options.end) * shape


def set_rate(optimizer: torch.optim.Optimizer, config: Training, step: int, steps: int) -> float:
    """Set the learning rates of ``step`` (0-based); return that of factor 1. Raises RecipeError: it is not finite."""
    share = factor(step, steps, config.schedule, count_after=config.optimizer.name == "bert-adam")
    rate = share * (config.optimizer.lr or 0.0)
    if not math.isfinite(rate):
        raise RecipeError([Problem("schedule", f"the learning rate of step {step + 1} is no number", got=str(rate))])
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * share
    return rate
