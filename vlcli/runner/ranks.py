"""Runs a recipe under torchrun or accelerate's launcher.

Rank 0 decides; the others join it in extraction, training and the evaluation of joint tasks.
"""

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

from vlcli.builders.context import StageContext, StageResult
from vlcli.progress import Silent
from vlcli.recipe.locate import Resolved
from vlcli.recipe.plan import RunOptions


def several() -> bool:
    """Whether a launcher started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Whether this is rank 0."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str | None, hang_timeout: float) -> Iterator[None]:
    """Forms the process group, and watches whether one of the processes is gone or hangs."""
    from vlcli.engine import peers, processes

    processes.set_hang_timeout(hang_timeout)
    processes.start(device or "auto")
    with peers.watched():
        yield


def announce(context: StageContext | None) -> None:
    """Tells the other ranks to run this stage too, or (None) to end; called on rank 0."""
    from vlcli.engine import processes

    names = ("name", "folder", "root", "inputs", "kinds", "resume", "seed", "device")
    processes.share(None if context is None else {name: getattr(context, name) for name in names})


def follow(resolved: Resolved, options: RunOptions) -> None:
    """Runs the stages that rank 0 announces; called on the other ranks."""
    from vlcli.engine import processes

    with joined(options.device, resolved.recipe.hang_timeout):
        while (ticket := processes.share(None)) is not None:
            config = resolved.stages[ticket["name"]]
            run_stage(StageContext(recipe=resolved.recipe, config=config, progress=Silent(), **ticket))


def run_stage(context: StageContext) -> StageResult:
    """Calls ``run`` of the module of the stage's kind."""
    from vlcli.images.files import pixel_range  # not before a stage runs: pillow takes a tenth of a second

    module = importlib.import_module(f"vlcli.stages.{context.config.kind}")
    with pixel_range(context.recipe.images.range):
        result: StageResult = module.run(context)
        return result
