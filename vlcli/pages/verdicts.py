"""Writes verdicts on published claims as one HTML page: counts, differences on a line, filters, commands."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from vlcli.claims import words
from vlcli.claims.results_file import seeds_of
from vlcli.claims.verdicts import WORDS, Judged, counts
from vlcli.files import write_text
from vlcli.pages.charts import Bar, Span
from vlcli.pages.page import filled, refuse_other
from vlcli.pages.tables import Mark
from vlcli.tables.cells import show_estimate

TITLE = "What reproduces in small"
# Share of a plot's width that stays free at either end
ROOM = 0.04


def write_verdicts(judged: Sequence[Judged], file: Path, command: str, seconds: float = 0.0) -> Path:
    """Write the page of verdicts; UsageError: a file that vlcli did not write lies there."""
    refuse_other(file)
    return write_text(file, render_verdicts(judged, command, seconds))


def render_verdicts(judged: Sequence[Judged], command: str, seconds: float = 0.0) -> str:
    """Return the page as text."""
    by_part, spread = words.by_part(judged), counts(judged)
    papers = [_paper(name, listed) for name, listed in by_part.items()]
    count = len({one.registered.file.paper for one in judged})
    last, generated = words.generated(judged)
    facts = [f"{len(judged)} claims of {count} papers", f"{words.decided(generated)} decided"]
    shown: dict[str, Any] = {
        "title": TITLE,
        "about": "",
        "facts": facts + ([f"{seconds / 3600:.1f} hours of work"] if seconds else []),
        "sections": [("summary", "Summary"), *((f"paper-{name}", name) for name in by_part)],
        "command": command,
        "counts": [_count(*part) for part in (*by_part.items(), (last, generated)) if part[1]],
        "words": [word for word in WORDS if spread[word]],
        "meanings": [(word, meaning) for word, meaning in words.MEANING.items() if spread[word]],
        "more": words.MORE,
        "tables": list(dict.fromkeys(claim["table"] for paper in papers for claim in paper["claims"])),
        "papers": papers,
    }
    return filled("verdicts.html", shown)


def _count(name: str, judged: Sequence[Judged]) -> dict[str, Any]:
    numbers = counts(judged)
    starts = accumulate((100 * count / len(judged) for count in numbers.values()), initial=0.0)
    parts = zip(numbers.items(), pairwise(starts), strict=True)
    return {
        "name": name,
        "numbers": numbers,
        "bars": [(word, Bar(round(low, 2), round(high - low, 2))) for (word, count), (low, high) in parts if count],
        "smaller": sum(one.smaller for one in judged),
        "decided": words.decided(judged),
        "following": words.following(judged),
    }


def _paper(name: str, listed: Sequence[Judged]) -> dict[str, Any]:
    tested = [(one.registered.small.world, one.registered.file) for one in listed if one.registered.small is not None]
    ends = [end for one in listed for end in one.effect if end is not None]
    low, high = min(0.0, 0.0, *ends), max(0.0, 0.0, *ends)
    room = ROOM * (high - low) or 0.1
    span = Span(low - room, high + room) if ends else None  # wide enough for every interval and for no difference
    return {
        "name": name,
        "title": words.title(listed),
        "history": words.history(listed),
        "worlds": list({world: file.worlds[world].about for world, file in tested}.items()),
        "zero": None if span is None else span.at(0.0),
        "ticks": [] if span is None else span.ticks,
        "claims": [_shown(one, span) for one in listed],
    }


def _shown(one: Judged, span: Span | None) -> dict[str, Any]:
    claim, small = one.registered.claim, one.registered.small
    first, second = claim.published
    more = {
        "undecided": [f"{words.seeds(one)} seeds would decide", words.size(one)],
        "not judged": [words.room(one)] if one.word == "not judged" else [],
        "not run": [f"{one.seeds} of {one.wanted} seeds have run"],
    }
    ran = one.difference is not None
    return {
        "judged": one,
        "table": words.table_name(claim.table),
        "published": f"{first:g}, {second:g}",
        "between": words.interval(one),
        "notes": [note for note in (one.error, *more.get(one.word, []), words.before(one)) if note],
        "mark": Mark() if span is None else Mark(*map(span.at, one.effect)),
        "test": _test(one),
        "command": "" if small is None else words.command(one),
        "measured": [show_estimate(one.first), show_estimate(one.second)] if ran else [],
        "difference": f"{one.difference.difference:+.3f}" if one.difference is not None else "",
        "p": words.p_value(one) if ran else "",
    }


def _test(one: Judged) -> list[tuple[str, str]]:
    small, power = one.registered.small, one.registered.power
    if small is None:
        return []
    return [
        ("published rows", " against ".join(one.registered.claim.rows)),
        ("rows in small", f"{small.recipe}: {small.rows[0]} against {small.rows[1]}"),
        ("metric", small.metric),
        ("world", small.world),
        ("why it should show", small.why),
        ("seeds", ", ".join(map(str, seeds_of(one.registered, one.wanted)))),
        ("expected", f"a difference of {power.difference:g}, with a deviation of {power.deviation:g} between seeds"),
    ]
