"""Tables and pages of runs in Python and in notebooks: ``vlcli.table("quickstart")``, ``vlcli.page("quickstart")``."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from vlcli.files import write_text
from vlcli.pages.report import ReportOptions, render
from vlcli.progress import Silent
from vlcli.tables.summary import Summary, summarise
from vlcli.tables.text import aligned, markdown
from vlcli.tools.run_folder import find_run, read_run
from vlcli.tools.run_tables import collect

__all__ = ["Page", "Table", "page", "table"]

_HEIGHT = 640  # pixels of a page in a notebook


@dataclass(frozen=True, repr=False)
class Table:
    """What runs measured; a notebook shows it, ``print`` prints it aligned.

    ``summary`` has means, intervals and differences by row and metric; ``summary.as_dict()`` is plain data.
    """

    summary: Summary

    def __repr__(self) -> str:
        return aligned(self.summary)

    def _repr_markdown_(self) -> str:
        return markdown(self.summary)


@dataclass(frozen=True, repr=False)
class Page:
    """The report of runs; a notebook shows it in a frame."""

    html: str

    def save(self, file: str | Path) -> Path:
        return write_text(Path(file), self.html)

    def __repr__(self) -> str:
        return f"<report of {len(self.html):,} characters: .save('report.html') writes it>"

    def _repr_html_(self) -> str:
        style = f"width:100%;height:{_HEIGHT}px;border:1px solid #ccc"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.html)}"></iframe>'


def table(
    *runs: str | Path, metrics: Sequence[str] = (), reference: str | None = None, output: str | Path = "runs"
) -> Table:
    """Returns what runs measured, as the verb ``table`` prints it.

    Args:
        runs: folders or names below ``output``, stages (``RUN/STAGE``), or a recipe's ``table.json``.
        metrics: names or patterns (``accuracy/*``); empty: those of the table.
        reference: label of the row that others are compared with.
        output: the folder of all runs.

    Raises:
        DataError: there is no such run.
        UsageError: no run has an evaluation, or there is no such metric or row.
    """
    return Table(summarise(collect([str(run) for run in runs], Path(output), reference), metrics))


def page(
    *runs: str | Path, samples: int = 36, model: bool = True, output: str | Path = "runs", device: str = "auto"
) -> Page:
    """Returns the report of one run or several, as the verb ``report`` writes it; DataError: there is no such run.

    Args:
        runs: folders, or names below ``output``.
        samples: of each group of evaluations; 0 leaves pictures out.
        model: show attention, which needs the trained models.
    """
    facts = [read_run(find_run(str(run), Path(output))) for run in dict.fromkeys(runs)]
    return Page(render(facts, ReportOptions(samples, model, device), Silent()))
