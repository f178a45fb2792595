"""Files of results: what every cell measured, so that a run that was killed goes on, and a page keeps its numbers."""

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
        state: ``done``, ``failed`` or ``refused``.
        metrics: by label of the evaluate stage (empty where the recipe has one), then by name.
        evaluation: folders of the evaluate stages, by the same labels.
        seconds: that the run took.
        error: what went wrong, one line.
    """

    digest: str
    state: str = DONE
    metrics: dict[str, dict[str, float]] = field(default_factory=dict)
    evaluation: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    error: str = ""


@dataclass
class Results:
    """What all cells measured so far.

    Attributes:
        cells: by :attr:`vlcli.claims.measurements.Cell.key`.
        version: of the format.
    """

    cells: dict[str, Measured] = field(default_factory=dict)
    version: int = VERSION

    def of(self, cell: Cell, digest: str) -> Measured | None:
        """What a cell measured with this recipe; None where it has not run."""
        found = self.cells.get(cell.key)
        return found if found is not None and found.digest == digest else None

    def seconds(self, cell: Cell, otherwise: float) -> float:
        """How long a cell takes: as other seeds of its row did, else other rows of its recipe, else ``otherwise``."""
        for start in (f"{cell.recipe}:{cell.row} seed=", f"{cell.recipe}:"):
            took = [one.seconds for key, one in self.cells.items() if key.startswith(start) and one.state == DONE]
            took = sorted(second for second in took if second > 1)
            if took:
                return took[len(took) // 2]
        return otherwise


def find(name: str, output: Path) -> Path | None:
    """The file of results that a name means: of the folder, or the one below ``output``, or a JSON file itself.

    Args:
        name: ``reproduce`` (the folder that ``vlcli reproduce`` writes to), a path to it, or ``reproduction.json``.
        output: the folder of all runs.

    Returns:
        The file; None where the name means no results of claims.
    """
    path = Path(name).expanduser()
    if path.suffix == ".json":
        return path if path.is_file() else None
    return next((folder / FILE for folder in (path, output / name) if (folder / FILE).is_file()), None)


def read(folder: Path) -> Results:
    """The results in a folder; none where there is no file.

    Raises:
        DataError: the file is damaged.
    """
    return read_file(folder / FILE)


def beside(page: Path) -> Path:
    """The file of results that belongs to a page: ``reproduction.json`` of ``reproduction.md``."""
    return page.with_suffix(".json")


def read_file(file: Path) -> Results:
    """The results in a file; none where there is no file.

    Raises:
        DataError: the file is damaged.
    """
    if not file.exists():
        return Results()
    try:
        value: Any = json.loads(file.read_text(encoding="utf-8"))
        found = TypeAdapter(Results).validate_python(value, strict=False)
        if not isinstance(value, dict) or found.version != VERSION:
            raise ValueError(f"version {found.version}")
    except ValidationError as error:
        first = error.errors()[0]
        raise _damaged(file, f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise _damaged(file, str(error)) from error
    return found


def write(folder: Path, results: Results) -> Path:
    """Replace the file of results in one go."""
    return write_json(folder / FILE, TypeAdapter(Results).dump_python(results))


def publish(page: Path, results: Results) -> Path:
    """Write the finished cells beside the page that shows them, without the folders of the machine that ran them."""
    done = {key: one for key, one in sorted(results.cells.items()) if one.state == DONE}
    cells = {key: replace(one, evaluation={}, seconds=round(one.seconds, 1)) for key, one in done.items()}
    return write_json(beside(page), TypeAdapter(Results).dump_python(Results(cells)))


def _damaged(file: Path, got: str) -> DataError:
    hint = "restore the file, or delete it and run again: of rows whose run folders are there, none is trained again"
    return DataError("The results of claims are damaged.", where=str(file), got=got[:200], hint=hint)
