"""``vlcli run`` and the verbs of single stage kinds."""

import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from vlcli import stopping
from vlcli.cli import console, options, render
from vlcli.cli.guard import RunRequest, leave, requested
from vlcli.cli.render import write_page
from vlcli.errors import UsageError, VlcliError
from vlcli.plain import as_list
from vlcli.progress import Progress
from vlcli.recipe import plan
from vlcli.recipe.locate import Resolved
from vlcli.recipe.table import is_table
from vlcli.runner.execute import StageOutcome

QUICKSTART = "quickstart"
# What the quickstart takes on two idle cores (README).
_TIME = "about 6 min for the whole recipe on two idle cores"


def chosen(recipe: str | None, verb: str, request: RunRequest) -> str:
    """Returns the recipe that is named; without one the quickstart, and a line that says so."""
    if recipe is None and not request.quiet:
        folder = request.folder or request.output / QUICKSTART
        another = "vlcli run RECIPE" if verb == "run" else f"vlcli {verb} --recipe RECIPE"
        console.err(f"recipe {QUICKSTART}, folder {folder}, {_TIME}; another: {another} (vlcli ls recipes)")
    return recipe or QUICKSTART


@requested()
def run(
    request: RunRequest,
    words: options.RecipesAndWords = None,
    seeds: Annotated[int | None, Option(min=1, max=1000, help="Run every recipe over so many seeds.")] = None,
    table: Annotated[bool, Option("--table", help="Mean and 95 % interval per metric over the seeds.")] = False,
    rows: Annotated[str | None, Option(help="These rows of a table: 7,8 or 'irpe/*'.")] = None,
    yes: options.Yes = False,
    first: options.First = None,
    until: options.Until = None,
    run_folder: Annotated[Path | None, Option(hidden=True)] = None,
    worker: Annotated[bool, Option("--worker", hidden=True)] = False,
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
    names, overrides = options.split_words(words)
    if not worker and _names_rows(names, rows):
        from vlcli.cli.rows import run_tables

        run_tables(names, overrides, request, rows, seeds, yes)
    elif len(names) <= 1 and (seeds or 1) == 1 and not table:
        run_one(chosen(names[0] if names else None, "run", request), overrides, request)
    else:
        from vlcli.cli.rows import sweep

        sweep(names or [chosen(None, "run", request)], overrides, request, seeds or 1)


def _names_rows(names: list[str], rows: str | None) -> bool:
    tables = [name for name in names if rows is not None or is_table(name)]
    if tables and len(tables) < len(names):
        got = ", ".join(name for name in names if name not in tables)
        what, hint = "Tables cannot run with other recipes.", "name the tables alone, or single rows: TABLE:ROW"
        raise UsageError(what, got=got, hint=hint)
    if rows is not None and not names:
        raise UsageError("--rows goes with a table.", got=rows, hint="vlcli run TABLE --rows 7,8")
    return bool(tables)


def stage_verb(kind: str, about: str) -> Any:
    """Returns the command that runs a recipe's stages of one kind, with what they build on."""

    def command(request: RunRequest, words: options.Words = None, recipe: options.Recipe = None) -> None:
        names, overrides = options.split_words(words)
        if names:
            folder = "regions root=" if kind == "extract" and Path(names[0]).is_dir() else ""
            hint = f"vlcli {kind} --recipe {folder}{shlex.quote(names[0])}"
            raise UsageError("These words are no overrides.", got=" ".join(names), hint=hint)
        run_kind(recipe, kind, overrides, request)

    def extraction(
        request: RunRequest,
        words: options.Words = None,
        recipe: options.Recipe = None,
        strict: Annotated[bool, Option("--strict", help="A picture that cannot be used is an error.")] = False,
    ) -> None:
        command(request, [*(words or []), *(["strict=true"] if strict else [])], recipe)

    verb = requested()(extraction if kind == "extract" else command)
    verb.__doc__ = about
    return verb


def run_kind(recipe: str | None, kind: str, overrides: list[str], request: RunRequest, verb: str = "") -> None:
    """Runs the stages of one kind of a recipe, or the one of ``--only``; None: of the quickstart."""
    request = replace(request, kind=None if request.only else kind)
    run_one(chosen(recipe, verb or kind, request), overrides, request, verb=kind)


def run_one(reference: str, overrides: list[str], request: RunRequest, verb: str | None = None) -> None:
    """Runs (or plans) one recipe, shows how it went, and leaves; without ``verb`` with its table and its page."""
    resolved = request.resolve(reference, overrides, verb)
    if request.worker:
        _run_stage(resolved, request)
        return
    if request.dry_run or verb is not None:
        carry_out(resolved, request)
        return
    from vlcli.runner.run import run_recipe
    from vlcli.tools.run_folder import is_run, read_run

    progress = request.progress()
    outcomes = run_recipe(resolved, request.options, progress)
    more: dict[str, Any] = {}
    if outcomes and not request.only:
        folder = plan.make(resolved, request.options)[0].folder
        new = any(outcome.action in ("run", "resume", "reuse") for outcome in outcomes)
        if resolved.recipe.table is not None:
            _write_table(folder, outcomes, new, progress)
        if resolved.recipe.report and (page := _write_page(folder, new, request, progress)) is not None:
            more["report"] = str(page)
        if is_run(folder) and all(outcome.status == "done" for outcome in outcomes):
            from vlcli.tools.conclusions import conclusions

            more["conclusions"] = conclusions([read_run(folder)])
    code = render.render_outcomes(resolved, outcomes, request, **{key: value for key, value in more.items() if value})
    if not request.json_:
        console.out_lines(more.get("conclusions", ()))
        console.out_lines(f"report: {page}" for page in as_list(more.get("report")))
        if not (code or request.quiet):
            console.err_lines(f"next: vlcli {line}" for line in _next_commands(resolved, outcomes))
    leave(code)


def _run_stage(resolved: Resolved, request: RunRequest) -> None:
    # the process of one stage, which its parent starts
    from vlcli.runner.parallel import wait_for_key
    from vlcli.runner.run import run_recipe

    if key := wait_for_key(resolved, str(request.only)):
        outcomes = run_recipe(resolved, replace(request, key=key).options, request.progress())
        render.render_failures(outcomes, request)
        leave(render.exit_code(outcomes))


def carry_out(
    resolved: Resolved, request: RunRequest, product: Callable[[StageOutcome], dict[str, Any]] | None = None
) -> None:
    """Plans or runs a resolved recipe, shows its stages, and leaves with the exit code.

    ``product`` returns what ``--json`` adds of the recipe's only stage; without ``--json`` that is printed alone.
    """
    from vlcli.runner.run import run_recipe

    if request.dry_run:
        code = render.render_plan(resolved, request)
    else:
        progress = request.progress()
        outcomes = run_recipe(resolved, request.options, progress)
        more = {} if product is None else product(outcomes[0])
        if product is None or request.json_:
            code = render.render_outcomes(resolved, outcomes, request, **more)
        else:
            render.render_failures(outcomes, request)
            code = render.exit_code(outcomes)
            console.out_lines(line for value in more.values() for line in as_list(value) if not code)
    leave(code)


def _write_table(folder: Path, outcomes: list[StageOutcome], new: bool, progress: Progress) -> None:
    from vlcli.tables.results import FILE

    evaluated = any(outcome.kind == "evaluate" and outcome.metrics for outcome in outcomes)
    if evaluated and (new or not (folder / FILE).is_file()):
        from vlcli.tools.run_tables import write_tables

        try:
            write_tables(folder)
        except (VlcliError, OSError) as error:  # no fault of the run
            progress.warn(f"the table could not be written: {' '.join(str(error).split())}")


def _write_page(folder: Path, new: bool, request: RunRequest, progress: Progress) -> Path | None:
    from vlcli.tools.run_folder import REPORT, is_run

    page = folder / REPORT
    if is_run(folder) and (new or not page.is_file()):
        return write_page([folder], page, request.device, progress)
    return page if page.is_file() else None


def _next_commands(resolved: Resolved, outcomes: list[StageOutcome]) -> list[str]:
    # of the model that was trained and judged: by the table's first row, or by the first evaluation
    if not any(outcome.action in ("run", "resume") for outcome in outcomes):
        return []
    recipe = resolved.recipe
    trained = {one.name: one.folder for one in outcomes if one.kind == "finetune" and one.status == "done"}
    evaluated = [one.name for one in outcomes if one.kind == "evaluate"]
    judged = list(recipe.table.rows.values()) if recipe.table else evaluated
    stages = [recipe.stages[name] for name in judged if name in recipe.stages]
    sources = [str(name) for stage in stages if stage.kind == "evaluate" for name in stage.source]
    model = next((trained[name] for name in sources if name in trained), None)
    if model is None:
        return []
    lines = [f"predict {model} PICTURE... [TEXT]", f"demo {model}", f"report {model.parent}"]
    return [*lines, f"export {model} --format hub"]
