"""Records of a table: rows, the runs of each row, and the numbers that a paper published for them."""

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from vlcli.errors import DataError
from vlcli.files import write_json
from vlcli.recipe.locate import Published

# The file of a table's results in the folder of a run
FILE = "table.json"
DONE, FAILED, STOPPED, REFUSED, UNFINISHED = "done", "failed", "stopped", "refused", "unfinished"
"""States of a run: with metrics; ended by an error; interrupted; impossible, for the reason in ``error``; not begun."""
VERSION = 1
T = TypeVar("T")


@dataclass
class RunResults:
    """Results of one row of a table with one seed.

    Attributes:
        state: one of ``done``, ``failed``, ``stopped``, ``refused`` and ``unfinished``.
        metrics: by name, as the evaluate stage recorded them; with ``most_frequent`` and ``chance/NAME`` where the task
            has them. Metrics of several evaluate stages stand side by side as ``LABEL/METRIC``.
        evaluation: the folder of the evaluate stage, with ``predictions.jsonl``.
        evaluations: where there are several evaluate stages, the folder of each by its label.
    """

    seed: int | None
    state: str = DONE
    metrics: dict[str, float] = field(default_factory=dict)
    evaluation: Path | None = None
    error: str = ""
    evaluations: dict[str, Path] = field(default_factory=dict)

    def place(self, metric: str) -> tuple[str, str, Path | None]:
        """Return the label of a metric's evaluate stage (empty where there is only one), its name there, the folder."""
        label = max((one for one in self.evaluations if metric.startswith(f"{one}/")), key=len, default="")
        if not label:
            return "", metric, self.evaluation
        return label, metric.removeprefix(f"{label}/"), self.evaluations[label]

    def of(self, label: str) -> dict[str, float]:
        start = f"{label}/" if label else ""
        return {name.removeprefix(start): value for name, value in self.metrics.items() if name.startswith(start)}


@dataclass
class RowResults:
    """One row of a table.

    Attributes:
        label: unique in the table.
        published: numbers of the split that was measured.
        apart: published numbers of other splits, which are told and not compared.
        other: a system that the table does not run; its numbers are published ones alone.
        equal: by metric, the ends between which a measured number counts as equal to the published one, where somebody
            decided it beforehand.
        cell: where the row stands in a grid: one value per axis; empty where the table is no grid.
    """

    label: str
    runs: list[RunResults] = field(default_factory=list)
    published: dict[str, Published] = field(default_factory=dict)
    apart: dict[str, Published] = field(default_factory=dict)
    cell: tuple[str, ...] = ()
    other: bool = False
    equal: dict[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def told_apart(self) -> list[str]:
        numbers = [(metric.removesuffix(f" on {one.split}"), one) for metric, one in self.apart.items()]
        return [f"{self.label}: {one.told(metric)}" for metric, one in numbers]

    @property
    def done(self) -> list[RunResults]:
        return [run for run in self.runs if run.state == DONE and run.metrics]

    @property
    def error(self) -> str:
        """The first reason why the row lacks metrics or seeds; empty where every run ended well."""
        return next((run.error or run.state for run in self.runs if run.state != DONE), "")

    def values(self, metric: str) -> dict[int | None, float]:
        """Return the finite values of one metric by seed."""
        values = {run.seed: run.metrics[metric] for run in self.done if metric in run.metrics}
        return {seed: value for seed, value in values.items() if math.isfinite(value)}


@dataclass
class TableResults:
    """A table.

    Attributes:
        metrics: patterns of the metrics to show, in order (``accuracy``, ``accuracy/*``); empty: all of them.
        reference: label of the row that the others are compared with; in a grid also a value of an axis, and then each
            cell is compared with the cell of that value beside it; None: no comparison.
        axes: of a grid: the values of each axis by its name, in order; empty where the table is no grid.
    """

    title: str
    metrics: list[str] = field(default_factory=list)
    rows: list[RowResults] = field(default_factory=list)
    reference: str | None = None
    axes: dict[str, list[str]] = field(default_factory=dict)
    about: str = ""
    conclusions: list[str] = field(default_factory=list)

    def row(self, label: str) -> RowResults:
        """Return the row of this label, or raise KeyError."""
        return {row.label: row for row in reversed(self.rows)}[label]

    def reference_of(self, row: RowResults) -> RowResults | None:
        """Return the row that a row is compared with, itself if a reference; KeyError: the reference is no row."""
        if self.reference is None:
            return None
        axis = next((axis for axis, values in enumerate(self.axes.values()) if self.reference in values), None)
        if axis is None or any(one.label == self.reference for one in self.rows):
            return self.row(self.reference)
        cell = (*row.cell[:axis], self.reference, *row.cell[axis + 1 :])
        return next((one for one in self.rows if one.cell == cell), None)

    def as_dict(self, folder: Path | None = None) -> dict[str, Any]:
        """Return plain values for JSON; numbers that are not finite become strings.

        Evaluation folders below the parent of ``folder`` are written relative to it, so that runs can be moved.
        """
        return {"version": VERSION, **_plain(asdict(self), folder)}


def write_results(table: TableResults, path: Path, **more: Any) -> Path:
    """Write the table as JSON, with further keys of the document: statistics, for readers without vlcli."""
    return write_json(path, {**table.as_dict(path.parent), **more})


def read_results(path: Path) -> TableResults:
    """Read a table that :func:`write_results` wrote; DataError: the file is missing or damaged."""
    if not path.is_file():
        raise DataError("There is no table here.", where=str(path), hint="make one: vlcli table RUN")
    hint = "delete the file and run the recipe again: finished stages are not repeated"
    table = read_as(TableResults, path, "The table is damaged.", hint)
    for run in (run for row in table.rows for run in row.runs):
        run.evaluation = None if run.evaluation is None else path.parent / run.evaluation
        run.evaluations = {name: path.parent / folder for name, folder in run.evaluations.items()}
    return table


def read_as(kind: type[T], path: Path, what: str, hint: str) -> T:
    """Read a dataclass from a file of JSON; further keys are ignored. DataError(what): the file is damaged."""
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        first: Any = error.errors()[0] if isinstance(error, ValidationError) else {"loc": (), "msg": str(error)}
        got = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        raise DataError(what, where=str(path), got=got[:300], hint=hint) from error


def _plain(value: Any, folder: Path | None) -> Any:
    """Turn what JSON does not have into text: paths, see :meth:`TableResults.as_dict`, NaN and infinity."""
    if isinstance(value, Mapping):
        return {str(key): _plain(inner, folder) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner, folder) for inner in value]
    if isinstance(value, Path):
        path, home = value.resolve(), None if folder is None else folder.resolve()
        inside = home is not None and path.is_relative_to(home.parent)
        return Path(os.path.relpath(path, home)).as_posix() if inside else str(path)
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
