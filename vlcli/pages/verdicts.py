"""Verdicts on published claims as one HTML page: counts, every claim's difference on a line, filters, commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcli.claims import words
from vlcli.claims.measurements import seeds_of
from vlcli.claims.verdicts import WORDS, Judged, Word, counts
from vlcli.files import write_text
from vlcli.pages.charts import Bar, Span
from vlcli.pages.page import filled, refuse_other
from vlcli.pages.tables import Mark

TITLE = "What reproduces in small"
ROOM = 0.04
"""Share of a plot's width that stays free at either end."""


@dataclass(frozen=True)
class Shown:
    """One claim as the page shows it.

    Attributes:
        judged: the claim with its verdict.
        table: ``Table 4``.
        published: both printed numbers.
        measured: both means; nothing where no row has run.
        difference: of the two rows, as text.
        between: its 95 % interval.
        p: after Holm's correction.
        notes: what else is known: seeds that would decide, sizes, earlier verdicts.
        mark: the difference on the line.
        test: names and texts of what "How it is tested" says.
        command: that tests this claim alone; empty where none can.
    """

    judged: Judged
    table: str
    published: str
    measured: list[str]
    difference: str
    between: str
    p: str
    notes: list[str]
    mark: Mark
    test: list[tuple[str, str]]
    command: str


@dataclass(frozen=True)
class Paper:
    """The claims of one paper.

    Attributes:
        name: as in ``vlcli reproduce PAPER``.
        title: of the paper.
        history: a paragraph for each earlier registration.
        worlds: names and descriptions.
        zero: place of no difference, in percent.
        ticks: of the line.
        claims: its claims, in the order of their file.
    """

    name: str
    title: str
    history: list[str]
    worlds: list[tuple[str, str]]
    zero: float | None
    ticks: list[tuple[float, str]]
    claims: list[Shown]


@dataclass(frozen=True)
class Count:
    """A line of the summary.

    Attributes:
        name: of the paper, or ``all``.
        numbers: of claims with each verdict, in the order of ``WORDS``.
        bars: of the verdicts, in percent of the paper's claims.
        smaller: undecided ones that are surely smaller than expected.
        decided: share of the testable claims.
        following: how many lean as published.
    """

    name: str
    numbers: dict[Word, int]
    bars: list[tuple[Word, Bar]]
    smaller: int
    decided: str
    following: str


def write_verdicts(judged: Sequence[Judged], file: Path, command: str, seconds: float = 0.0) -> Path:
    """Write the page of verdicts.

    Args:
        judged: the claims, in the order of their files.
        file: the page; one that vlcli did not write is not replaced.
        command: that makes the results, as typed.
        seconds: time that the rows took together.

    Raises:
        UsageError: another file lies there.
    """
    refuse_other(file)
    return write_text(file, render_verdicts(judged, command, seconds))


def render_verdicts(judged: Sequence[Judged], command: str, seconds: float = 0.0) -> str:
    """The page as text."""
    papers = [_paper(name, listed) for name, listed in words.by_paper(judged).items()]
    spread = counts(judged)
    shown: dict[str, Any] = {
        "title": TITLE,
        "about": "",
        "facts": _facts(judged, seconds),
        "sections": [("summary", "Summary"), *((f"paper-{paper.name}", paper.name) for paper in papers)],
        "command": command,
        "counts": [*(_count(name, listed) for name, listed in words.by_paper(judged).items()), _count("all", judged)],
        "words": [word for word in WORDS if spread[word]],
        "meanings": [(word, meaning) for word, meaning in words.MEANING.items() if spread[word]],
        "more": words.MORE,
        "tables": list(dict.fromkeys(claim.table for paper in papers for claim in paper.claims)),
        "papers": papers,
    }
    return filled("verdicts.html", shown)


def _facts(judged: Sequence[Judged], seconds: float) -> list[str]:
    found = [f"{len(judged)} claims of {len(words.by_paper(judged))} papers", f"{words.decided(judged)} decided"]
    return found + ([f"{seconds / 3600:.1f} hours of work"] if seconds else [])


def _count(name: str, judged: Sequence[Judged]) -> Count:
    numbers, bars, start = counts(judged), [], 0.0
    for word, count in numbers.items():
        width = 100 * count / len(judged)
        bars += [(word, Bar(round(start, 2), round(width, 2)))] if count else []
        start += width
    smaller = sum(one.smaller for one in judged)
    return Count(name, numbers, bars, smaller, words.decided(judged), words.following(judged))


def _paper(name: str, listed: Sequence[Judged]) -> Paper:
    span, file = _span(listed), listed[0].registered.file
    claims = [_shown(one, span) for one in listed]
    zero, ticks = (None, []) if span is None else (span.at(0.0), span.ticks)
    return Paper(name, file.title, words.history(listed), list(file.worlds.items()), zero, ticks, claims)


def _span(listed: Sequence[Judged]) -> Span | None:
    """Wide enough for every interval and for no difference; None where nothing has run."""
    ends = [end for one in listed for end in _ends(one) if end is not None]
    if not ends:
        return None
    low, high = min(0.0, *ends), max(0.0, *ends)
    room = ROOM * (high - low) or 0.1
    return Span(low - room, high + room)


def _ends(one: Judged) -> tuple[float | None, float | None, float | None]:
    """Difference and interval, positive where they agree with the paper; the lower end first."""
    found = one.difference
    if found is None:
        return None, None, None
    value = one.sign * found.difference
    if found.low is None or found.high is None:
        return value, None, None
    low, high = sorted((one.sign * found.low, one.sign * found.high))
    return value, low, high


def _shown(one: Judged, span: Span | None) -> Shown:
    claim = one.registered.claim
    first, second = claim.published
    ran = one.difference is not None
    return Shown(
        one,
        words.table_name(claim.table),
        f"{first:g}, {second:g}",
        [words.mean(one.first), words.mean(one.second)] if ran else [],
        "" if one.difference is None else f"{one.difference.difference:+.3f}",
        words.interval(one),
        words.p_value(one) if ran else "",
        _notes(one),
        Mark() if span is None else Mark(*(span.at(end) for end in _ends(one))),
        _test(one),
        "" if one.registered.small is None else words.command(one),
    )


def _notes(one: Judged) -> list[str]:
    """What stands below a verdict: what went wrong, what would decide, and what earlier registrations found."""
    found = [one.error]
    if one.word == "undecided":
        found += [f"{words.seeds(one)} seeds would decide", words.size(one)]
    if one.word == "not run":
        found += [f"{one.seeds} of {one.wanted} seeds have run"]
    return [note for note in [*found, words.before(one)] if note]


def _test(one: Judged) -> list[tuple[str, str]]:
    """How a claim is tested; nothing where it cannot be."""
    small, power = one.registered.small, one.registered.power
    if small is None:
        return []
    seeds = ", ".join(map(str, seeds_of(one.registered, one.wanted)))
    return [
        ("published rows", " against ".join(one.registered.claim.rows)),
        ("rows in small", f"{small.recipe}: {small.rows[0]} against {small.rows[1]}"),
        ("metric", small.metric),
        ("world", small.world),
        ("why it should show", small.why),
        ("seeds", seeds),
        ("expected", f"a difference of {power.difference:g}, with a deviation of {power.deviation:g} between seeds"),
    ]
