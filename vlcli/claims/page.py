"""The page of a reproduction: verdicts, figures, the command that repeats each line, and one plot a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlcli.claims import words
from vlcli.claims.plot import plot
from vlcli.claims.verdicts import WORDS, Judged, counts
from vlcli.files import write_text

PAGE = "reproduction.md"


@dataclass
class Page:
    """What a page shows.

    Attributes:
        judged: the claims, in the order of their files.
        commands: that made the results, as typed, for the head of the page.
        seconds: time that the rows took together.
        plots: image of each paper, as the page names it; filled by :func:`write_page`.
    """

    judged: Sequence[Judged]
    commands: Sequence[str] = ("vlcli reproduce",)
    seconds: float = 0.0
    plots: dict[str, str] = field(default_factory=dict)


def write_page(page: Page, file: Path) -> list[Path]:
    """Write the page, and beside it the folder ``images`` with a plot for each paper of which something has run.

    Args:
        page: what it shows.
        file: where to write it.

    Returns:
        The files that were written, the page first.
    """
    written = []
    for paper, listed in words.by_paper(page.judged).items():
        image = file.parent / "images" / f"{file.stem}-{paper}.svg"
        if plot(listed, image):
            page.plots[paper] = f"images/{image.name}"
            written.append(image)
    return [write_text(file, render(page)), *written]


def render(page: Page) -> str:
    """The page as Markdown."""
    lines = [*_head(page), *_counted(page.judged)]
    for paper, listed in words.by_paper(page.judged).items():
        lines += ["", f"## {listed[0].registered.file.title}", ""]
        if paper in page.plots:
            lines += [f"![differences and verdicts of {paper}]({page.plots[paper]})", ""]
        lines += [line for text in words.history(listed) for line in (text, "")]
        for word in WORDS:
            lines += _section(word, [one for one in listed if one.word == word])
    return "\n".join(lines).rstrip() + "\n"


def _head(page: Page) -> list[str]:
    took = f" The rows took {page.seconds / 3600:.1f} hours together." if page.seconds else ""
    return [
        "# What reproduces in small",
        "",
        "After this page you know which statements of papers come out in small generated worlds, which come out",
        "the other way round, and which are open. The statements, rows, metrics, worlds and seeds were registered",
        "before the rows were run ([reproduce.md](reproduce.md)). This page is written by a command:",
        "",
        "```sh",
        *page.commands,
        "```",
        "",
        "Differences are those of the first row minus the second, paired by seed, with a 95 % interval; p values",
        "are corrected by Holm's method over the claims of a paper's table. A row in small is no copy of a",
        f"published one.{took}",
        "",
    ]


def _counted(judged: Sequence[Judged]) -> list[str]:
    papers = words.by_paper(judged)
    lines = [f"| | {' | '.join(papers)} | all |", "|---" * (len(papers) + 2) + "|"]
    for word in WORDS:
        cells = [counts(listed)[word] for listed in papers.values()]
        lines.append(f"| {word} | {' | '.join(map(str, cells))} | {sum(cells)} |")
        if word == "undecided":
            small = [sum(one.smaller for one in listed) for listed in papers.values()]
            lines.append(f"| *smaller than expected* | {' | '.join(map(str, small))} | {sum(small)} |")
    for label, count in (("decided", words.decided), ("published direction", words.following)):
        lines.append(f"| {label} | {' | '.join(map(count, [*papers.values(), judged]))} |")
    meanings = [*words.MEANING.items(), *words.MORE.items()]
    return [*lines, "", *(f"- **{word}**: {meaning}." for word, meaning in meanings)]


def _section(word: str, listed: Sequence[Judged]) -> list[str]:
    if not listed:
        return []
    head = [f"### {word.capitalize()} ({len(listed)})", ""]
    if word == "not in small":
        return [*head, *(f"- {_said(one)} {one.registered.claim.reason}" for one in listed), ""]
    if word == "not run":
        return [*head, *(f"- {_said(one)} {_waiting(one)}" for one in listed), ""]
    columns = [
        "claim",
        "published",
        "measured",
        "difference",
        "p",
        *(["seeds that would decide"] * (word == "undecided")),
    ]
    rows = [f"| {' | '.join(_cells(one, word))} |" for one in listed]
    return [*head, f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows, ""]


def _said(one: Judged) -> str:
    claim = one.registered.claim
    first, second = claim.published
    numbers = f"Published: {first:g} and {second:g} ({claim.metric})."
    return f"`{claim.id}` ({words.table_name(claim.table)}): {claim.claim} {numbers}"


def _waiting(one: Judged) -> str:
    return f"{one.seeds} of {one.wanted} seeds have run: `{words.command(one)}`"


def _cells(one: Judged, word: str) -> list[str]:
    claim = one.registered.claim
    first, second = claim.published
    cells = [
        f"`{claim.id}`: {claim.claim}<br>{_rows(one)}<br>`{words.command(one)}`",
        f"{first:g}, {second:g}<br>{claim.metric}<br>{words.table_name(claim.table)}",
        f"{words.mean(one.first)}, {words.mean(one.second)}",
        "<br>".join(filter(None, (one.error or words.difference(one), words.before(one)))),
        words.p_value(one),
    ]
    if word == "undecided":
        cells.append("<br>".join(filter(None, (words.seeds(one), words.size(one)))))
    return [cell.replace("|", "\\|") for cell in cells]


def _rows(one: Judged) -> str:
    small = one.registered.small
    assert small is not None
    return f"`{small.recipe}`: {small.rows[0]} against {small.rows[1]}, {small.metric}, {one.seeds} seeds"


__all__ = ["PAGE", "Page", "render", "write_page"]
