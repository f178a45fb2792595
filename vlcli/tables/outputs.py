"""Writes the files of a table: JSON, CSV, LaTeX, Markdown, and the forest plot as SVG and PNG."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from vlcli.errors import ComponentError, UsageError
from vlcli.files import write_text, written
from vlcli.tables.figures import forest
from vlcli.tables.heat import heat_map
from vlcli.tables.results import TableResults, write_results
from vlcli.tables.summary import Summary, summarise
from vlcli.tables.text import comma_separated, latex, markdown

# Formats of text files; aligned text and JSON are the terminal's
FORMATS: Mapping[str, Callable[[Summary], str]] = {"csv": comma_separated, "latex": latex, "markdown": markdown}
ENDINGS = {"csv": ".csv", "latex": ".tex", "markdown": ".md"}
PICTURES = (".svg", ".png")
PLOTS = "pip install 'vlcli[plots]'"
# Dots per inch of a PNG
DOTS = 120


def write_table(table: TableResults, folder: Path, stem: str = "table", summary: Summary | None = None) -> list[Path]:
    """Write every file of a table into one folder, each whole or not at all.

    ``STEM.json`` holds the results and the statistics, ``STEM.csv`` one line per row and metric, ``STEM.tex`` and
    ``STEM.md`` the table as it is printed, ``STEM.svg`` and ``STEM.png`` the forest plot, or the heat map of a grid;
    these two only where matplotlib is installed. UsageError: see :func:`vlcli.tables.summary.summarise`.
    """
    path = folder / f"{stem}.json"
    try:
        summary = summary or summarise(table)
    except UsageError:
        write_results(table, path)  # what was measured is kept in any case
        raise
    files = [write_results(table, path, statistics=summary.as_dict())]
    files += [write_text(folder / f"{stem}{ENDINGS[name]}", render(summary)) for name, render in FORMATS.items()]
    if summary.rows and has_plots():
        files += [write_plot(summary, folder / f"{stem}{ending}") for ending in PICTURES]
    return files


def has_plots() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def write_plot(summary: Summary, path: Path, metric: str | None = None) -> Path:
    """Write the forest plot of a table, or the heat map of a grid, as SVG or PNG.

    Equal figures make equal bytes, and text in an SVG stays text. ``metric`` is that of a heat map; None: the first.

    Raises:
        UsageError: ``path`` ends neither in ``.svg`` nor in ``.png``.
        ComponentError: matplotlib is not installed.
    """
    form = path.suffix.lower()
    if form not in PICTURES:
        expected = " or ".join(PICTURES)
        raise UsageError("A plot is written as SVG or PNG.", where=str(path), got=path.suffix, expected=expected)
    if not has_plots():
        raise ComponentError("Plots need matplotlib, which is not installed.", where=str(path), hint=PLOTS)
    import matplotlib

    figure = heat_map(summary, metric) if len(summary.axes) == 2 else forest(summary)
    metadata = {"Software": None} if form == ".png" else {"Date": None, "Creator": None}
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "vlcli"}), written(path) as beside:
        figure.savefig(beside, format=form[1:], dpi=DOTS, metadata=metadata)
    return path
