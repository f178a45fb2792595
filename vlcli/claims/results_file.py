"""Reads and writes what every cell measured, so that a killed run goes on and a page keeps its numbers."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median_high
from typing import Literal

from vlcli.claims.load import Registered
from vlcli.files import write_json
from vlcli.tables.results import DONE, read_as


@dataclass(frozen=True, order=True)
class Cell:
    """One row (its label) of a recipe (the registered name of a table) with one seed."""

    recipe: str
    row: str
    seed: int

    @property
    def key(self) -> str:
        return f"{self.recipe}:{self.row} seed={self.seed}"


def seeds_of(one: Registered, count: int | None = None) -> list[int]:
    """Returns the seeds that decide a claim: as registered, or ``count`` of them; further ones where it has fewer.

    Seeds with which settings were chosen, or that judged under an earlier registration, are never among them.
    """
    seeds = one.seeds
    if count is None or count <= len(seeds):
        return seeds[:count]
    used = {*seeds, *one.file.settings_seeds, *(seed for earlier in one.file.earlier for seed in earlier.seeds)}
    following = (seed for seed in range(10**6) if seed not in used)
    return [*seeds, *(next(following) for _ in range(count - len(seeds)))]


def cells_of(one: Registered, count: int | None = None) -> list[Cell]:
    """Returns the cells that decide a claim, seed by seed; none where it cannot be tested in small."""
    if one.small is None:
        return []
    return [Cell(one.small.recipe, row, seed) for seed in seeds_of(one, count) for row in one.small.cells]


def all_cells(claims: Iterable[Registered], count: int | None = None) -> list[Cell]:
    """Returns the cells of several claims, each once."""
    return list(dict.fromkeys(cell for one in claims for cell in cells_of(one, count)))


FILE = "results.json"


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
    """What all cells measured so far, by :attr:`vlcli.claims.results_file.Cell.key`."""

    cells: dict[str, Measured] = field(default_factory=dict)
    version: Literal[1] = 1

    def of(self, cell: Cell, digest: str) -> Measured | None:
        """Returns what a cell measured with this recipe; None where it has not run."""
        measured = self.cells.get(cell.key)
        return measured if measured and measured.digest == digest else None

    def seconds(self, cell: Cell, otherwise: float) -> float:
        """Returns how long a cell takes: as other seeds of its row, else rows of its recipe, else ``otherwise``."""
        for start in (f"{cell.recipe}:{cell.row} seed=", f"{cell.recipe}:"):
            took = [one.seconds for key, one in self.cells.items() if key.startswith(start) and one.state == DONE]
            if longer := [seconds for seconds in took if seconds > 1]:
                return median_high(longer)
        return otherwise


def find(name: str, output: Path) -> Path | None:
    """Returns the file of results that a name means, or None.

    ``name`` is ``reproduce`` (a folder below ``output``, that of all runs), a path to it, or ``reproduction.json``.
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
    hint = "restore the file, or delete it and run again: of rows whose run folders are there, none is trained again"
    return read_as(Results, file, "The results of claims are damaged.", hint)


def write(file: Path, results: Results) -> Path:
    """Replaces a file of results in one go."""
    return write_json(file, asdict(results))


def publish(page: Path, results: Results) -> Path:
    """Writes the finished cells beside the page that shows them, without the folders of the machine that ran them."""
    done = ((key, one) for key, one in sorted(results.cells.items()) if one.state == DONE)
    cells = {key: replace(one, evaluation={}, seconds=round(one.seconds, 1)) for key, one in done}
    return write(beside(page), Results(cells))
