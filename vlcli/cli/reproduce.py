"""``vlcli reproduce [PAPER]``: runs what tests the registered claims of papers, and writes the verdicts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from vlcli.cli import console
from vlcli.cli.guard import RunRequest, leave, requested
from vlcli.errors import UsageError

if TYPE_CHECKING:
    from vlcli.claims.reproduce import Study
    from vlcli.claims.verdicts import Judged

HTML = (".html", ".htm")
_PAPER = "Papers, or files of claims; default: all."
_PAGE = "The page (Markdown, or HTML: page.html); default: reproduction.md in runs/reproduce."


def _complete(incomplete: str) -> list[str]:
    from vlcli.claims.load import papers

    return [name for name in papers() if name.startswith(incomplete)]


@requested("jobs", "output", "device", "plugin", "json_", "quiet", "verbose")
def reproduce(
    request: RunRequest,
    paper: Annotated[list[str] | None, Argument(metavar="[PAPER]...", help=_PAPER, autocompletion=_complete)] = None,
    hours: Annotated[float | None, Option(help="Begin no row after this time (0: write the page only).")] = None,
    claims: Annotated[str | None, Option(metavar="ID,...", help="These claims alone.")] = None,
    seeds: Annotated[int | None, Option(min=1, max=1000, help="Seeds for each claim; default: as registered.")] = None,
    list_: Annotated[bool, Option("--list", help="List the claims and their verdicts so far; run nothing.")] = False,
    out: Annotated[Path | None, Option("--out", "-o", help=_PAGE)] = None,
) -> None:
    """Test the published contrasts that papers register, on small generated worlds; write a page of verdicts.

    vlcli reproduce --list
    vlcli reproduce irpe --hours 1 -o docs/reproduction.md
    vlcli reproduce irpe -o irpe.html
    """
    from vlcli.claims.reproduce import run
    from vlcli.claims.verdicts import judge
    from vlcli.pages.page import refuse_other
    from vlcli.tools.run_folder import REPORT

    if hours is not None and not (math.isfinite(hours) and hours >= 0):
        raise UsageError("--hours is not a time.", got=f"{hours:g}", expected="0 (run nothing, write the page) or more")
    study = _study(paper or [], claims, seeds, request.output, out)
    html = out if out is not None and out.suffix in HTML else study.folder / REPORT
    refuse_other(html)
    sound = True
    if not list_ and hours != 0:
        tell = (lambda _: None) if request.quiet else console.err
        jobs, progress = request.jobs or 1, request.progress()
        sound = run(study, request.options, hours=hours, jobs=jobs, progress=progress, tell=tell)
    judged = judge(study.claims, study.look, study.seeds)
    pages = [] if list_ else _write(study, judged, out, html, paper or [])
    _tell([one for one in judged if not list_ or one.registered in study.chosen], pages, list_, request.json_)
    leave(0 if sound else 1)


def _study(papers: list[str], claims: str | None, seeds: int | None, output: Path, page: Path | None) -> Study:
    from vlcli.claims.load import every, pick
    from vlcli.claims.reproduce import FOLDER, Study, check

    registered = every(papers)
    ids = [one.strip() for one in (claims or "").split(",") if one.strip()]
    if claims is not None and not ids:
        raise UsageError("--claims names no claim.", got=repr(claims), hint="list them: vlcli reproduce --list")
    study = Study(registered, pick(registered, ids) if ids else registered, output / FOLDER, seeds, page)
    check(registered, study.tables)
    return study


def _write(study: Study, judged: list[Judged], out: Path | None, html: Path, papers: list[str]) -> list[Path]:
    from vlcli.claims import results_file
    from vlcli.claims.page import PAGE, write_page
    from vlcli.pages.verdicts import write_verdicts

    words = " ".join(["vlcli reproduce", *papers, *([f"--seeds {study.seeds}"] if study.seeds else [])])
    page, shown = out or study.folder / PAGE, study.shown()
    results_file.publish(page, shown)
    seconds = sum(one.seconds for one in shown.cells.values())
    pages = [] if page == html else [write_page(judged, page, words, seconds)[0]]
    return [*pages, write_verdicts(judged, html, words, seconds)]


def _tell(judged: list[Judged], pages: list[Path], list_: bool, json_: bool) -> None:
    from vlcli.claims.load import as_row as registered
    from vlcli.claims.verdicts import as_row, counts
    from vlcli.claims.words import short

    if json_:
        rows: list[dict[str, Any]] = [{**registered(one.registered), **as_row(one)} for one in judged]
        facts = {"page": str(pages[0]) if pages else None, "pages": list(map(str, pages))}
        console.out_json({**facts, "counts": counts(judged), "claims": rows})
        return
    if list_:
        said = [(registered(one.registered), one.word) for one in judged]
        cells = [[row["id"], word, row["claim"], row["test"]] for row, word in said]
        console.table(["claim", "verdict", "what the paper says", "tested by"], cells)
    elif lines := short(judged):
        console.table(["claim", "verdict", "difference", ""], lines)
    console.out(", ".join(f"{count} {word}" for word, count in counts(judged).items() if count))
    console.out_lines(map(str, pages))
