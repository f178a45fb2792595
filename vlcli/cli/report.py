"""``vlcli report RUN...``: one HTML page of one run, of several side by side, of a table, or of verdicts on claims."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.errors import UsageError


@guarded
def report(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN...", help="Run folders, or their names under runs/; or a table, or results of claims."
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The page; default: report.html in the run's folder, or here for several."),
    ] = None,
    no_model: Annotated[
        bool, typer.Option("--no-model", help="Leave out what needs the trained models: attention, Grad-CAM.")
    ] = False,
    samples: Annotated[int, typer.Option("--samples", min=0, help="Samples of each group of evaluate stages.")] = 36,
    output: o.Output = Path("runs"),
    device: o.Device = None,
    plugin: o.Plugin = None,
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Write a page that shows runs: results, samples, attention, curves, stages, differences. It needs no network.

    vlcli report quickstart

    vlcli report quickstart quickstart-1a2b3c4d -o page.html

    vlcli report reproduce
    """
    from vlcli.cli import console
    from vlcli.pages.report import ReportOptions, write_report
    from vlcli.tools.run_folder import REPORT, find_run

    o.load_plugins(plugin)
    if (results := _alone(runs, output)) is not None:
        file = _page_of(results, out)
        shown: dict[str, Any] = {"results": str(results)}
    else:
        folders = list(dict.fromkeys(find_run(name, output) for name in runs))
        file = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
        options = ReportOptions(samples, not no_model, device or "auto")
        write_report(folders, file, options, console.progress(verbose, quiet))
        shown = {"runs": [str(path) for path in folders]}
    if json_:
        console.out_json({"page": str(file), "bytes": file.stat().st_size, **shown})
    else:
        console.out(str(file))


def _alone(runs: list[str], output: Path) -> Path | None:
    """The file of a table's or of claims' results that is meant; None where runs are.

    Raises:
        UsageError: such results are named beside others.
    """
    from vlcli.claims import results_file
    from vlcli.tools.run_folder import is_run
    from vlcli.tools.run_tables import written_table

    found = [
        file for name in runs if (file := written_table(name, output) or results_file.find(name, output)) is not None
    ]
    found = [file for file in found if not is_run(file.parent) or str(file) in runs]
    if found and len(runs) > 1:
        hint = f"name it alone: vlcli report {found[0]}"
        raise UsageError("A table, and verdicts on claims, have a page of their own.", got=", ".join(runs), hint=hint)
    return found[0] if found else None


def _page_of(results: Path, out: Path | None) -> Path:
    """Write the page of a table or of verdicts, beside its results or where it was named."""
    from vlcli.pages.tables import write_table
    from vlcli.tables.results import read_results
    from vlcli.tools.run_folder import REPORT

    page = out or results.parent / REPORT
    return write_table(read_results(results), page) if _is_table(results) else _verdicts(results, page)


def _is_table(results: Path) -> bool:
    """Whether a file holds the results of a table, by its name or by what it says."""
    import json

    from vlcli.tables.results import FILE

    try:
        value = json.loads(results.read_bytes())
    except (ValueError, RecursionError, OSError):
        return results.name == FILE
    return isinstance(value, dict) and "rows" in value


def _verdicts(results: Path, page: Path) -> Path:
    from vlcli.claims.reproduce import of_results
    from vlcli.claims.verdicts import judge
    from vlcli.pages.verdicts import write_verdicts

    study = of_results(results)
    seconds = sum(one.seconds for one in study.shown().cells.values())
    return write_verdicts(judge(study.claims, study.look), page, "vlcli reproduce", seconds)
