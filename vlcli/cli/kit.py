"""``vlcli kit TABLE``: what a rerun of a table needs, in a folder with the file that is sent back."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import console
from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.rehearse import full_cells
from vlcli.cli.words import bytes_of
from vlcli.version import __version__


@guarded
def kit(
    words: o.RecipeAndWords,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder; default: kit-TABLE.")] = None,
    rows: Annotated[str | None, typer.Option(help="These rows of the table: 7,8 or 'irpe/*'.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of each row.")] = None,
    gpus: Annotated[int, typer.Option(min=1, max=100_000, help="GPUs that the hours are for.")] = 1,
    memory: Annotated[str, typer.Option(help="Of one GPU: 80GB.")] = "80GB",
    output: o.Output = Path("runs"),
    trust: o.Trust = False,
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Write what a rerun of a table on other machines needs; where its runs are there, what they measured.

    vlcli kit lxmert/table2 -o kit

    vlcli table kit/results.json
    """
    from vlcli.cli.rows import table_folder
    from vlcli.recipe.table import load_table
    from vlcli.tools import kit as tools

    name, overrides = o.one_name(words)
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
