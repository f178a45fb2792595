"""Claims, cells and measured results of invented papers, without any run."""

from __future__ import annotations

from pathlib import Path

from vlcli.claims.load import Registered, read
from vlcli.claims.results_file import Cell, Measured

HEAD = """\
paper: mine
title: A paper of mine
settings_seeds: [100]
seeds: [0, 1, 2, 3, 4]
power: {difference: 0.1, deviation: 0.05}
worlds: {board: Pictures of one shape on a board of nine cells.}
claims:
"""


def claim(
    name: str, rows: tuple[str, str], direction: str = "higher", table: int = 1, recipe: str = "mine/table"
) -> str:
    """One claim as YAML; its published numbers agree with the direction."""
    why = "The question asks for places."
    numbers = "[80.9, 79.9]" if direction == "higher" else "[79.9, 80.9]"
    return f"""\
  - id: mine-{name}
    claim: The row {rows[0]} is {direction} than the row {rows[1]}.
    table: {table}
    rows: [published {rows[0]}, published {rows[1]}]
    metric: top-1
    published: {numbers}
    direction: {direction}
    small: {{recipe: {recipe}, rows: [{rows[0]}, {rows[1]}], metric: top1, world: board, why: {why}}}
"""


UNTESTED = """\
  - id: mine-large
    claim: The large model is better than the small.
    table: 1
    rows: [large, small]
    metric: top-1
    published: [82.4, 80.9]
    direction: higher
    small: none
    reason: There is one size of model in small.
"""


def registered(tmp_path: Path, *claims: str) -> list[Registered]:
    """Claims as read from a file."""
    file = tmp_path / "claims.yaml"
    file.write_text(HEAD + "".join(claims))
    return read(file)


def looker(values: dict[str, list[float]], **more: float):
    """Measured accuracies by row, one per seed from 0 on; a text in place of the list is the error of a row.

    ``more`` holds metrics that are equal for all rows and seeds.
    """

    def look(cell: Cell) -> Measured | None:
        found = values.get(cell.row)
        if isinstance(found, str):
            return Measured("", "failed", error=found)
        if found is None or cell.seed >= len(found):
            return None
        return Measured("", metrics={"": {"top1": found[cell.seed], **more}}, seconds=10.0)

    return look
