"""``vlcli report RUN...``: one HTML page of one run or of several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded


@guarded
def report(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Run folders, or their names under runs/.")],
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
    """
    from vlcli.cli import console
    from vlcli.pages.report import ReportOptions, write_report
    from vlcli.tools.run_folder import REPORT, find_run

    o.load_plugins(plugin)
    folders = list(dict.fromkeys(find_run(name, output) for name in runs))
    file = out or (folders[0] / REPORT if len(folders) == 1 else Path(REPORT))
    options = ReportOptions(samples, not no_model, device or "auto")
    write_report(folders, file, options, console.progress(verbose, quiet))
    if json_:
        console.out_json({"page": str(file), "bytes": file.stat().st_size, "runs": [str(path) for path in folders]})
    else:
        console.out(str(file))
