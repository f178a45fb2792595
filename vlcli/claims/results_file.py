"""Reads and writes what every cell measured, so that a killed run goes on and a page keeps its numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vlcli.claims.measurements import Cell
from vlcli.errors import DataError
from vlcli.files import write_json
from vlcli.tables.results import DONE

FILE = "results.json"
VERSION = 1


@dataclass
class Measured:
    """What one cell measured.

    Attributes:
        digest: of the row as a recipe; a result of another recipe counts for nothing.
        metrics: by label of the evaluate stage (empty where the recipe has one), then by name.
        evaluation: folders of the evaluate stages, by the same labels.
    """

    digest: str
    state: str = DONE
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    evaluation: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""


@dataclass
class Results:
    """What all cells measured so far, by :attr:`vlcli.claims.measurements.Cell.key`."""

    cells: dict[str, Measured] = field(default_factory=dict)
    version: int = VERSION

    def of(self, cell: Cell, digest: str) -> Measured | None:
        """Returns what a cell measured with this recipe; None where it has not run."""
        measured = self.cells.get(cell.key)
        return measured if measured is not None and measured.digest == digest else None

    def seconds(self, cell: Cell, otherwise: float) -> float:
        """Returns how long a cell takes: as other seeds of its row, else rows of its recipe, else ``otherwise``."""
        for start in (f"{cell.recipe}:{cell.row} seed=", f"{cell.recipe}:"):
            took = [one.seconds for key, one in self.cells.items() if key.startswith(start) and one.state == DONE]
            took = sorted(second for second in took if second > 1)
            if took:
                return took[len(took) // 2]
        return otherwise


def find(name: str, output: Path) -> Path | None:
    """Returns the file of results that a name means; None where it means none.

    Args:
        name: ``reproduce`` (the folder that ``vlcli reproduce`` writes to), a path to it, or ``reproduction.json``.
        output: the folder of all runs.
    """
    path = Path(name).expanduser()
    if path.suffix == ".json":
        return path if path.is_file() else None
    return next((folder / FILE for folder in (path, output / name) if (folder / FILE).is_file()), None)


def beside(page: Path) -> Path:
    """Returns the file of results that belongs to a page: ``reproduction.json`` of ``reproduction.md``."""
    return page.with_suffix(".json")


def read(file: Path) -> Results:
    """Reads a file of results; none where there is no file."""
    if not file.exists():
        return Results()
    try:
        value: Any = json.loads(file.read_text(encoding="utf-8"))
        results = TypeAdapter(Results).validate_python(value, strict=False)
        if not isinstance(value, dict) or results.version != VERSION:
            raise ValueError(f"version {results.version}")
        return results
    except ValidationError as error:
        first = error.errors()[0]
        cause: Exception = error
        got = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
    except (OSError, ValueError, RecursionError) as error:
        cause, got = error, str(error)
    hint = "restore the file, or delete it and run again: of rows whose run folders are there, none is trained again"
    raise DataError("The results of claims are damaged.", where=str(file), got=got[:200], hint=hint) from cause


def write(file: Path, results: Results) -> Path:
    """Replaces a file of results in one go."""
    return write_json(file, TypeAdapter(Results).dump_python(results))


def publish(page: Path, results: Results) -> Path:
    """Writes the finished cells beside the page that shows them, without the folders of the machine that ran them."""
    done = {key: one for key, one in sorted(results.cells.items()) if one.state == DONE}
    cells = {key: replace(one, evaluation={}, seconds=round(one.seconds, 1)) for key, one in done.items()}
    return write(beside(page), Results(cells))
