"""The options that every verb which runs stages has, declared once; the recipe and the plan they ask for."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from vlcli.cli import options as o

if TYPE_CHECKING:
    from vlcli.recipe.plan import RunOptions
    from vlcli.recipe.resolved import Resolved


@dataclass(frozen=True)
class Request:
    """A command line, as far as the verbs that run stages share it."""

    only: o.Only = None
    jobs: o.Jobs = None
    dry_run: o.DryRun = False
    force: o.Force = False
    resume: o.Resume = True
    output: o.Output = Path("runs")
    device: o.Device = None
    seed: o.Seed = None
    plugin: o.Plugin = None
    trust: o.Trust = False
    json_: o.Json = False
    quiet: o.Quiet = False
    verbose: o.Verbose = 0


@dataclass(frozen=True)
class RunRequest(Request):
    """A request and what the verb itself asks for."""

    first: str | None = None
    until: str | None = None
    kind: str | None = None
    folder: Path | None = None
    worker: bool = False


def requested(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the shared options behind its own; it takes them together as ``request``."""
    shared = _parameters()
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "request"]

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        asked = {p.name: given.pop(p.name, p.default) for p in shared}
        asked["plugin"] = list(o.load_plugins(asked["plugin"]))
        command(**given, request=RunRequest(**asked))

    wrapper.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in [*own, *shared]}
    return wrapper


def _parameters() -> list[inspect.Parameter]:
    hints = get_type_hints(Request, include_extras=True)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(Request)]


def resolve(reference: str, overrides: list[str], request: RunRequest, verb: str | None = None) -> Resolved:
    """The recipe that a request means."""
    from vlcli.recipe.load import load

    return load(reference, words_of(overrides, request), verb=verb, only=request.only, **how(request))


def words_of(overrides: list[str], request: RunRequest) -> list[str]:
    """The overrides of a request, with ``--seed`` among them."""
    return [*overrides, *([f"seed={request.seed}"] if request.seed is not None else [])]


def how(request: RunRequest) -> dict[str, bool]:
    """How the recipes of a request are loaded: see :func:`vlcli.recipe.load.load`."""
    return {"trust": request.trust, "deep": not (request.dry_run or request.worker)}


def plan_options(request: RunRequest) -> RunOptions:
    """A request as the planner takes it."""
    from vlcli.recipe.plan import RunOptions

    return RunOptions(
        output=request.output,
        folder=request.folder,
        only=request.only,
        first=request.first,
        until=request.until,
        kind=request.kind,
        force=request.force,
        resume=request.resume,
        device=request.device,
        jobs=1 if request.worker else request.jobs,
        plugins=tuple(request.plugin or ()),
        check=not request.worker,
    )
