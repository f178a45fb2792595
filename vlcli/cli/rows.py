"""``vlcli run`` of a recipe with ``rows`` and over seeds: runs each, and writes the table of their metrics."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from vlcli.cli import console, options, render
from vlcli.cli.guard import RunRequest, as_vlcli, leave, report
from vlcli.cli.results import tell
from vlcli.cli.words import main_metrics, spent
from vlcli.errors import Problem, RecipeError, UsageError, VlcliError, each_once
from vlcli.recipe import plan
from vlcli.recipe.locate import slug
from vlcli.recipe.stage_record import digest
from vlcli.recipe.table import RowTable, load_table
from vlcli.runner.rows import RowRun, results, row_runs, run_rows
from vlcli.runner.run import run_recipe
from vlcli.tables.outputs import write_table
from vlcli.tables.results import TableResults
from vlcli.tables.summary import summarise
from vlcli.tools.run_folder import REPORT, is_run, read_run
from vlcli.tools.run_tables import table_of
from vlcli.tools.table import labelled, seeds_table


def run_tables(
    names: list[str], overrides: list[str], request: RunRequest, rows: str | None, seeds: int | None, yes: bool
) -> None:
    """Runs (or plans) tables, or rows of them (``TABLE:7,8``), prints what each measured, and leaves."""
    if request.folder is not None:
        raise UsageError("A table has a folder for each row.", got=str(request.folder), hint="--output DIR")
    wanted = options.comma_separated(rows)
    ended = []
    for name in names:
        table = load_table(name, request.words(overrides), rows=wanted, many=yes, only=request.only, **request.how)
        runs = row_runs(table, seeds or table.written.seeds)
        ended.append((_plan if request.dry_run else _run)(table, runs, request))
    if request.json_:
        console.out_json(ended[0][1] if len(ended) == 1 else {"tables": [document for _, document in ended]})
    leave(next((code for code, _ in ended if code), 0))


def _run(table: RowTable, runs: list[RowRun], request: RunRequest) -> tuple[int, dict[str, Any]]:
    many = len({run.seed for run in runs}) > 1
    number = count(1)

    def begins(run: RowRun) -> None:
        if not request.quiet:
            seed = f", seed {run.seed}" if many else ""
            console.err(f"{table.reference}:{run.label}{seed} ({next(number)} of {len(runs)})")

    progress = request.progress()
    jobs = request.jobs or next((run.resolved.recipe.jobs for run in runs if run.resolved is not None), 1)
    run_rows(runs, request.options, jobs, progress, begins)
    tables = results(table, runs)
    folder = table_folder(table, request.output)
    if not request.json_:
        _show_runs(runs, many)
    files: list[str] = []
    pages: list[Path] = []
    reported = any(run.resolved is not None and run.resolved.recipe.report for run in runs)
    new = any(one.action in ("run", "resume", "reuse") for run in runs for one in run.outcomes)
    code = 0 if all(run.state == "done" for run in runs) else 1
    for label, one in tables.items():
        try:
            files += map(str, write_table(one, folder, f"table-{slug(label)}" if label else "table"))
            page = folder / (f"report-{slug(label)}.html" if label else REPORT)
            if reported and (new or not page.is_file()):
                render.write_page(one, page, request.device, progress)
            pages += [page] if reported and page.is_file() else []
            if not request.json_:
                console.out("")
                tell(summarise(one))
        except VlcliError as error:
            code = 1
            report(error, verbose=request.verbose)
    if files and not request.json_:
        console.err(f"table: {', '.join(files)}")
    if not request.json_:
        console.out_lines(f"report: {page}" for page in pages)
    _tell_failures(table, runs, request)
    documents = {name: one.as_dict(folder) for name, one in tables.items()}
    facts = {"recipe": table.reference, "rows": [_document(run) for run in runs], "results": documents}
    return code, {**facts, "files": files, **({"reports": [str(page) for page in pages]} if pages else {})}


def _show_runs(runs: list[RowRun], many: bool) -> None:
    rows = []
    for run in runs:
        table = run.resolved and run.resolved.recipe.table
        scored = [one.metrics for one in run.outcomes if one.kind == "evaluate" and one.metrics]
        scores = [main_metrics(metrics, patterns=table.metrics if table else ()) for metrics in scored]
        cells = [run.state, spent(run.seconds), "; ".join(scores), str(run.folder or "-")]
        rows.append([run.label, *([str(run.seed)] if many else []), *cells])
    console.table(["row", *(["seed"] if many else []), "state", "time", "metrics", "folder"], rows)


def table_folder(table: RowTable, output: Path) -> Path:
    """Returns where the results of a table lie: ``OUTPUT/TABLE``, with a hash where overrides change it."""
    words = list(table.loading.words)
    return output / (f"{table.name}-{digest(words)[:8]}" if words else table.name)


def _tell_failures(table: RowTable, runs: Sequence[RowRun], request: RunRequest) -> None:
    told: set[str] = set()  # a fault that several runs share is told once
    problems: list[Problem] = []
    for run in (run for run in runs if run.state != "done"):
        console.err(f"{table.reference}:{run.label}, seed {run.seed}: {run.state}")
        if run.error is None:
            render.render_failures([one for one in run.outcomes if one.error is None], request)
        elif isinstance(run.error, RecipeError):
            problems += [replace(one, key=f"{run.label}: {one.key}") for one in run.error.problems]
        elif str(run.error) not in told:
            told.add(str(run.error))
            report(run.error, verbose=request.verbose)
    if problems:
        report(RecipeError(problems, table.reference), verbose=request.verbose)


def _document(run: RowRun) -> dict[str, Any]:
    facts = {"label": run.label, "seed": run.seed, "state": run.state, "folder": str(run.folder or "")}
    error = {} if run.error is None else {"error": as_vlcli(run.error).as_dict()}
    return {**facts, "stages": [render.outcome_row(one) for one in run.outcomes], **error}


def _plan(table: RowTable, runs: Sequence[RowRun], request: RunRequest) -> tuple[int, dict[str, Any]]:
    # a stage that an earlier row will have made is reused
    rows: list[dict[str, Any]] = []
    makers: dict[str, str] = {}
    problems: list[Problem] = []
    code = 0
    for run in runs:
        if run.resolved is None:
            code = report(run.error or UsageError("This row cannot be loaded."), verbose=request.verbose)
            continue
        _, steps, faults = render.read_plan(run.resolved, request.options)
        problems += [replace(one, key=f"{run.label}: {one.key}") for one in faults]
        for step in steps:
            row = render.step_row(step, row=run.label, seed=run.seed)
            if step.works and makers.get(step.key, run.label) != run.label:
                row |= {"action": "reuse", "why": f"row {makers[step.key]} will have made it"}
            elif step.works and step.key:
                makers[step.key] = run.label
            code = code or (5 if row["action"] == "blocked" else 0)
            rows.append(row)
    if not request.json_:
        columns = ["row", "seed", "stage", "kind", "action", "why", "folder"]
        console.table(columns, [[str(row[column]) for column in columns] for row in rows])
    if problems:
        code = report(RecipeError(problems, table.reference), verbose=request.verbose)
    return code, {"recipe": table.reference, "stages": rows, "problems": [vars(one) for one in each_once(problems)]}


# Name of the files of a table over seeds, beside the ``table`` of the run itself
STEM = "seeds"


def sweep(names: list[str], overrides: list[str], request: RunRequest, seeds: int) -> None:
    """Runs every recipe over ``seeds`` seeds from its own (or ``--seed``) on, prints one table, and leaves."""
    if request.only or request.folder:
        raise UsageError("--only goes with one recipe and one seed.", hint="leave out --only, or --seeds")
    code = 0
    folders: dict[str, list[Path]] = {}
    runs: dict[str, list[dict[str, float]]] = {}
    documents: list[dict[str, Any]] = []
    progress = request.progress()
    bases = [request.resolve(name, overrides) for name in names]
    for name, base in zip(names, bases, strict=True):
        for seed in range(base.recipe.seed, base.recipe.seed + seeds):
            own_seed = seed == base.recipe.seed  # keeps the recipe's own folder
            resolved = base if own_seed else replace(request, seed=seed).resolve(name, overrides)
            console.err(f"{name}, seed {seed}")
            if request.dry_run:
                planned = render.render_plan(resolved, request)
                code = code or planned
                continue
            outcomes = run_recipe(resolved, request.options, progress)
            code = code or render.exit_code(outcomes)
            render.render_failures(outcomes, request)
            folders.setdefault(base.name, []).append(plan.make(resolved, request.options)[0].folder)
            for label, metrics in labelled(base.recipe.table, outcomes).items():
                runs.setdefault(f"{base.name}: {label}" if len(names) > 1 else label, []).append(metrics)
            documents.append({"recipe": base.name, "seed": seed, "stages": [render.outcome_row(o) for o in outcomes]})
    if not request.dry_run:
        finished = [folder for paths in folders.values() for folder in paths if is_run(folder)]
        page = None
        if finished and any(base.recipe.report for base in bases):
            page = render.write_page(finished, finished[0] / f"{STEM}.html", request.device, progress)
        title = f"mean and 95 % interval over {seeds} seeds"
        patterns = next((layout.metrics for base in bases if (layout := base.recipe.table) and layout.metrics), [])
        table = seeds_table(runs, patterns, title).as_dict()
        if (whole := _results(folders, title)) is not None:
            summary, first = summarise(whole, patterns), folders[bases[0].name][0]
            files = write_table(whole, first, STEM, summary)
            table |= {"statistics": summary.as_dict(), "files": [str(file) for file in files]}
            if not request.json_:
                tell(summary)
                console.err(f"table: {first / STEM}.* ({', '.join(file.suffix.lstrip('.') for file in files)})")
        if request.json_:
            console.out_json({"runs": documents, "table": table, **({"report": str(page)} if page else {})})
        elif page is not None:
            console.out(f"report: {page}")
    leave(code)


def _results(folders: dict[str, list[Path]], title: str) -> TableResults | None:
    # rows of several recipes begin with the recipe's name, also where the recipes compute the same
    whole = TableResults(title, [])
    for name, paths in folders.items():
        try:
            part = table_of([read_run(folder) for folder in paths if folder.is_dir()])
        except UsageError:
            continue
        prefix = f"{name}: " if len(folders) > 1 else ""
        whole.metrics = whole.metrics or part.metrics
        whole.conclusions += [prefix + line for line in part.conclusions]
        whole.rows += [replace(row, label=prefix + row.label) for row in part.rows]
    return whole if any(row.done for row in whole.rows) else None
