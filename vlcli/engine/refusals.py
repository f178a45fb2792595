"""Makes one message of losses and gradients that are not finite."""

import math
from pathlib import Path

import torch
from torch import nn

from vlcli.engine import processes
from vlcli.engine.sharding import local
from vlcli.engine.training_module import StepResult
from vlcli.engine.weights import first_not_finite
from vlcli.errors import VlcliError


def bad_losses(result: StepResult) -> str:
    """Return the losses that are not finite, in words; empty if all are finite."""
    names = list(result.losses)  # one transfer from the device for all of them
    sums = torch.stack([mean.total for mean in result.losses.values()]).tolist() if names else []
    return ", ".join(f"{name} = {value}" for name, value in zip(names, sums, strict=True) if not math.isfinite(value))


def first_bad_gradient(module: nn.Module) -> str | None:
    """Return the first parameter whose gradient is not finite on any process; every process calls this."""
    grads = {name: local(p.grad) for name, p in module.named_parameters() if p.grad is not None}
    return next(filter(None, processes.collect(first_not_finite(grads))), None)


def not_finite(what: str, got: str, where: str, rate: float, module: nn.Module, kept: list[Path]) -> VlcliError:
    """Return the error for a loss or a gradient.

    Args:
        kept: checkpoints, the newest last.
    """
    name = first_not_finite({name: local(p) for name, p in module.named_parameters()})
    weights = f"the first weight that is not finite is {name}" if name else "all weights are finite"
    return VlcliError(
        what,
        where=where,
        got=f"{got} at learning rate {rate:.3g}; {weights}",
        expected="finite numbers",
        hint="lower optimizer.lr, lengthen schedule.warmup or set clip; "
        + (f"the last good checkpoint is {kept[-1]}" if kept else "no checkpoint was written yet"),
    )
