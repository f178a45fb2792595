"""``vlcli run`` and the verbs of single stage kinds: plan, run, tell."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import end_with_parent, guarded

if TYPE_CHECKING:
    from vlcli.recipe.load import Resolved
    from vlcli.recipe.plan import Options

QUICKSTART = "quickstart"


@dataclass(frozen=True)
class Request:
    """A command line, as far as all these verbs share it."""

    output: Path = Path("runs")
    only: str | None = None
    first: str | None = None
    until: str | None = None
    kind: str | None = None
    jobs: int | None = None
    dry_run: bool = False
    force: bool = False
    resume: bool = True
    device: str | None = None
    seed: int | None = None
    plugin: tuple[str, ...] = ()
    json_: bool = False
    quiet: bool = False
    verbose: int = 0
    folder: Path | None = None
    worker: bool = False


@guarded
def run(
    words: o.RecipesAndWords = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Run every recipe over so many seeds.")] = 1,
    table: Annotated[bool, typer.Option("--table", help="Mean and 95 % interval per metric over the seeds.")] = False,
    only: o.Only = None,
    first: o.First = None,
    until: o.Until = None,
    jobs: o.Jobs = None,
    dry_run: o.DryRun = False,
    force: o.Force = False,
    resume: o.Resume = True,
    output: o.Output = Path("runs"),
    device: o.Device = None,
    seed: o.Seed = None,
    plugin: o.Plugin = None,
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
    run_folder: Annotated[Path | None, typer.Option("--run-folder", hidden=True)] = None,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
) -> None:
    """Run recipes from start to end: what is finished and unchanged is skipped.

    vlcli run quickstart

    vlcli run lxmert dimbert --seeds 3 --table

    vlcli run my.yaml stages.pretrain.epochs=3 --from pretrain
    """
    if worker:
        end_with_parent()
    request = Request(
        output,
        only,
        first,
        until,
        None,
        jobs,
        dry_run,
        force,
        resume,
        device,
        seed,
        o.load_plugins(plugin),
        json_,
        quiet,
        verbose,
        run_folder,
        worker,
    )
    names, overrides = o.split_words(words)
    if len(names) <= 1 and seeds == 1 and not table:
        run_one(names[0] if names else QUICKSTART, overrides, request)
        return
    from vlcli.cli.sweep import sweep

    sweep(names or [QUICKSTART], overrides, request, seeds)


def stage_verb(kind: str, about: str) -> Any:
    """The command that runs a recipe's stages of one kind, with what they build on."""

    @guarded
    def command(
        words: o.Words = None,
        recipe: o.Recipe = QUICKSTART,
        only: o.Only = None,
        jobs: o.Jobs = None,
        dry_run: o.DryRun = False,
        force: o.Force = False,
        resume: o.Resume = True,
        output: o.Output = Path("runs"),
        device: o.Device = None,
        seed: o.Seed = None,
        plugin: o.Plugin = None,
        json_: o.Json = False,
        quiet: o.Quiet = False,
        verbose: o.Verbose = 0,
    ) -> None:
        request = Request(
            output,
            only,
            None,
            None,
            None if only else kind,
            jobs,
            dry_run,
            force,
            resume,
            device,
            seed,
            o.load_plugins(plugin),
            json_,
            quiet,
            verbose,
        )
        names, overrides = o.split_words(words)
        if names:
            from vlcli.errors import UsageError

            raise UsageError(
                "These words are no overrides.",
                got=" ".join(names),
                hint=f"name the recipe so: vlcli {kind} --recipe {names[0]}",
            )
        run_one(recipe, overrides, request, verb=kind)

    command.__doc__ = about
    return command


def resolve(reference: str, overrides: list[str], request: Request, verb: str | None = None) -> Resolved:
    """The recipe that a request means."""
    from vlcli.recipe.load import load

    words = [*overrides, *([f"seed={request.seed}"] if request.seed is not None else [])]
    return load(reference, words, verb=verb, only=request.only)


def plan_options(request: Request) -> Options:
    """A request as the planner takes it."""
    from vlcli.recipe.plan import Options

    return Options(
        request.output,
        request.folder,
        request.only,
        request.first,
        request.until,
        request.kind,
        request.force,
        request.resume,
        request.device,
        1 if request.worker else request.jobs,
        request.plugin,
        not request.worker,
    )


def run_one(reference: str, overrides: list[str], request: Request, verb: str | None = None) -> None:
    """Run (or plan) one recipe and tell how it went."""
    from vlcli.cli import console, telling

    resolved = resolve(reference, overrides, request, verb)
    carry_out(resolved, request, telling, console)


def carry_out(resolved: Any, request: Request, telling: Any, console: Any) -> None:
    """Plan or run a resolved recipe, print, and leave with the exit code."""
    if request.dry_run:
        code = telling.tell_plan(resolved, plan_options(request), request)
    else:
        from vlcli.stages.runner import run_recipe

        shown = console.progress(request.verbose, request.quiet, request.worker)
        outcomes = run_recipe(resolved, plan_options(request), shown)
        code = telling.tell_outcomes(resolved, outcomes, request)
    if code:
        raise typer.Exit(code)
