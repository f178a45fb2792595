"""``vlcli report RUN...``: one HTML page of one run or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.errors import UsageError


@guarded
def report(
    runs: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run folders, or their names under runs/; or results of claims."),
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
    if results := _results(runs, output):
        _told(_verdicts(results, out), results, json_)
        return
    folders = list(dict.fromkeys(find_run(name, output) for name in runs))
    file = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
    options = ReportOptions(samples, not no_model, device or "auto")
    write_report(folders, file, options, console.progress(verbose, quiet))
    if json_:
        console.out_json({"page": str(file), "bytes": file.stat().st_size, "runs": [str(path) for path in folders]})
    else:
        console.out(str(file))


def _results(runs: list[str], output: Path) -> Path | None:
    """The file of results of claims that is meant; None where runs are.

    Raises:
        UsageError: results of claims are named beside other runs.
    """
    from vlcli.claims import keeping
    from vlcli.tools.run_folder import is_run

    found = [file for name in runs if (file := keeping.find(name, output)) is not None and not is_run(file.parent)]
    if found and len(runs) > 1:
        hint = f"name it alone: vlcli report {found[0]}"
        raise UsageError("Verdicts on claims have a page of their own.", got=", ".join(runs), hint=hint)
    return found[0] if found else None


def _verdicts(results: Path, out: Path | None) -> Path:
    """Write the page of verdicts beside the results, or where it was named."""
    from vlcli.claims.reproduce import of_results
    from vlcli.claims.verdicts import judge
    from vlcli.pages.verdicts import write_verdicts
    from vlcli.tools.run_folder import REPORT

    study = of_results(results)
    seconds = sum(one.seconds for one in study.shown().cells.values())
    return write_verdicts(judge(study.claims, study.look), out or results.parent / REPORT, "vlcli reproduce", seconds)


def _told(page: Path, results: Path, json_: bool) -> None:
    from vlcli.cli import console

    if json_:
        console.out_json({"page": str(page), "bytes": page.stat().st_size, "results": str(results)})
    else:
        console.out(str(page))
