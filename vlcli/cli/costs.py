"""``vlcli count``, ``plan``, ``rehearse`` and ``kit``: says what recipes take, carries them through in small."""

import shlex
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from vlcli.cli import console, options, render
from vlcli.cli.guard import RunRequest, as_vlcli, leave, report, requested
from vlcli.cli.listing import published_of
from vlcli.cli.words import bytes_of, size, spent
from vlcli.errors import UsageError, VlcliError
from vlcli.recipe.load import load
from vlcli.recipe.locate import COUNTED, Resolved
from vlcli.recipe.table import is_table, load_table
from vlcli.version import __version__


@requested("output", "plugin", "trust", "json_", "verbose")
def count(
    request: RunRequest,
    words: options.RecipesToLookAt,
    stage: options.Stage = None,
    answers: Annotated[int | None, Option(min=1, help="Rows of the answer head.")] = None,
    heads: Annotated[bool, Option(help="Count the objectives' heads too.")] = True,
) -> None:
    """Count a recipe's model: parameters per part, multiply-accumulates of one example; of several, a line each."""
    from vlcli.tools import counting

    def counted(name: str, stage: str | None) -> dict[str, Any]:
        resolved = load(name, overrides, only=stage, trust=request.trust)
        published = {key: one for key, one in published_of(name).items() if one["split"] == COUNTED}
        facts = counting.count(resolved, stage, answers=answers, output=request.output, heads=heads)
        return {"recipe": resolved.name, **({"published": published} if published else {}), **facts}

    named, overrides = options.split_words(words)
    if not named:
        raise UsageError("Name a recipe.", got="none", hint="list them: vlcli ls recipes")
    names = [one for name in named for one in _expanded(name, len(named) > 1)]
    if len(names) == 1:
        facts = counted(names[0], stage)
        console.out_json(facts) if request.json_ else _show_counts(names[0], facts)
        return
    rows, failures = [], []
    with request.progress().task("count", len(names), "recipes") as task:
        for name in names:
            try:  # its first training stage alone: the others are not built
                chosen = stage or counting.first_stage(load(name, overrides, trust=request.trust))
                rows.append({**counted(name, chosen), "recipe": name} if chosen else {"recipe": name})
            except Exception as error:
                failures.append((name, error))
            task.advance()
    if request.json_:
        errors = [{"recipe": name, "error": as_vlcli(fault).as_dict()} for name, fault in failures]
        console.out_json({"recipes": [*rows, *errors]})
    elif rows:
        columns = ["recipe", "stage", "model", "with heads", "multiply-accumulates", "published"]
        wide = 6 if any("published" in row for row in rows) else 5
        console.table(columns[:wide], [_line(row)[:wide] for row in rows])
    for name, fault in failures:
        console.err(f"{name} cannot be counted")
        report(fault, verbose=request.verbose)
    leave(as_vlcli(failures[0][1]).exit_code if failures else 0)


def _expanded(name: str, several: bool) -> list[str]:
    # among several recipes, one that does not load is reported when its turn to be counted comes
    with suppress(VlcliError) if several else nullcontext():
        if is_table(name):
            table = load_table(name)
            return [f"{table.reference}:{label}" for label in table.chosen]
    return [name]


def _line(row: dict[str, Any]) -> list[str]:
    if "stage" not in row:
        return [row["recipe"], "trains nothing", "-", "-", "-", "-"]
    numbers = (row["backbone"], row["total"], row["macs"]["total"])
    return [row["recipe"], row["stage"], *(f"{number:,}" for number in numbers), _printed(row)]


def _printed(row: dict[str, Any]) -> str:
    return "; ".join(f"{key} {one['value']:,.12g}" for key, one in row.get("published", {}).items()) or "-"


def _show_counts(name: str, facts: dict[str, Any]) -> None:
    def rows(counts: dict[str, Any]) -> list[list[str]]:
        return [[part, f"{number:,}"] for part, number in counts.items()]

    parts = rows({**facts["parts"], "total": facts["total"]})
    console.table(["part", "parameters"], parts, f"{name}, stage {facts['stage']}")
    passes = sorted(facts["macs"].items(), key=lambda item: item[0] == "total")  # the total is the last row
    console.out("")
    console.table(["pass", "multiply-accumulates"], rows(dict(passes)))
    if "published" in facts:
        console.out(f"\npublished: {_printed(facts)}")
    if len(facts.get("stages", {})) > 1:
        console.out("")
        cells = [
            [stage, *(row["why"] if row[key] is None else f"{row[key]:,}" for key in ("backbone", "total"))]
            for stage, row in facts["stages"].items()
        ]
        console.table(["stage", "model", "with heads"], cells)


@requested("output", "plugin", "trust", "json_")
def plan(
    request: RunRequest,
    words: options.RecipesToLookAt,
    gpus: Annotated[int, Option(min=1, max=100_000, help="GPUs, a process each.")] = 1,
    memory: Annotated[str, Option(help="Of one GPU: 80GB.")] = "80GB",
    stage: options.Stage = None,
    per_machine: Annotated[int, Option(min=1, help="GPUs of one machine.")] = 8,
    examples: Annotated[int | None, Option(min=1, help="Examples of the data.")] = None,
    tflops: Annotated[float | None, Option(min=0.001, help="That one GPU reaches.")] = None,
    link: Annotated[float | None, Option(min=0.001, help="GB/s between GPUs.")] = None,
    disk: Annotated[str | None, Option(help="Written in a second: 500MB.")] = None,
    rehearse: Annotated[bool, Option("--rehearse", help="Count a step of two examples, taken here.")] = False,
) -> None:
    """Say what a training stage takes on several GPUs: memory by part, steps and reads a second, checkpoints."""
    from vlcli.tools.training_cost import Wanted, training_cost

    name, overrides = options.one_name(words)
    resolved = load(name, overrides, only=stage, trust=request.trust)
    capacity, rate = bytes_of(memory, "--memory"), None if disk is None else bytes_of(disk, "--disk")
    wanted = Wanted(gpus, capacity, per_machine, examples, tflops, link, rate, request.output, rehearse)
    costs = training_cost(resolved, wanted, stage)
    if request.json_:
        console.out_json(costs | {key: [cost._asdict() for cost in costs[key]] for key in ("memory", "time")})
        return

    def show(head: str, part: str, title: str = "") -> None:
        cells = [[cost.name, _shown(cost.value, cost.unit), cost.source, cost.how] for cost in costs[part]]
        console.table([head, "", "from", "how"], cells, title)

    show("memory of a GPU", "memory", f"{name}, stage {costs['stage']}, {gpus} GPU{'s' * (gpus > 1)} of {memory}")
    console.out("")
    show("time and traffic", "time")


def _shown(value: float, unit: str) -> str:
    if unit in ("B", "B/s"):
        return size(value) + unit[1:]
    if unit == "s":
        short = f"{value:.3g} s" if value >= 1 else f"{1000 * value:.3g} ms"
        return short if value < 5400 else f"{value / 3600:,.1f} h"
    if unit == "FLOP":
        return f"{value / 1e9:,.3g} GFLOP"
    return f"{value:,{'.3g' if value < 1000 else '.0f'}} {unit}".strip()


@requested("device", "plugin", "trust", "json_", "quiet", "verbose")
def rehearse(
    request: RunRequest,
    words: options.RecipesToLookAt,
    rows: Annotated[str | None, Option(help="These rows of a table: 7,8 or 'irpe/*'.")] = None,
    folder: Annotated[Path | None, Option(help="An empty folder that keeps all of it.")] = None,
    gpus: Annotated[int, Option(min=1, max=100_000, help="GPUs of the full recipe.")] = 1,
    memory: Annotated[str, Option(help="Of one GPU: 80GB.")] = "80GB",
) -> None:
    """Carry a recipe through in small, on miniatures of its data; say what the full one takes.

    vlcli rehearse lxmert
    vlcli rehearse irpe/table1 --rows original
    """
    from vlcli.tools.reduction import reduced
    from vlcli.tools.rehearsal import full_costs, rehearse

    name, overrides = options.one_name(words)
    capacity = bytes_of(memory, "--memory")
    full = _members(name, overrides, rows, request.trust)
    recipes = [reduced(one, overrides, request.device, request.trust) for one in full]
    documents, codes = [], []
    with _room(folder) as room, closing(rehearse(recipes, room, request.device, request.progress())) as runs:
        for one, outcomes in runs:
            costs = {row["stage"]: row for row in full_costs(one.full, gpus, capacity)}
            stages = [{**render.outcome_row(row), "full": costs.get(row.name)} for row in outcomes]
            documents.append({"recipe": one.full.reference, "reduced": one.told, "stages": stages})
            codes.append(render.exit_code(outcomes))
            if not request.json_:
                _show(documents[-1], gpus, memory)
            render.render_failures(outcomes, request)
    if request.json_:
        console.out_json({"rehearsals": documents, "folder": None if folder is None else str(folder)})
    elif not any(codes):
        where = "vlcli data where RECIPE (what to download)"
        console.err(f"next: {where}, vlcli plan RECIPE --stage STAGE (its costs in full)")
    leave(max(codes))


def _members(name: str, overrides: list[str], rows: str | None, trust: bool) -> list[Resolved]:
    if not is_table(name):
        if rows is not None:
            raise UsageError("--rows goes with a table.", got=rows, hint=f"leave it out: vlcli rehearse {name}")
        return [load(name, overrides, trust=trust, deep=True)]
    table = load_table(name, overrides, rows=options.comma_separated(rows), trust=trust)
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
    if costs is None or "why" in costs:
        return [(costs or {}).get("why", "-"), "-", "-"]
    hours, million = costs["hours"], costs["hours_a_million"]
    time = f"{hours:,.1f}" if hours is not None else "-" if million is None else f"{million:,.1f} a million examples"
    return [size(costs["memory"]), time, size(costs["disk"])]


@requested("output", "trust", "json_", "quiet", "verbose")
def kit(
    request: RunRequest,
    words: options.RecipeAndWords,
    out: Annotated[Path | None, Option("--out", "-o", help="The folder; default: kit-TABLE.")] = None,
    rows: Annotated[str | None, Option(help="These rows of the table: 7,8 or 'irpe/*'.")] = None,
    seeds: Annotated[int | None, Option(min=1, max=1000, help="Seeds of each row.")] = None,
    gpus: Annotated[int, Option(min=1, max=100_000, help="GPUs that the hours are for.")] = 1,
    memory: Annotated[str, Option(help="Of one GPU: 80GB.")] = "80GB",
) -> None:
    """Write what a rerun of a table on other machines needs; where its runs are there, what they measured.

    vlcli kit lxmert/table2 -o kit
    vlcli table kit/results.json
    """
    from vlcli.cli.rows import table_folder
    from vlcli.tools import kit as tools

    name, overrides = options.one_name(words)
    table = load_table(name, overrides, rows=options.comma_separated(rows), trust=request.trust)
    folder, count = out or Path(f"kit-{table.name}"), seeds or table.written.seeds
    results = tools.collected(table, count, table_folder(table, request.output))
    tools.refuse_other(folder, results.title)
    costs = []
    if not (folder / tools.README).is_file():
        found = tools.costs(table, gpus, bytes_of(memory, "--memory"), request.progress())
        costs = [[row["stage"], ", ".join(row["rows"]), *full_cells(row)] for row in found]
    asked = [*(["--rows", ",".join(table.chosen)] if rows is not None else []), "--seeds", str(count), *overrides]
    asked += [] if any(word.startswith("root=") for word in overrides) else ["root=DATA"]
    facts = {"table": table.reference, "rows": table.chosen, "seeds": count, "vlcli": __version__}
    how = f"{gpus} GPU{'s' * (gpus > 1)} of {memory}"
    command = shlex.join([table.reference, *asked])
    files = list(map(str, tools.write_kit(folder, table, results, facts, words=command, costs=costs, how=how)))
    console.answer(request.json_, {**facts, "files": files}, "\n".join(files))
