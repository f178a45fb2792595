"""Writes verdicts, differences and numbers of seeds as pages and the terminal show them."""

from collections import Counter
from collections.abc import Sequence

from vlcli.claims.verdicts import COMPLETE, DECIDED, Judged, Word
from vlcli.tables.cells import show_contrast

# What each verdict means
MEANING: dict[Word, str] = {
    "reproduced": "the difference has the published direction, p below .05 after Holm's correction",
    "opposite": "the difference has the opposite direction, p below .05 after Holm's correction",
    "undecided": "the rows have run with all seeds and do not differ surely in either direction",
    "not judged": (
        "the rows do not differ surely, and the world could not show it: the second row is within a tenth of the range"
        " from chance or from the ceiling, or a difference that was planted was not found either"
    ),
    "failed": "a row ended with an error",
    "not run": "not all seeds of both rows have run yet",
    "not in small": "the question cannot be put to a small world; the reason stands beside it",
}
# What the other counts mean
MORE = {
    "smaller than expected": (
        "undecided, but surely within the difference for which the number of seeds was registered, in either direction"
        " (two one-sided tests, each below .025 after Holm's correction): there is no effect of this size; not decided"
    ),
    "decided": "reproduced or opposite, of the claims that can be tested in small",
    "published direction": (
        "how many of the rows that have run differ in the direction that the paper reports, surely or not"
    ),
}


def by_part(judged: Sequence[Judged]) -> dict[str, list[Judged]]:
    """Returns the claims that real photographs test, if there are any, then the others of each paper."""
    parts: dict[str, list[Judged]] = {}
    for one in sorted(judged, key=lambda one: not one.registered.is_real):
        parts.setdefault(one.registered.part, []).append(one)
    return parts


def title(judged: Sequence[Judged]) -> str:
    """The heading of a part."""
    first = judged[0].registered
    return "On real photographs" if first.is_real else first.file.title


def generated(judged: Sequence[Judged]) -> tuple[str, list[Judged]]:
    """What the last column of the counts is called and sums up: claims of generated worlds, apart from real ones."""
    listed = [one for one in judged if not one.registered.is_real]
    return ("all" if len(listed) == len(judged) else "all generated"), listed


def cost(one: Judged) -> str:
    """How long the rows of a claim take, where that was registered."""
    small = one.registered.small
    if small is None or small.minutes is None:
        return ""
    return f", about {small.minutes * len(small.cells) * one.wanted:.0f} core-minutes"


def decided(judged: Sequence[Judged]) -> str:
    """How many of the claims that can be tested in small are reproduced or opposite."""
    tested = [one for one in judged if one.word != "not in small"]
    count = sum(one.word in DECIDED for one in tested)
    return f"{count} of {len(tested)} ({count / len(tested):.0%})" if tested else "-"


def following(judged: Sequence[Judged]) -> str:
    """How many of the differences that have run have the published direction, surely or not."""
    known = [one.follows for one in judged if one.follows is not None]
    return f"{sum(known)} of {len(known)}" if known else "-"


def table_name(number: str) -> str:
    """``Table 4``; a figure as it is written."""
    return f"Table {number}" if number.isdigit() else number.capitalize()


def command(one: Judged) -> str:
    """What tests this claim alone."""
    extra = "" if one.wanted == len(one.registered.seeds) else f" --seeds {one.wanted}"
    return f"vlcli reproduce {one.registered.file.paper} --claims {one.registered.claim.id}{extra}"


def interval(one: Judged) -> str:
    """The ends of the difference's 95 % interval; nothing where one seed has run."""
    measured = one.difference
    if measured is None or measured.low is None or measured.high is None:
        return ""
    return f"{measured.low:+.3f} to {measured.high:+.3f}"


def p_value(one: Judged) -> str:
    """The p value after Holm's correction."""
    return "-" if one.p is None else "< .001" if one.p < 0.001 else f"{one.p:.3f}".lstrip("0")


def before(one: Judged) -> str:
    """The verdicts of earlier registrations."""
    return "; ".join(f"{verdict} before: {value:+.3f}" for verdict, value in one.registered.earlier)


def seeds(one: Judged) -> str:
    """The number of seeds that would decide a difference of the measured size."""
    return "more than 10,000" if one.seeds_to_decide is None else f"{one.seeds_to_decide:,}"


def size(one: Judged) -> str:
    """What is known of the size of an undecided difference; nothing where its interval is wide."""
    return f"smaller than {one.registered.power.difference:g}" if one.smaller else ""


def room(one: Judged) -> str:
    """Why a claim is not judged."""
    low, high = one.registered.file.judged_between
    if one.share is None or low <= one.share <= high:
        return "the planted difference was not found"
    return f"second row {one.share:.1%} of the way from chance to the ceiling"


def history(judged: Sequence[Judged]) -> list[str]:
    """A sentence or more on each earlier registration of a paper: its verdicts and its settings."""
    lines: list[str] = []
    if judged[0].registered.is_real:  # its claims are of several papers; each shows its own earlier verdicts
        return lines
    for one in judged[0].registered.file.earlier:
        verdicts: Counter[str] = Counter(verdict for verdict, _ in one.verdicts.values())
        named = dict.fromkeys((*DECIDED, "undecided", *verdicts))
        spread = ", ".join(f"{verdicts[word]} {word}" for word in named)
        numbers = ", ".join(map(str, one.seeds))
        lines.append(f"An earlier registration (seeds {numbers}) ended with {spread}. {one.settings}")
    return lines


def short(judged: Sequence[Judged]) -> list[list[str]]:
    """A line for each claim that has run, for the terminal."""
    rows = []
    for one in judged:
        if one.word in (*COMPLETE, "failed"):
            more = one.error
            if one.word == "undecided":
                more = ", ".join(filter(None, (size(one), f"{seeds(one)} seeds would decide")))
            if one.word == "not judged":
                more = room(one)
            rows.append([one.registered.claim.id, one.word, show_contrast(one.difference), more])
    return rows
