"""A table as text: aligned columns, Markdown, LaTeX with booktabs, and CSV.

Aligned text, Markdown and LaTeX show the same blocks. A table of one or two metrics is one block with everything; a
table of more metrics has a block of measured numbers, one of published numbers and one of differences.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from vlcli.tables.cells import EMPTY, Block, decided, number, shorter, show_contrast, show_estimate
from vlcli.tables.grid import matrix
from vlcli.tables.statistics import Contrast
from vlcli.tables.summary import Line, Summary

NARROW = 2
"""Metrics up to which one block shows everything."""
CSV_COLUMNS = [
    *("row", "kind", "seeds", "metric", "mean", "low", "high", "over", "count", "published", "published_spread"),
    *("difference", "difference_low", "difference_high", "paired_by", "pairs", "p", "p_holm", "seeds_to_decide"),
    "error",
]
_ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
} | {letter: "\\" + letter for letter in "&%$#_{}"}


Cell = tuple[str, Callable[[Line], str]]
"""Head of a column, and how it shows a line."""


def blocks(summary: Summary) -> list[Block]:
    """What text, Markdown and LaTeX show: of a grid a matrix for each metric, else rows of numbers."""
    if len(summary.axes) == 2:
        return [matrix(summary, name) for name in summary.metrics]
    shown: list[tuple[str, list[Cell]]]
    one = len(summary.metrics) == 1
    if len(summary.metrics) <= NARROW:
        cells = [cell for name in summary.metrics for cell in _everything(summary, name, one)]
        shown = [(summary.title, cells)]
    else:
        names = summary.metrics
        shown = [(summary.title, [(name, _measured(name)) for name in names])]
        if summary.has("published"):
            shown.append(("published", [(name, _published(name)) for name in names]))
        if summary.has("contrasts"):
            shown.append((f"difference to {summary.reference}", [(name, _difference(name)) for name in names]))
    made = [_block(summary, title, cells, not number) for number, (title, cells) in enumerate(shown)]
    return [block for block in made if block.rows]


def _block(summary: Summary, title: str, cells: list[Cell], first: bool) -> Block:
    seeds: list[Cell] = []
    if first and any(line.seeds > 1 for line in summary.lines):
        seeds = [("seeds", lambda line: str(line.seeds) if line.kind != "baseline" else "")]
    errors: list[Cell] = (
        [("", lambda line: shorter(line.error))] if first and any(x.error for x in summary.lines) else []
    )
    made = Block(title, ["", *(head for head, _ in [*seeds, *cells, *errors])])
    for line in summary.lines:
        texts = [show(line) for _, show in [*seeds, *cells, *errors]]
        if first or any(text not in ("", EMPTY) for text in texts):
            label = f"{line.label} (reference)" if line.kind == "reference" and first else line.label
            made.rows.append((line.kind, [label, *texts]))
    return made


def _everything(summary: Summary, name: str, one: bool) -> list[Cell]:
    """All columns of one metric."""
    start = "" if one else f"{name}: "
    cells: list[Cell] = [(name, _measured(name))]
    if any(name in line.published for line in summary.lines):
        cells.append((f"{start}published", _published(name)))
    if any(name in line.contrasts for line in summary.lines):
        cells.append((f"{start}difference", _difference(name)))
        cells.append((f"{start}p (Holm)", lambda line: _p(line.contrasts.get(name))))
    if any(_undecided(line.contrasts.get(name)) for line in summary.lines):
        cells.append((f"{start}seeds to decide", lambda line: _seeds(line.contrasts.get(name))))
    return cells


def _measured(name: str) -> Callable[[Line], str]:
    return lambda line: show_estimate(line.estimates.get(name))


def _published(name: str) -> Callable[[Line], str]:
    def show(line: Line) -> str:
        found = line.published.get(name)
        if found is None:
            return EMPTY if line.kind != "baseline" else ""
        return number(found.value) + ("" if found.spread is None else f" ± {number(found.spread)}")

    return show


def _difference(name: str) -> Callable[[Line], str]:
    return lambda line: show_contrast(line.contrasts.get(name)) if line.kind == "row" else ""


def _undecided(found: Contrast | None) -> bool:
    return found is not None and found.over == "seeds" and not decided(found)


def _p(found: Contrast | None) -> str:
    if found is None or found.holm is None:
        return ""
    return f"{found.holm:.3f}" if found.holm >= 0.001 else "<.001"


def _seeds(found: Contrast | None) -> str:
    if found is None or not _undecided(found):
        return ""
    return EMPTY if found.seeds is None else str(max(found.seeds, found.count + 1))


def aligned(summary: Summary) -> str:
    """Columns aligned by spaces."""
    lines = [*summary.conclusions, *[""][: len(summary.conclusions)]]
    for block in blocks(summary):
        rows = [block.columns, *(cells for _, cells in block.rows)]
        widths = [max(len(row[place]) for row in rows) for place in range(len(block.columns))]
        lines += [block.title] if block.title else []
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        lines += [*block.notes, ""]
    return "\n".join([*lines, *(f"{note[0].upper()}{note[1:]}." for note in summary.notes)]) + "\n"


def markdown(summary: Summary) -> str:
    """Tables of Markdown, with the title above and the notes below."""
    parts = [f"{_plain(line)}\n" for line in summary.conclusions]
    for block in blocks(summary):
        parts += [f"**{_plain(block.title)}**\n"] if block.title else []
        rows = [block.columns, ["---", *(["---:"] * (len(block.columns) - 1))], *(cells for _, cells in block.rows)]
        parts.append("\n".join("| " + " | ".join(map(_plain, row)) + " |" for row in rows) + "\n")
        parts += [f"{_plain(note)}\n" for note in block.notes]
    return "\n".join([*parts, *(f"{_plain(note[0].upper() + note[1:])}.\n" for note in summary.notes)])


def _plain(text: str) -> str:
    """Without what would end a cell or begin markup."""
    return "".join("\\" + letter if letter in "\\|*_`<[" else letter for letter in " ".join(text.split()))


def latex(summary: Summary) -> str:
    """Tabulars with booktabs, baselines below a rule."""
    lines = [r"% \usepackage{booktabs}"]
    for block in blocks(summary):
        lines += [f"% {' '.join(block.title.split())}"] if block.title else []
        lines += [r"\begin{tabular}{l" + "r" * (len(block.columns) - 1) + "}", r"\toprule"]
        lines += [_latex_row(block.columns), r"\midrule"]
        for number_, (kind, cells) in enumerate(block.rows):
            begins = kind == "baseline" and number_ and block.rows[number_ - 1][0] != "baseline"
            lines += [r"\midrule"] if begins else []
            lines.append(_latex_row(cells))
        lines += [r"\bottomrule", r"\end{tabular}", *(f"% {' '.join(note.split())}" for note in block.notes)]
    lines += [f"% {' '.join(note.split())}" for note in summary.notes]
    return "\n".join(lines) + "\n"


def _latex_row(cells: Sequence[str]) -> str:
    return " & ".join(map(escape, cells)) + r" \\"


def escape(text: str) -> str:
    """A text that LaTeX sets as it stands."""
    return "".join(_ESCAPES.get(letter, letter) for letter in " ".join(text.split()))


def comma_separated(summary: Summary) -> str:
    """One line per row and metric, with every number in full; see :data:`CSV_COLUMNS`."""
    page = io.StringIO()
    writer = csv.writer(page, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for line in summary.lines:
        for name in summary.metrics:
            if line.kind != "baseline" or name in line.estimates:
                writer.writerow(["" if value is None else value for value in _values(line, name)])
    return page.getvalue()


def _values(line: Line, name: str) -> list[object]:
    e, p, c = line.estimates.get(name), line.published.get(name), line.contrasts.get(name)
    measured = [None] * 5 if e is None else [e.mean, e.low, e.high, e.over, e.count]
    published = [None] * 2 if p is None else [p.value, p.spread]
    shown = [None] * 8 if c is None else [c.difference, c.low, c.high, c.over, c.count, c.p, c.holm, c.seeds]
    return [_cell(line.label), line.kind, line.seeds, _cell(name), *measured, *published, *shown, _cell(line.error)]


def _cell(text: str) -> str:
    """A text that spreadsheets do not take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text
