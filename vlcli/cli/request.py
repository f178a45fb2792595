"""Declares the options of every verb that runs stages once, and reads the recipe and the plan that they ask for."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_type_hints

import typer

from vlcli import stopping
from vlcli.cli import options
from vlcli.cli.guard import with_options
from vlcli.recipe import stage_record
from vlcli.recipe.locate import Resolved
from vlcli.recipe.plan import RunOptions


@dataclass(frozen=True)
class Request:
    """The options that all verbs share which run stages."""

    only: options.Only = None
    jobs: options.Jobs = None
    processes: options.Processes = None
    dry_run: options.DryRun = False
    force: options.Force = False
    resume: options.Resume = True
    output: options.Output = Path("runs")
    device: options.Device = None
    seed: options.Seed = None
    plugin: options.Plugin = None
    trust: options.Trust = False
    json_: options.Json = False
    quiet: options.Quiet = False
    verbose: options.Verbose = 0


@dataclass(frozen=True)
class RunRequest(Request):
    """A request, and what the verb itself asks for."""

    first: str | None = None
    until: str | None = None
    kind: str | None = None
    folder: Path | None = None
    worker: bool = False

    @property
    def how(self) -> dict[str, bool]:
        """How :func:`vlcli.recipe.load.load` reads the recipe."""
        return {"trust": self.trust, "deep": not (self.dry_run or self.worker)}

    @property
    def options(self) -> RunOptions:
        """The request as the planner takes it."""
        names = ("output", "folder", "only", "first", "until", "kind", "force", "resume", "device")
        shared = {name: getattr(self, name) for name in names}
        jobs, plugins = 1 if self.worker else self.jobs, tuple(self.plugin or ())
        return RunOptions(**shared, jobs=jobs, plugins=plugins, check=not self.worker)

    def words(self, overrides: list[str]) -> list[str]:
        """The overrides, with ``--seed`` among them."""
        return overrides if self.seed is None else [*overrides, f"seed={self.seed}"]

    def resolve(self, reference: str, overrides: list[str], verb: str | None = None) -> Resolved:
        """Loads the recipe that is meant."""
        from vlcli.recipe.load import load

        return load(reference, self.words(overrides), verb=verb, only=self.only, **self.how)


def requested(command: Callable[..., None]) -> Callable[..., None]:
    """Gives a command the shared options behind its own; it takes them together as ``request``."""
    hints = get_type_hints(Request, include_extras=True)
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shared = [inspect.Parameter(f.name, kind, default=f.default, annotation=hints[f.name]) for f in fields(Request)]

    @functools.wraps(command)
    def wrapper(**values: Any) -> None:
        asked = {option.name: values.pop(option.name, option.default) for option in shared}
        request = RunRequest(**asked)
        if stopping.LAUNCHER in os.environ:
            stopping.end_with_parent()
        elif (request.processes or 1) > 1 and not request.dry_run and "WORLD_SIZE" not in os.environ:
            from vlcli.runner.launch import launch

            raise typer.Exit(launch(request.processes or 1))
        command(**values, request=request)

    return with_options(wrapper, command, shared)


def one_stage(value: dict[str, Any], overrides: list[str], label: str, exclude: set[str] | None = None) -> Resolved:
    """Reads a recipe of one stage and names the stage after ``label`` and a hash of what decides its result.

    Args:
        exclude: keys of the stage that are not hashed.
    """
    from vlcli.recipe.load import from_mapping, slug

    resolved = from_mapping(value["name"], value, overrides)
    stage = resolved.stages[next(iter(value["stages"]))]
    digest = stage_record.digest([resolved.recipe.root, stage.model_dump(mode="json", exclude=exclude)])
    name, (written,) = f"{slug(label)}-{digest[:8]}", resolved.document.value["stages"].values()
    resolved.recipe = resolved.recipe.model_copy(update={"stages": {name: stage}})
    resolved.document.value["stages"] = {name: written}  # as `recipe.yaml` of the folder says it
    return resolved
