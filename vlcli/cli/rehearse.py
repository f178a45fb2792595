"""``vlcli rehearse`` and ``kit``: carries a recipe through in small; writes what a rerun of a table needs."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import console, options, render
from vlcli.cli.guard import guarded
from vlcli.cli.request import RunRequest
from vlcli.cli.words import bytes_of, size, spent
from vlcli.errors import UsageError
from vlcli.recipe.locate import Resolved
from vlcli.version import __version__


@guarded
def rehearse(
    words: options.RecipesToLookAt,
    rows: Annotated[str | None, typer.Option(help="These rows of a table: 7,8 or 'irpe/*'.")] = None,
    folder: Annotated[Path | None, typer.Option(help="An empty folder that keeps all of it.")] = None,
    gpus: Annotated[int, typer.Option(min=1, max=100_000, help="GPUs of the full recipe.")] = 1,
    memory: Annotated[str, typer.Option(help="Of one GPU: 80GB.")] = "80GB",
    device: options.Device = None,
    plugin: options.Plugin = None,
    trust: options.Trust = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Carry a recipe through in small, on miniatures of its data; say what the full one takes.

    vlcli rehearse lxmert

    vlcli rehearse irpe/table1 --rows original
    """
    from vlcli.tools.reduction import reduced
    from vlcli.tools.rehearsal import full_costs, rehearse

    name, overrides = options.one_name(words)
    full = _members(name, overrides, rows, trust)
    request = RunRequest(device=device, plugin=plugin, trust=trust, json_=json_, quiet=quiet, verbose=verbose)
    recipes = [reduced(one, overrides, device, trust) for one in full]
    documents, codes = [], []
    with ExitStack() as stack:
        room = stack.enter_context(_room(folder))
        progress = console.progress(verbose, quiet)
        runs = stack.enter_context(closing(rehearse(recipes, room, device, progress)))
        for one, outcomes in runs:
            costs = {row["stage"]: row for row in full_costs(one.full, gpus, bytes_of(memory, "--memory"))}
            stages = [{**render.outcome_row(row), "full": costs.get(row.name)} for row in outcomes]
            documents.append({"recipe": one.full.reference, "reduced": one.told, "stages": stages})
            codes.append(render.exit_code(outcomes))
            if not json_:
                _show(documents[-1], gpus, memory)
            render.render_failures(outcomes, request)
    if json_:
        console.out_json({"rehearsals": documents, "folder": None if folder is None else str(folder)})
    elif not any(codes):
        console.err(
            "next: vlcli data where RECIPE (what to download), vlcli plan RECIPE --stage STAGE (its costs in full)"
        )
    if any(codes):
        raise typer.Exit(max(codes))


def _members(name: str, overrides: list[str], rows: str | None, trust: bool) -> list[Resolved]:
    from vlcli.recipe.load import load
    from vlcli.recipe.table import is_table, load_table

    if not is_table(name):
        if rows is not None:
            raise UsageError("--rows goes with a table.", got=rows, hint=f"leave it out: vlcli rehearse {name}")
        return [load(name, overrides, trust=trust, deep=True)]
    wanted = [one.strip() for one in rows.split(",")] if rows is not None else []
    table = load_table(name, overrides, rows=wanted, trust=trust)
    return [table.member(label) for label in table.chosen]


@contextmanager
def _room(folder: Path | None) -> Iterator[Path]:
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="vlcli-rehearsal-") as room:
            yield Path(room).resolve()
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        hint = "name another, or leave --folder out: a temporary one is taken"
        raise UsageError("A rehearsal needs an empty folder.", got=str(folder), expected="none, or empty", hint=hint)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        got = error.strerror or str(error)
        raise UsageError("The folder cannot be made.", where=str(folder), got=got, hint="--folder DIR") from error
    yield folder.resolve()


def _show(document: dict[str, Any], gpus: int, memory: str) -> None:
    console.out(f"reduced: {'; '.join(document['reduced'])}")
    rows = [
        [row["stage"], row["kind"], row["status"], spent(row["seconds"]), *full_cells(row["full"])]
        for row in document["stages"]
    ]
    title = f"{document['recipe']}, rehearsed; the full recipe on {gpus} GPU{'s' * (gpus > 1)} of {memory}"
    columns = ["stage", "kind", "rehearsal", "time", "full: memory of a GPU", "full: hours", "full: checkpoints"]
    console.table(columns, rows, title)


def full_cells(costs: dict[str, Any] | None) -> list[str]:
    """Returns memory of a GPU, hours and checkpoints of a stage of a full recipe as cells."""
    if costs is None:
        return ["-", "-", "-"]
    if "why" in costs:
        return [costs["why"], "-", "-"]
    hours, million = costs["hours"], costs["hours_a_million"]
    time = f"{hours:,.1f}" if hours is not None else "-" if million is None else f"{million:,.1f} a million examples"
    return [size(costs["memory"]), time, size(costs["disk"])]


@guarded
def kit(
    words: options.RecipeAndWords,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder; default: kit-TABLE.")] = None,
    rows: Annotated[str | None, typer.Option(help="These rows of the table: 7,8 or 'irpe/*'.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of each row.")] = None,
    gpus: Annotated[int, typer.Option(min=1, max=100_000, help="GPUs that the hours are for.")] = 1,
    memory: Annotated[str, typer.Option(help="Of one GPU: 80GB.")] = "80GB",
    output: options.Output = Path("runs"),
    trust: options.Trust = False,
    json_: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Write what a rerun of a table on other machines needs; where its runs are there, what they measured.

    vlcli kit lxmert/table2 -o kit

    vlcli table kit/results.json
    """
    from vlcli.cli.rows import table_folder
    from vlcli.recipe.table import load_table
    from vlcli.tools import kit as tools

    name, overrides = options.one_name(words)
    wanted = [one.strip() for one in rows.split(",")] if rows is not None else []
    table = load_table(name, overrides, rows=wanted, trust=trust)
    folder, count = out or Path(f"kit-{table.name}"), seeds or table.written.seeds
    results = tools.collected(table, count, table_folder(table, output))
    tools.refuse_other(folder, results.title)
    costs = []
    if not (folder / tools.README).is_file():
        found = tools.costs(table, gpus, bytes_of(memory, "--memory"), console.progress(verbose, quiet))
        costs = [[row["stage"], ", ".join(row["rows"]), *full_cells(row)] for row in found]
    asked = [*(["--rows", ",".join(table.chosen)] if wanted else []), "--seeds", str(count), *overrides]
    asked += [] if any(word.startswith("root=") for word in overrides) else ["root=DATA"]
    facts = {"table": table.reference, "rows": table.chosen, "seeds": count, "vlcli": __version__}
    how = f"{gpus} GPU{'s' * (gpus > 1)} of {memory}"
    files = tools.write_kit(
        folder, table, results, facts, words=shlex.join([table.reference, *asked]), costs=costs, how=how
    )
    console.out_json({**facts, "files": list(map(str, files))}) if json_ else console.out("\n".join(map(str, files)))
