"""The recipes that a command line names: one, or the rows of a table; with a word on names that went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vlcli.recipe.resolved import Resolved
    from vlcli.recipe.table import RowTable


def load_recipe(reference: str, words: list[str] | None = None, **options: Any) -> Resolved:
    """:func:`vlcli.recipe.load.load`; what a recipe that went is called now is told on stderr."""
    from vlcli.recipe.load import load

    resolved = load(reference, words, **options)
    tell(resolved.notes)
    return resolved


def load_rows(reference: str, words: list[str] | None = None, **options: Any) -> RowTable:
    """:func:`vlcli.recipe.table.load_table`, likewise."""
    from vlcli.recipe.table import load_table

    table = load_table(reference, words or [], **options)
    tell(table.notes)
    return table


def each(reference: str) -> list[str]:
    """The recipes that a name means: itself, or the rows of a table as ``TABLE:ROW``."""
    from vlcli.recipe.table import is_table

    if not is_table(reference):
        return [reference]
    table = load_rows(reference)
    return [f"{table.reference}:{label}" for label in table.chosen]


def tell(notes: list[str]) -> None:
    """Each line on stderr."""
    from vlcli.cli import console

    for line in notes:
        console.err(line)


def list_rows(name: str, as_json: bool) -> None:
    """The rows of a table: what each is, and what the paper measured."""
    from vlcli.cli import console

    table = load_rows(name, plugins=False)
    rows: list[dict[str, Any]] = []
    for label, row in table.rows.items():
        published = {metric: mean for metric, (mean, _) in row.published.items()}
        mark = label == table.written.reference
        rows.append(
            {"name": f"{table.reference}:{label}", "about": row.about, "reference": mark, "published": published}
        )
    if as_json:
        skipped = [{"cell": cell, "why": why} for cell, why in table.written.skipped.items()]
        console.out_json({"recipe": table.reference, "title": table.title, "rows": rows, "skipped": skipped})
        return
    metrics = list(dict.fromkeys(metric for row in rows for metric in row["published"]))
    cells = [
        [row["name"] + (" (reference)" if row["reference"] else ""), row["about"]]
        + [f"{row['published'][metric]:g}" if metric in row["published"] else "-" for metric in metrics]
        for row in rows
    ]
    console.table(["row", "about", *(f"published {metric}" for metric in metrics)], cells, table.title)
