"""Writes the page of a reproduction: verdicts, figures, the command that repeats each line, one plot a paper."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vlcli.claims import words
from vlcli.claims.verdicts import WORDS, Judged, counts
from vlcli.files import write_text, written

PAGE = "reproduction.md"


def write_page(judged: Sequence[Judged], file: Path, command: str, seconds: float) -> list[Path]:
    """Writes the page, and beside it the folder ``images`` with a plot for each paper of which something has run.

    Args:
        judged: the claims, in the order of their files.
        file: where to write the page.

    Returns:
        The files that were written, the page first.
    """
    plots = {}
    for paper, listed in words.by_part(judged).items():
        image = file.parent / "images" / f"{file.stem}-{paper}.svg"
        if plot(listed, image):
            plots[paper] = image
    names = {paper: f"images/{image.name}" for paper, image in plots.items()}
    return [write_text(file, render(judged, command, seconds, names)), *plots.values()]


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
            lines += [f"![differences and verdicts of {paper}]({plots[paper]})", ""]
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
    lines = [f"| | {' | '.join(parts)} | {last} |", "|---" * (len(parts) + 2) + "|"]
    for word in WORDS:
        lines.append(f"| {word} | {' | '.join(str(counts(listed)[word]) for listed in columns)} |")
        if word == "undecided":
            small = [sum(one.smaller for one in listed) for listed in columns]
            lines.append(f"| *smaller than expected* | {' | '.join(map(str, small))} |")
    for label, count in (("decided", words.decided), ("published direction", words.following)):
        lines.append(f"| {label} | {' | '.join(map(count, columns))} |")
    meanings = [*words.MEANING.items(), *words.MORE.items()]
    return [*lines, "", *(f"- **{word}**: {meaning}." for word, meaning in meanings)]


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
        f"{words.mean(one.first)}, {words.mean(one.second)}",
        "<br>".join(filter(None, (one.error or words.difference(one), words.before(one)))),
        words.p_value(one),
    ]
    if word == "undecided":
        cells.append("<br>".join(filter(None, (words.seeds(one), words.size(one)))))
    cells += [words.room(one)] if word == "not judged" else []
    return [cell.replace("|", "\\|") for cell in cells]


COLOURS = {"reproduced": "#2b5c9e", "opposite": "#c2571a", "undecided": "#777777", "not judged": "#bbbbbb"}
MARKS = {"reproduced": "o", "opposite": "D", "undecided": "s", "not judged": "x"}


def plot(judged: Sequence[Judged], file: Path) -> bool:
    """Draws the claims of one paper that have run into an SVG.

    Returns:
        Whether something was drawn: False where no claim has run, or matplotlib is not installed.
    """
    drawn = [one for one in judged if one.word in COLOURS and one.difference is not None]
    if not drawn:
        return False
    try:
        figure = _figure(drawn)
    except ImportError:
        return False
    with written(file) as beside:
        figure.savefig(beside, format="svg", metadata={"Date": None})
    return True


def _figure(drawn: Sequence[Judged]) -> Any:
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    mpl.rcParams["svg.hashsalt"] = "claims"
    figure = Figure(figsize=(8.5, 0.3 * len(drawn) + 1.3), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.subplots()
    axes.axvline(0, color="#333333", linewidth=1)
    for row, one in enumerate(drawn):
        difference, colour = one.difference, COLOURS[one.word]
        assert difference is not None
        if difference.low is not None and difference.high is not None:
            ends = [one.sign * difference.low, one.sign * difference.high]
            axes.plot(ends, [row, row], color=colour, linewidth=1.8)
        value = one.sign * difference.difference
        axes.plot([value], [row], MARKS[one.word], color=colour, markersize=6, linestyle="", label=one.word)
    axes.set_yticks(range(len(drawn)), [one.registered.claim.id for one in drawn], fontsize=8)
    axes.set_ylim(len(drawn) - 0.5, -0.5)
    axes.set_xlabel("difference in the published direction, with its 95 % interval")
    axes.grid(axis="x", alpha=0.25)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    named = dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    figure.legend(named.values(), named, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure
