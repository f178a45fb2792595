"""``vlcli report RUN...``: writes one HTML page of runs, of a table, or of verdicts on claims."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from vlcli.cli import console, options
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
    samples: Annotated[int, typer.Option(min=0, help="Samples of each group of evaluate stages.")] = 36,
    output: options.Output = Path("runs"),
    device: options.Device = None,
    plugin: options.Plugin = None,
    json_: options.Json = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Write a page that shows runs: results, samples, attention, curves, stages, differences. It needs no network.

    vlcli report quickstart

    vlcli report quickstart quickstart-1a2b3c4d -o page.html

    vlcli report reproduce
    """
    from vlcli.pages.report import ReportOptions, write_report
    from vlcli.tools.run_folder import REPORT, find_run

    if (results := _alone(runs, output)) is not None:
        page = _write_results(results, out or results.parent / REPORT)
        shown: dict[str, Any] = {"results": str(results)}
    else:
        folders = list(dict.fromkeys(find_run(name, output) for name in runs))
        page = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
        settings = ReportOptions(samples, not no_model, device or "auto")
        write_report(folders, page, settings, console.progress(verbose, quiet))
        shown = {"runs": [str(path) for path in folders]}
    console.answer(json_, {"page": str(page), "bytes": page.stat().st_size, **shown}, str(page))


def _alone(runs: list[str], output: Path) -> Path | None:
    from vlcli.claims import results_file
    from vlcli.tools.run_folder import is_run
    from vlcli.tools.run_tables import written_table

    meant = (written_table(name, output) or results_file.find(name, output) for name in runs)
    files = [file for file in meant if file is not None and (not is_run(file.parent) or str(file) in runs)]
    if files and len(runs) > 1:
        hint = f"name it alone: vlcli report {files[0]}"
        raise UsageError("A table, and verdicts on claims, have a page of their own.", got=", ".join(runs), hint=hint)
    return files[0] if files else None


def _write_results(results: Path, page: Path) -> Path:
    # the file says by its contents, or else by its name, whether it is a table
    from vlcli.claims.reproduce import of_results
    from vlcli.claims.verdicts import judge
    from vlcli.pages.tables import write_table
    from vlcli.pages.verdicts import write_verdicts
    from vlcli.tables.results import FILE, read_results

    try:
        value = json.loads(results.read_bytes())
        is_table = isinstance(value, dict) and "rows" in value
    except (ValueError, RecursionError, OSError):
        is_table = results.name == FILE
    if is_table:
        return write_table(read_results(results), page)
    study = of_results(results)
    seconds = sum(one.seconds for one in study.shown().cells.values())
    return write_verdicts(judge(study.claims, study.look), page, "vlcli reproduce", seconds)
