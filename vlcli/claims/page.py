"""Writes the page of a reproduction: verdicts, figures, the command that repeats each line, one plot a paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from vlcli.claims import words
from vlcli.claims.verdicts import WORDS, Judged, counts
from vlcli.files import write_text, written
from vlcli.tables.cells import show_contrast, show_estimate
from vlcli.tables.outputs import has_plots

PAGE = "reproduction.md"


def write_page(judged: Sequence[Judged], file: Path, command: str, seconds: float) -> list[Path]:
    """Writes and returns the page, and in ``images`` a plot of each paper of which something has run."""
    parts = words.by_part(judged)
    images = {paper: f"images/{file.stem}-{paper}.svg" for paper in parts}
    plots = {paper: image for paper, image in images.items() if plot(parts[paper], file.parent / image)}
    page = write_text(file, render(judged, command, seconds, plots))
    return [page, *(file.parent / image for image in plots.values())]


def render(
    judged: Sequence[Judged],
    command: str = "vlcli reproduce",
    seconds: float = 0.0,
    plots: Mapping[str, str] | None = None,
) -> str:
    """Returns the page as Markdown; ``plots`` names the image of a paper."""
    took = f" The rows took {seconds / 3600:.1f} hours together." if seconds else ""
    lines = [line.format(command=command, took=took) for line in HEAD.splitlines()] + ["", *_counted(judged)]
    for paper, listed in words.by_part(judged).items():
        lines += ["", f"## {words.title(listed)}", ""]
        if plots and paper in plots:
            lines += [f"![differences and verdicts of {paper}]({quote(plots[paper])})", ""]
        lines += [line for text in words.history(listed) for line in (text, "")]
        for word in WORDS:
            lines += _section(word, [one for one in listed if one.word == word])
    return "\n".join(lines).rstrip() + "\n"


HEAD = """\
# What reproduces in small

After this page you know which statements of papers come out in small generated worlds, which come out
the other way round, and which are open. The statements, rows, metrics, worlds and seeds were registered
before the rows were run ([reproduce.md](reproduce.md)). Statements that real photographs test come
first and are counted apart. This page is written by a command:

```sh
{command}
```

Differences are those of the first row minus the second, paired by seed, with a 95 % interval; p values
are corrected by Holm's method over the claims of a paper's table. A row in small is no copy of a
published one.{took}
"""


def _counted(judged: Sequence[Judged]) -> list[str]:
    last, generated = words.generated(judged)
    parts = words.by_part(judged)
    columns = [*parts.values(), generated]
    rows: dict[str, list[Any]] = {}
    for word in WORDS:
        rows[word] = [counts(listed)[word] for listed in columns]
        if word == "undecided":
            rows["*smaller than expected*"] = [sum(one.smaller for one in listed) for listed in columns]
    rows |= {"decided": [*map(words.decided, columns)], "published direction": [*map(words.following, columns)]}
    lines = [f"| | {' | '.join(parts)} | {last} |", "|---" * (len(parts) + 2) + "|"]
    lines += [f"| {label} | {' | '.join(map(str, row))} |" for label, row in rows.items()]
    return [*lines, "", *(f"- **{word}**: {meaning}." for word, meaning in (words.MEANING | words.MORE).items())]


def _section(word: str, listed: Sequence[Judged]) -> list[str]:
    if not listed:
        return []
    lines = [f"### {word.capitalize()} ({len(listed)})", ""]
    if word in ("not in small", "not run"):
        for one in listed:
            claim = one.registered.claim
            first, second = claim.published
            waiting = f"{one.seeds} of {one.wanted} seeds have run: `{words.command(one)}`"
            said = f"`{claim.id}` ({words.table_name(claim.table)}): {claim.claim}"
            numbers = f"Published: {first:g} and {second:g} ({claim.metric})."
            lines.append(f"- {said} {numbers} {claim.reason if word == 'not in small' else waiting + words.cost(one)}")
        return [*lines, ""]
    columns = ["claim", "published", "measured", "difference", "p"]
    columns += {"undecided": ["seeds that would decide"], "not judged": ["why"]}.get(word, [])
    rows = [f"| {' | '.join(_cells(one, word))} |" for one in listed]
    return [*lines, f"| {' | '.join(columns)} |", "|---" * len(columns) + "|", *rows, ""]


def _cells(one: Judged, word: str) -> list[str]:
    claim, small = one.registered.claim, one.registered.small
    assert small is not None
    first, second = claim.published
    rows = f"`{small.recipe}`: {small.rows[0]} against {small.rows[1]}, {small.metric}, {one.seeds} seeds"
    cells = [
        f"`{claim.id}`: {claim.claim}<br>{rows}<br>`{words.command(one)}`",
        f"{first:g}, {second:g}<br>{claim.metric}<br>{words.table_name(claim.table)}",
        f"{show_estimate(one.first)}, {show_estimate(one.second)}",
        "<br>".join(filter(None, (one.error or show_contrast(one.difference), words.before(one)))),
        words.p_value(one),
    ]
    if word == "undecided":
        cells.append("<br>".join(filter(None, (words.seeds(one), words.size(one)))))
    cells += [words.room(one)] if word == "not judged" else []
    return [cell.replace("|", "\\|") for cell in cells]


COLOURS = {"reproduced": "#2b5c9e", "opposite": "#c2571a", "undecided": "#777777", "not judged": "#bbbbbb"}
MARKS = {"reproduced": "o", "opposite": "D", "undecided": "s", "not judged": "x"}


def plot(judged: Sequence[Judged], file: Path) -> bool:
    """Draws the claims of one paper that have run into an SVG; False: none has run, or there is no matplotlib."""
    drawn = [one for one in judged if one.word in COLOURS and one.difference is not None]
    if not drawn or not has_plots():
        return False
    with written(file) as beside:
        _figure(drawn).savefig(beside, format="svg", metadata={"Date": None})
    return True


def _figure(drawn: Sequence[Judged]) -> Any:
    import matplotlib as mpl
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "claims"
    figure = Figure(figsize=(8.5, 0.3 * len(drawn) + 1.3), layout="constrained")
    axes: Any = figure.subplots()
    axes.axvline(0, color="#333333", linewidth=1)
    for row, one in enumerate(drawn):
        colour, (value, low, high) = COLOURS[one.word], one.effect
        if low is not None and high is not None:
            axes.plot([low, high], [row, row], color=colour, linewidth=1.8)
        axes.plot(value, row, MARKS[one.word], color=colour, markersize=6, label=one.word)
    axes.set_yticks(range(len(drawn)), [one.registered.claim.id for one in drawn], fontsize=8)
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.set_xlabel("difference in the published direction, with its 95 % interval")
    axes.grid(axis="x", alpha=0.25)
    axes.spines[["top", "right", "left"]].set_visible(False)
    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(named.values(), named, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure
