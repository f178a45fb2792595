"""``vlcli run`` and the verbs of single stage kinds: plan, run, tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli import stopping
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.request import RunRequest, plan_options, requested, resolve

QUICKSTART = "quickstart"


@guarded
@requested
def run(
    words: o.RecipesAndWords = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=1, help="Run every recipe over so many seeds.")] = None,
    table: Annotated[bool, typer.Option("--table", help="Mean and 95 % interval per metric over the seeds.")] = False,
    rows: Annotated[str | None, typer.Option("--rows", help="These rows of a table: 7,8 or 'irpe/*'.")] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Run a grid of more than 1,000 cells.")] = False,
    first: o.First = None,
    until: o.Until = None,
    run_folder: Annotated[Path | None, typer.Option("--run-folder", hidden=True)] = None,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
    *,
    request: RunRequest,
) -> None:
    """Run recipes from start to end: what is finished and unchanged is skipped.

    vlcli run quickstart

    vlcli run lxmert dimbert --seeds 3 --table

    vlcli run tiny/irpe --rows none,product --seeds 5

    vlcli run my.yaml stages.pretrain.epochs=3 --from pretrain
    """
    stopping.requeue_code()  # refused now rather than when the scheduler waits for it
    if worker:
        stopping.end_with_parent()
    request = replace(request, first=first, until=until, folder=run_folder, worker=worker)
    names, overrides = o.split_words(words)
    if not worker and _names_rows(names, rows):
        from vlcli.cli.rows import run_tables

        run_tables(names, overrides, request, rows, seeds, yes)
        return
    if len(names) <= 1 and (seeds or 1) == 1 and not table:
        run_one(names[0] if names else QUICKSTART, overrides, request)
        return
    from vlcli.cli.sweep import sweep

    sweep(names or [QUICKSTART], overrides, request, seeds or 1)


def _names_rows(names: list[str], rows: str | None) -> bool:
    """Whether a table, or several rows of one, is to be run.

    Raises:
        UsageError: tables and other recipes are named together, or rows of no table.
    """
    from vlcli.errors import UsageError
    from vlcli.recipe.table import is_table

    tables = [name for name in names if rows is not None or is_table(name)]
    if tables and len(tables) < len(names):
        others = ", ".join(name for name in names if name not in tables)
        raise UsageError(
            "Tables run by themselves.", got=others, hint="name the tables alone, or single rows: TABLE:ROW"
        )
    if rows is not None and not names:
        raise UsageError("--rows goes with a table.", got=rows, hint="vlcli run TABLE --rows 7,8")
    return bool(tables)


def stage_verb(kind: str, about: str) -> Any:
    """The command that runs a recipe's stages of one kind, with what they build on."""

    @guarded
    @requested
    def command(words: o.Words = None, recipe: o.Recipe = QUICKSTART, *, request: RunRequest) -> None:
        run_kind(kind, recipe, words, request)

    @guarded
    @requested
    def extraction(
        words: o.Words = None,
        recipe: o.Recipe = QUICKSTART,
        strict: Annotated[bool, typer.Option("--strict", help="A picture that cannot be used is an error.")] = False,
        *,
        request: RunRequest,
    ) -> None:
        run_kind(kind, recipe, [*(words or []), *(["strict=true"] if strict else [])], request)

    made = extraction if kind == "extract" else command
    made.__doc__ = about
    return made


def run_kind(kind: str, recipe: str, words: list[str] | None, request: RunRequest) -> None:
    """Run a recipe's stages of one kind."""
    names, overrides = o.split_words(words)
    if names:
        from vlcli.errors import UsageError

        raise UsageError(
            "These words are no overrides.",
            got=" ".join(names),
            hint=f"name the recipe so: vlcli {kind} --recipe {names[0]}",
        )
    run_one(recipe, overrides, replace(request, kind=None if request.only else kind), verb=kind)


def run_one(reference: str, overrides: list[str], request: RunRequest, verb: str | None = None) -> None:
    """Run (or plan) one recipe and tell how it went."""
    from vlcli.cli import console, render

    resolved = resolve(reference, overrides, request, verb)
    carry_out(resolved, request, render, console, verb is None)


def carry_out(resolved: Any, request: RunRequest, render: Any, console: Any, whole: bool = False) -> None:
    """Plan or run a resolved recipe, print, and leave with the exit code; a ``whole`` run may end with its report."""
    if request.dry_run:
        code = render.render_plan(resolved, plan_options(request), request)
    else:
        from vlcli.runner.run import run_recipe

        shown = console.progress(request.verbose, request.quiet, request.worker)
        outcomes = run_recipe(resolved, plan_options(request), shown)
        if whole and resolved.recipe.table is not None:
            _tables(resolved, request, outcomes, shown)
        page = _report(resolved, request, outcomes, shown) if whole and resolved.recipe.report else None
        said = _conclusions(resolved, request, outcomes) if whole else []
        more = {**({} if page is None else {"report": str(page)}), **({"conclusions": said} if said else {})}
        code = render.render_outcomes(resolved, outcomes, request, **more)
        for line in [] if request.json_ else said:
            console.out(line)
        if page is not None and not request.json_:
            console.out(f"report: {page}")
        if whole and not code and not (request.json_ or request.quiet or request.worker):
            _tell_next(resolved.recipe, outcomes, console)
    if code:
        raise typer.Exit(code)


def _tell_next(recipe: Any, outcomes: list[Any], console: Any) -> None:
    """What to do with the model, after a run that made something."""
    from vlcli.cli.next_steps import next_commands

    if any(outcome.action in ("run", "resume") for outcome in outcomes):
        for line in next_commands(recipe, outcomes):
            console.err(f"next: {line}")


def _tables(resolved: Any, request: RunRequest, outcomes: list[Any], progress: Any) -> None:
    """The files of a run's table beside the run; what goes wrong with them is no fault of the run."""
    from vlcli.errors import VlcliError
    from vlcli.recipe import plan
    from vlcli.tables.results import FILE

    evaluated = any(outcome.kind == "evaluate" and outcome.metrics for outcome in outcomes)
    if request.worker or request.only or not evaluated:
        return
    folder = plan.make(resolved, plan_options(request))[0].folder
    if (folder / FILE).is_file() and not any(o.action in ("run", "resume", "reuse") for o in outcomes):
        return
    from vlcli.tools.run_tables import write_tables

    try:
        write_tables(folder)
    except (VlcliError, OSError) as error:
        progress.warn(f"the table could not be written: {' '.join(str(error).split())}")


def _conclusions(resolved: Any, request: RunRequest, outcomes: list[Any]) -> list[str]:
    """The result in words, after a run whose stages are all done."""
    from vlcli.recipe import plan
    from vlcli.tools.conclusions import conclusions
    from vlcli.tools.run_folder import is_run, read_run

    if request.worker or request.only or not all(outcome.status == "done" for outcome in outcomes):
        return []
    folder = plan.make(resolved, plan_options(request))[0].folder
    return conclusions([read_run(folder)]) if is_run(folder) else []


def _report(resolved: Any, request: RunRequest, outcomes: list[Any], progress: Any) -> Path | None:
    """The page of a run that did something or has none yet; what goes wrong with it is no fault of the run."""
    from vlcli.recipe import plan
    from vlcli.tools.run_folder import REPORT, is_run

    if request.worker or request.only or not outcomes:
        return None
    folder = plan.make(resolved, plan_options(request))[0].folder
    page = folder / REPORT
    if not is_run(folder) or (page.is_file() and not any(o.action in ("run", "resume", "reuse") for o in outcomes)):
        return page if page.is_file() else None
    from vlcli.cli.run_page import page_of

    return page_of([folder], page, request.device, progress)
