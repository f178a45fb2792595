"""A run under torchrun or accelerate's launcher: rank 0 decides, the others join its stages that share work.

Everything but extraction, training and the evaluation of joint tasks happens on rank 0 alone. Before such a stage it
tells the others what it will run, over the process group itself, so nothing can be left over from an earlier run.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vlcli.builders.context import StageContext
from vlcli.progress import Silent
from vlcli.recipe.plan import RunOptions
from vlcli.recipe.resolved import Resolved


def several() -> bool:
    """Whether a launcher started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1


def is_first() -> bool:
    """Whether this is the process that decides."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def joined(device: str | None, hang_timeout: float) -> Iterator[None]:
    """Form the process group; while this lasts, the processes notice when one of them is gone or hangs."""
    from vlcli.engine import peers, processes

    processes.set_hang_timeout(hang_timeout)
    processes.start(device or "auto")
    with peers.watched():
        yield


def announce(context: StageContext | None) -> None:
    """Rank 0: tell the others to run this stage too; None: that there is nothing more."""
    from vlcli.engine import processes

    if context is None:
        processes.share(None)
        return
    ticket: dict[str, Any] = {"name": context.name, "folder": str(context.folder), "root": str(context.root)}
    ticket |= {"inputs": {name: str(path) for name, path in context.inputs.items()}, "kinds": dict(context.kinds)}
    ticket |= {"resume": context.resume, "seed": context.seed, "device": context.device}
    processes.share(ticket)


def follow(resolved: Resolved, options: RunOptions) -> None:
    """Other ranks: run what rank 0 announces until it announces the end."""
    from vlcli.engine import processes

    with joined(options.device, resolved.recipe.hang_timeout):
        while (ticket := processes.share(None)) is not None:
            stage = resolved.stages[ticket["name"]]
            context = StageContext(
                recipe=resolved.recipe,
                name=ticket["name"],
                config=stage,
                folder=Path(ticket["folder"]),
                inputs={name: Path(path) for name, path in ticket["inputs"].items()},
                root=Path(ticket["root"]),
                seed=ticket["seed"],
                device=ticket["device"],
                progress=Silent(),
                resume=ticket["resume"],
                kinds=ticket["kinds"],
            )
            from vlcli.images.files import pixel_range

            with pixel_range(context.recipe.images.range):
                importlib.import_module(f"vlcli.stages.{stage.kind}").run(context)
