"""What one training step takes, counted in a step: with every pass that the objectives ask for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vlcli.nn.model import DataSpec
from vlcli.progress import Silent
from vlcli.recipe import plan as planning
from vlcli.recipe.resolved import Resolved
from vlcli.runner.execute import context_of
from vlcli.runner.trial_step import rehearse

EXAMPLES = 2
"""Of the step: matching needs another picture."""


@dataclass(frozen=True)
class StepCounts:
    """What one example of a step takes.

    Attributes:
        operations: floating-point operations, forward and backward.
        kept: bytes kept for the backward pass.
    """

    operations: float
    kept: int


def count_step(resolved: Resolved, name: str, like: DataSpec, output: Path) -> StepCounts:
    """Take a step of a stage on invented examples, on the processor, in float32.

    Args:
        resolved: the recipe.
        name: of a training stage.
        like: sizes of its data.
        output: folder of all runs.

    Raises:
        VlcliError: the stage cannot be built.
    """
    planner, steps = planning.make(resolved, planning.RunOptions(output))
    context = context_of(planner, name, {step.name: step for step in steps}, Silent())
    with rehearse(context, EXAMPLES, like) as rehearsal:
        batch = rehearsal.batch()
        with FlopCounterMode(display=False) as counter:
            with kept_bytes(rehearsal.module) as kept:
                total = rehearsal.loss(batch).total
            held = sum(kept.values())
            total.backward()
        return StepCounts(counter.get_total_flops() / EXAMPLES, held // EXAMPLES)


@contextmanager
def kept_bytes(module: nn.Module) -> Iterator[dict[int, int]]:
    """Bytes of every storage that is kept for the backward pass, by its place; parameters and buffers left out."""
    own = {p.untyped_storage().data_ptr() for p in [*module.parameters(), *module.buffers()]}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        yield kept
