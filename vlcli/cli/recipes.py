"""The recipes that a command line names: one, or the rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    pass


def each(reference: str) -> list[str]:
    """The recipes that a name means: itself, or the rows of a table as ``TABLE:ROW``."""
    from vlcli.recipe.table import is_table, load_table

    if not is_table(reference):
        return [reference]
    table = load_table(reference, [])
    return [f"{table.reference}:{label}" for label in table.chosen]


def list_rows(name: str, as_json: bool) -> None:
    """The rows of a table: what each is, and what the paper measured."""
    from vlcli.cli import console
    from vlcli.recipe.table import load_table

    table = load_table(name, [], plugins=False)
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
