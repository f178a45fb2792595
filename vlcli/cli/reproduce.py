"""``vlcli reproduce [PAPER]``: run what tests the registered claims of papers, and write what comes out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.errors import UsageError

if TYPE_CHECKING:
    from vlcli.claims.reproduce import Study
    from vlcli.claims.verdicts import Judged

HTML = (".html", ".htm")


def _complete(incomplete: str) -> list[str]:
    from vlcli.claims.load import papers

    return [name for name in papers() if name.startswith(incomplete)]


@guarded
def reproduce(
    paper: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAPER]...", help="Papers, or files of claims; default: all.", autocompletion=_complete
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option("--hours", help="Begin no further row after this time (0: write the page only)."),
    ] = None,
    claims: Annotated[
        str | None, typer.Option("--claims", metavar="ID,...", help="These claims alone.", show_default=False)
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="Seeds for each claim; default: those it registers.")
    ] = None,
    list_: Annotated[
        bool, typer.Option("--list", help="List the claims and their verdicts so far; run nothing.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="The page (Markdown, or HTML: page.html); default: reproduction.md in runs/reproduce."
        ),
    ] = None,
    jobs: o.Jobs = None,
    output: o.Output = Path("runs"),
    device: o.Device = None,
    plugin: o.Plugin = None,
    json_: o.Json = False,
    quiet: o.Quiet = False,
    verbose: o.Verbose = 0,
) -> None:
    """Test the published contrasts that papers register, on small generated worlds; write a page of verdicts.

    vlcli reproduce --list

    vlcli reproduce irpe --hours 1 -o docs/reproduction.md

    vlcli reproduce irpe -o irpe.html
    """
    from vlcli.cli import console

    plugins = o.load_plugins(plugin)
    if hours is not None and not (math.isfinite(hours) and hours >= 0):
        raise UsageError("--hours is no time.", got=f"{hours:g}", expected="0 (run nothing, write the page) or more")
    study = _study(paper or [], claims, seeds, output, out)
    html = _html(study, out)
    sound = True
    if not list_ and hours != 0:
        from vlcli.claims.reproduce import run
        from vlcli.recipe.plan import RunOptions

        options = RunOptions(output, device=device, jobs=jobs, plugins=plugins)
        progress = console.progress(verbose, quiet)
        tell = (lambda _: None) if quiet else console.err
        sound = run(study, options, hours=hours, jobs=jobs or 1, progress=progress, tell=tell)
    judged = _judged(study)
    pages = [] if list_ else _write(study, judged, out, html, paper or [])
    _tell(judged, pages, list_, json_)
    if not sound:
        raise typer.Exit(1)


def _study(papers: list[str], claims: str | None, seeds: int | None, output: Path, page: Path | None) -> Study:
    from vlcli.claims.load import every, pick
    from vlcli.claims.reproduce import FOLDER, Study, check

    found = every(papers)
    ids = [one.strip() for one in (claims or "").split(",") if one.strip()]
    if claims is not None and not ids:
        raise UsageError("--claims names no claim.", got=repr(claims), hint="list them: vlcli reproduce --list")
    study = Study(found, pick(found, ids) if ids else found, output / FOLDER, seeds, page)
    check(found, study.tables)
    return study


def _judged(study: Study) -> list[Judged]:
    from vlcli.claims.verdicts import judge

    return judge(study.claims, study.look, study.seeds)


def _html(study: Study, out: Path | None) -> Path:
    """Where the report page goes: the page that was named, if it is one, else ``report.html`` beside the results.

    Raises:
        UsageError: a file lies there that is no report.
    """
    from vlcli.pages.page import refuse_other
    from vlcli.tools.run_folder import REPORT

    html = out if out is not None and out.suffix in HTML else study.folder / REPORT
    refuse_other(html)
    return html


def _write(study: Study, judged: list[Judged], out: Path | None, html: Path, papers: list[str]) -> list[Path]:
    """The page of verdicts as Markdown, unless an HTML page was named, and as HTML."""
    from vlcli.claims import results_file
    from vlcli.claims.page import PAGE, Page, write_page
    from vlcli.pages.verdicts import write_verdicts

    words = " ".join(["vlcli reproduce", *papers, *([f"--seeds {study.seeds}"] if study.seeds else [])])
    page, shown = out or study.folder / PAGE, study.shown()
    results_file.publish(page, shown)
    seconds = sum(one.seconds for one in shown.cells.values())
    written = [] if page == html else [write_page(Page(judged, [words], seconds), page)[0]]
    return [*written, write_verdicts(judged, html, words, seconds)]


def _tell(judged: list[Judged], pages: list[Path], list_: bool, json_: bool) -> None:
    from vlcli.claims.listing import as_row as registered
    from vlcli.claims.verdicts import as_row, counts
    from vlcli.claims.words import short
    from vlcli.cli import console

    if json_:
        told: list[dict[str, Any]] = [{**registered(one.registered), **as_row(one)} for one in judged]
        facts = {"page": str(pages[0]) if pages else None, "pages": list(map(str, pages))}
        console.out_json({**facts, "counts": counts(judged), "claims": told})
        return
    if list_:
        cells = [
            [row["id"], one.word, row["claim"], row["test"]] for one in judged for row in [registered(one.registered)]
        ]
        console.table(["claim", "verdict", "what the paper says", "tested by"], cells)
    elif lines := short(judged):
        console.table(["claim", "verdict", "difference", ""], lines)
    console.out(", ".join(f"{count} {word}" for word, count in counts(judged).items() if count))
    for page in pages:
        console.out(str(page))
