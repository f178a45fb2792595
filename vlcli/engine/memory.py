"""Switches activation checkpointing and compilation on."""

from torch import nn

from vlcli.engine.sharding import blocks_of
from vlcli.progress import Progress
from vlcli.recipe.schema import Training


def prepare_modules(module: nn.Module, config: Training, progress: Progress) -> None:
    """Apply ``checkpointing`` and ``compile`` of the recipe to a module."""
    stacks = [part for part in module.modules() if hasattr(part, "checkpointing")]
    if config.checkpointing:
        for stack in stacks:
            stack.checkpointing = True  # type: ignore[assignment]
        if not stacks:
            progress.warn("this model has no layers that can be recomputed: checkpointing changes nothing")
    if config.compile:
        # Blocks whose parameters are gathered one after another are compiled one by one.
        blocks = blocks_of(module) if config.sharding != "none" else []
        for part in blocks or stacks or list(module.children()):
            part.compile(dynamic=True)
