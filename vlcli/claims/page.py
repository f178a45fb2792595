"""The page of a reproduction: verdicts, figures, the command that repeats each line, and one plot a paper."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from vlcli.claims.cells import seeds_of, shown
from vlcli.claims.plot import plot
from vlcli.claims.schema import ClaimsFile
from vlcli.claims.verdicts import DECIDED, WORDS, Judged, counts, seeds_to_decide
from vlcli.files import write_text
from vlcli.tables.statistics import Estimate

PAGE = "reproduction.md"
_MEANING = {
    "reproduced": "the difference has the published direction, p below .05 after Holm's correction",
    "opposite": "the difference has the opposite direction, p below .05 after Holm's correction",
    "undecided": "the rows have run with all seeds and do not differ surely in either direction",
    "failed": "a row ended with an error",
    "not run": "not all seeds of both rows have run yet",
    "not in small": "the question cannot be put to a small world; the reason stands beside it",
}
SMALLER = (
    "undecided, but the whole interval lies within the difference for which the number of seeds was registered, in"
    " either direction: there is no effect of this size"
)
DECISION = "reproduced or opposite, of the claims that can be tested in small"
DIRECTION = "how many of the rows that have run differ in the direction that the paper reports, surely or not"


@dataclass
class Page:
    """What a page shows.

    Attributes:
        judged: the claims, in the order of their files.
        commands: that made the results, as typed, for the head of the page.
        seconds: time that the rows took together.
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
    for paper, listed in by_paper(page.judged).items():
        image = file.parent / "images" / f"{file.stem}-{paper}.svg"
        if plot(listed, image):
            page.plots[paper] = f"images/{image.name}"
            written.append(image)
    return [write_text(file, render(page)), *written]


def by_paper(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The claims of each paper."""
    found: dict[str, list[Judged]] = {}
    for one in judged:
        found.setdefault(one.registered.file.paper, []).append(one)
    return found


def render(page: Page) -> str:
    """The page as Markdown."""
    lines = [*_head(page), *_counted(page.judged)]
    for paper, listed in by_paper(page.judged).items():
        lines += ["", f"## {listed[0].registered.file.title}", ""]
        if paper in page.plots:
            lines += [f"![differences and verdicts of {paper}]({page.plots[paper]})", ""]
        lines += _history(listed[0].registered.file)
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
    papers = by_paper(judged)
    lines = [f"| | {' | '.join(papers)} | all |", "|---" * (len(papers) + 2) + "|"]
    for word in WORDS:
        cells = [counts(listed)[word] for listed in papers.values()]
        lines.append(f"| {word} | {' | '.join(map(str, cells))} | {sum(cells)} |")
        if word == "undecided":
            small = [sum(one.smaller for one in listed) for listed in papers.values()]
            lines.append(f"| *smaller than expected* | {' | '.join(map(str, small))} | {sum(small)} |")
    for label, count in (("decided", _decided), ("published direction", _following)):
        lines.append(f"| {label} | {' | '.join(map(count, [*papers.values(), judged]))} |")
    more = {"smaller than expected": SMALLER, "decided": DECISION, "published direction": DIRECTION}
    meanings = [*_MEANING.items(), *more.items()]
    return [*lines, "", *(f"- **{word}**: {meaning}." for word, meaning in meanings)]


def _decided(judged: Sequence[Judged]) -> str:
    """How many of the claims that can be tested in small are reproduced or opposite."""
    tested = [one for one in judged if one.word != "not in small"]
    count = sum(one.word in DECIDED for one in tested)
    return f"{count} of {len(tested)} ({count / len(tested):.0%})" if tested else "-"


def _following(judged: Sequence[Judged]) -> str:
    """How many of the differences that have run have the published direction, surely or not."""
    known = [one.follows for one in judged if one.follows is not None]
    return f"{sum(known)} of {len(known)}" if known else "-"


def _section(word: str, listed: Sequence[Judged]) -> list[str]:
    if not listed:
        return []
    head = [f"### {word.capitalize()} ({len(listed)})", ""]
    if word == "not in small":
        return [*head, *(f"- {_said(one)} {one.registered.claim.reason}" for one in listed), ""]
    if word == "not run":
        seeds = (f"{one.seeds} of {one.wanted} seeds have run" for one in listed)
        return [*head, *(f"- {_said(one)} {run}: {_again(one)}" for one, run in zip(listed, seeds, strict=True)), ""]
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


def _history(file: ClaimsFile) -> list[str]:
    """A paragraph for each earlier registration: what it was, and how its verdicts were spread."""
    lines = []
    for one in file.earlier:
        found: list[str] = [verdict for verdict, _ in one.verdicts.values()]
        spread = ", ".join(f"{found.count(word)} {word}" for word in (*DECIDED, "undecided"))
        seeds = ", ".join(map(str, one.seeds))
        lines += [f"An earlier registration (seeds {seeds}) ended with {spread}. {one.settings}", ""]
    return lines


def _before(one: Judged) -> str:
    """What earlier registrations found."""
    return "; ".join(f"{verdict} before: {difference:+.3f}" for verdict, difference in one.registered.earlier)


def _said(one: Judged) -> str:
    claim = one.registered.claim
    first, second = claim.published
    return f"`{claim.id}` ({_table(claim.table)}): {claim.claim} Published: {first:g} and {second:g} ({claim.metric})."


def _table(number: str) -> str:
    """``Table 4``; a figure as it is written."""
    return f"Table {number}" if number.isdigit() else number.capitalize()


def _cells(one: Judged, word: str) -> list[str]:
    claim = one.registered.claim
    first, second = claim.published
    cells = [
        f"`{claim.id}`: {claim.claim}<br>{_rows(one)}<br>{_again(one)}",
        f"{first:g}, {second:g}<br>{claim.metric}<br>{_table(claim.table)}",
        f"{_shown(one.first)}, {_shown(one.second)}",
        "<br>".join(filter(None, (one.error or _difference(one), _before(one)))),
        "-" if one.p is None else "< .001" if one.p < 0.001 else f"{one.p:.3f}".lstrip("0"),
    ]
    if word == "undecided":
        cells.append("<br>".join(filter(None, (_seeds(one), _size(one)))))
    return [cell.replace("|", "\\|") for cell in cells]


def _rows(one: Judged) -> str:
    small = one.registered.small
    assert small is not None
    return f"`{small.recipe}`: {small.rows[0]} against {small.rows[1]}, {small.metric}, {one.seeds} seeds"


def _again(one: Judged) -> str:
    extra = "" if one.wanted == len(one.registered.seeds) else f" --seeds {one.wanted}"
    return f"`vlcli reproduce {one.registered.file.paper} --claims {one.registered.claim.id}{extra}`"


def _shown(found: Estimate | None) -> str:
    if found is None:
        return "-"
    return f"{found.mean:.3f}" if found.half is None else f"{found.mean:.3f} ± {found.half:.3f}"


def _difference(one: Judged) -> str:
    found = one.difference
    if found is None:
        return "-"
    ends = "" if found.low is None or found.high is None else f" ({found.low:+.3f} to {found.high:+.3f})"
    return f"{found.difference:+.3f}{ends}"


def _seeds(one: Judged) -> str:
    seeds = seeds_to_decide(one)
    return "more than 10,000" if seeds is None else f"{seeds:,}"


def _size(one: Judged) -> str:
    """What is known of the size of an undecided difference; nothing where its interval is wide."""
    return f"smaller than {one.registered.power.difference:g}" if one.smaller else ""


def short(judged: Sequence[Judged]) -> list[list[str]]:
    """A line for each claim that has run, for the terminal."""
    rows = []
    for one in judged:
        if one.word in (*DECIDED, "undecided", "failed"):
            more = one.error
            if one.word == "undecided":
                more = ", ".join(filter(None, (_size(one), f"{_seeds(one)} seeds would decide")))
            rows.append([one.registered.claim.id, one.word, _difference(one), more])
    return rows


__all__ = ["PAGE", "Page", "by_paper", "render", "seeds_of", "short", "shown", "write_page"]
