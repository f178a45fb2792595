"""Computes the number of steps of a training."""

from __future__ import annotations

from dataclasses import dataclass

from vlcli.errors import Problem, RecipeError
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
