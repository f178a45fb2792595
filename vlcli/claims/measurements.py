"""Lists the rows with seeds that claims need to be run, each once however many claims ask for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vlcli.claims.load import Registered


@dataclass(frozen=True, order=True)
class Cell:
    """One row (its label) of a recipe (the registered name of a table) with one seed."""

    recipe: str
    row: str
    seed: int

    @property
    def command(self) -> str:
        """The command that runs this cell alone."""
        return f"vlcli run {shown(self.recipe, self.row)} seed={self.seed}"

    @property
    def key(self) -> str:
        """The name in the file of results."""
        return f"{self.recipe}:{self.row} seed={self.seed}"


def shown(recipe: str, row: str) -> str:
    """``RECIPE:ROW`` as one types it: quoted where the label has a space."""
    name = f"{recipe}:{row}"
    return f"'{name}'" if set(name) & set(" ()") else name


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
    return [Cell(one.small.recipe, row, seed) for seed in seeds_of(one, count) for row in one.small.rows]


def all_cells(claims: Iterable[Registered], count: int | None = None) -> list[Cell]:
    """Returns the cells of several claims, each once."""
    return list(dict.fromkeys(cell for one in claims for cell in cells_of(one, count)))
