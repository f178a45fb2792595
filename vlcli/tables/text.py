"""Writes a table as aligned text, Markdown, LaTeX with booktabs, and CSV."""

import csv
import io
import re
from collections import Counter
from collections.abc import Callable

from vlcli.tables.cells import EMPTY, Block, number, shorter, show_contrast, show_estimate, star
from vlcli.tables.statistics import Contrast
from vlcli.tables.summary import Line, Summary, grid_of

# Metrics up to which one block shows everything
NARROW = 2
CSV_COLUMNS = [
    *("row", "kind", "seeds", "metric", "mean", "low", "high", "over", "count", "published", "published_spread"),
    "published_split",
    *("difference", "difference_low", "difference_high", "paired_by", "pairs", "p", "p_holm", "seeds_to_decide"),
    "error",
]
_ESCAPES = str.maketrans(
    {letter: "\\" + letter for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "<": r"\textless{}", ">": r"\textgreater{}"}
)


Cell = tuple[str, Callable[[Line, str], str], str]
"""Head of a column, a function that writes a line's number of a metric, and the metric."""


def blocks(summary: Summary) -> list[Block]:
    """Return the blocks of text, Markdown and LaTeX: of a grid a matrix for each metric, else rows of numbers.

    One or two metrics are one block; more have blocks of measured numbers, of published ones and of differences.
    """
    names = summary.metrics
    if len(summary.axes) == 2:
        shown = [_matrix(summary, name) for name in names]
    elif len(names) <= NARROW:
        cells = [cell for name in names for cell in _everything(summary, name)]
        shown = [_block(summary, summary.title, cells, first=True)]
    else:
        shown = [
            _block(summary, summary.title, [(name, _measured, name) for name in names], first=True),
            _block(summary, "published", [(f"{name}{_split(summary, name)}", _published, name) for name in names]),
            _block(summary, f"difference to {summary.reference}", [(name, _difference, name) for name in names]),
        ]
    return [block for block in [*shown, verdicts(summary)] if block.rows]


def verdicts(summary: Summary) -> Block:
    """Return published numbers, what counts as equal, what was measured, and the verdict; no rows where none has it."""
    block = Block("compared with the published numbers", ["", "metric", "published", "counts as equal", "measured", ""])
    for line in summary.lines:
        for name, one in line.compared.items():
            ends = " to ".join(map(number, one.range))
            cells = [line.label, name, number(one.published.value), ends, show_estimate(one.measured), one.word]
            block.rows.append((line.kind, cells))
    counts = Counter(one.word for line in summary.lines for one in line.compared.values())
    block.notes = [", ".join(f"{count} {word}" for word, count in counts.items())] if counts else []
    return block


def _matrix(summary: Summary, metric: str) -> Block:
    """Return a matrix with rows of the first axis, columns of the second; a lost cell refers to its reason."""
    lines = grid_of(summary)
    (row_name, rows), (column_name, columns) = summary.axes.items()
    block = Block(f"{metric}: {row_name} x {column_name}", ["", *columns])
    reasons: dict[str, int] = {}
    for row in rows:
        cells = [row]
        for column in columns:
            line = lines.get((row, column))
            if line is None:
                cells.append(EMPTY)
            elif metric in line.estimates:
                cells.append(show_estimate(line.estimates[metric]) + star(line.contrasts.get(metric)))
            else:
                cells.append(f"- ({reasons.setdefault(line.error or 'no such metric', len(reasons) + 1)})")
        block.rows.append(("row", cells))
    block.notes = [f"({mark}) {reason}" for reason, mark in reasons.items()]
    return block


def _block(summary: Summary, title: str, cells: list[Cell], first: bool = False) -> Block:
    if first and any(line.seeds > 1 for line in summary.lines):
        cells = [("seeds", lambda line, _: "" if line.kind == "baseline" else str(line.seeds), ""), *cells]
    if first and any(line.error for line in summary.lines):
        cells = [*cells, ("", lambda line, _: shorter(line.error), "")]
    block = Block(title, ["", *(head for head, *_ in cells)])
    for line in summary.lines:
        texts = [show(line, name) for _, show, name in cells]
        if first or any(text not in ("", EMPTY) for text in texts):
            label = f"{line.label} (reference)" if line.kind == "reference" and first else line.label
            block.rows.append((line.kind, [label, *texts]))
    return block


def _everything(summary: Summary, name: str) -> list[Cell]:
    start = "" if len(summary.metrics) == 1 else f"{name}: "
    cells: list[Cell] = [(name, _measured, name)]
    if any(name in line.published for line in summary.lines):
        cells.append((f"{start}published{_split(summary, name)}", _published, name))
    if any(name in line.contrasts for line in summary.lines):
        cells += [(f"{start}difference", _difference, name), (f"{start}p (Holm)", _p, name)]
    if any(_undecided(line.contrasts.get(name)) for line in summary.lines):
        cells.append((f"{start}seeds to decide", _seeds, name))
    return cells


def _measured(line: Line, name: str) -> str:
    return show_estimate(line.estimates.get(name))


def _split(summary: Summary, name: str) -> str:
    splits = dict.fromkeys(line.published[name].split for line in summary.lines if name in line.published)
    return f" ({', '.join(splits)})" if any(splits) else ""


def _published(line: Line, name: str) -> str:
    published = line.published.get(name)
    if published is None:
        return EMPTY if line.kind != "baseline" else ""
    return number(published.value) + ("" if published.spread is None else f" ± {number(published.spread)}")


def _difference(line: Line, name: str) -> str:
    return show_contrast(line.contrasts.get(name)) if line.kind == "row" else ""


def _undecided(contrast: Contrast | None) -> bool:
    return contrast is not None and contrast.over == "seeds" and not star(contrast)


def _p(line: Line, name: str) -> str:
    contrast = line.contrasts.get(name)
    if contrast is None or contrast.holm is None:
        return ""
    return f"{contrast.holm:.3f}" if contrast.holm >= 0.001 else "<.001"


def _seeds(line: Line, name: str) -> str:
    contrast = line.contrasts.get(name)
    if contrast is None or not _undecided(contrast):
        return ""
    return EMPTY if contrast.seeds is None else str(max(contrast.seeds, contrast.count + 1))


def aligned(summary: Summary) -> str:
    """Return columns aligned by spaces."""
    lines = [*summary.conclusions, *[""][: len(summary.conclusions)]]
    for block in blocks(summary):
        rows = [block.columns, *(cells for _, cells in block.rows)]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [block.title] if block.title else []
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
        lines += [*block.notes, ""]
    return "\n".join([*lines, *(f"{note[0].upper()}{note[1:]}." for note in summary.notes)]) + "\n"


def markdown(summary: Summary) -> str:
    """Return tables of Markdown, with the title above and the notes below."""
    parts = [f"{_plain(line)}\n" for line in summary.conclusions]
    for block in blocks(summary):
        parts += [f"**{_plain(block.title)}**\n"] if block.title else []
        rows = [block.columns, ["---", *(["---:"] * (len(block.columns) - 1))], *(cells for _, cells in block.rows)]
        parts.append("\n".join("| " + " | ".join(map(_plain, row)) + " |" for row in rows) + "\n")
        parts += [f"{_plain(note)}\n" for note in block.notes]
    return "\n".join([*parts, *(f"{_plain(note[0].upper() + note[1:])}.\n" for note in summary.notes)])


def _plain(text: str) -> str:
    return re.sub(r"([\\|*_`<\[])", r"\\\1", " ".join(text.split()))


def latex(summary: Summary) -> str:
    """Return tabulars with booktabs, baselines below a rule."""
    lines = [r"% \usepackage{booktabs}"]
    for block in blocks(summary):
        lines += [f"% {' '.join(block.title.split())}"] if block.title else []
        lines += [r"\begin{tabular}{l" + "r" * (len(block.columns) - 1) + "}", r"\toprule"]
        lines += [_latex_row(block.columns), r"\midrule"]
        for number_, (kind, cells) in enumerate(block.rows):
            if kind == "baseline" and number_ and block.rows[number_ - 1][0] != "baseline":
                lines.append(r"\midrule")
            lines.append(_latex_row(cells))
        lines += [r"\bottomrule", r"\end{tabular}", *(f"% {' '.join(note.split())}" for note in block.notes)]
    lines += [f"% {' '.join(note.split())}" for note in summary.notes]
    return "\n".join(lines) + "\n"


def _latex_row(cells: list[str]) -> str:
    return " & ".join(" ".join(cell.split()).translate(_ESCAPES) for cell in cells) + r" \\"


def comma_separated(summary: Summary) -> str:
    """Return one line per row and metric, with every number in full; see :data:`CSV_COLUMNS`."""
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
    published = [None] * 3 if p is None else [p.value, p.spread, p.split]
    shown = [None] * 8 if c is None else [c.difference, c.low, c.high, c.over, c.count, c.p, c.holm, c.seeds]
    return [_cell(line.label), line.kind, line.seeds, _cell(name), *measured, *published, *shown, _cell(line.error)]


def _cell(text: str) -> str:
    """Quote a text that spreadsheets would take for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t") else text
