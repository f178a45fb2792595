"""Reads and checks the rows of a table, which a recipe writes under ``rows``.

A row is a mapping of a recipe's keys that is merged over the recipe as a child over its parent. If the keys under
``rows`` are axes instead (each a mapping from labels to such changes), the rows are all combinations, and the label of
a row is ``LABEL/LABEL``.
"""

import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from vlcli.errors import Problem, did_you_mean, shown
from vlcli.plain import as_list
from vlcli.recipe.locate import Published, Row, slug
from vlcli.recipe.schema import Recipe
from vlcli.recipe.yaml import Document, Path_, section

# Keys that make a recipe a table
OF_TABLES = ("rows", "reference", "skip", "published", "published_in", "others", "seeds")
# A grid of more rows needs ``--yes``
MOST_CELLS = 1000
_OF_ROWS = ("published", "unchanged")
_ON = " on "  # between a published metric and its split
_OF_PUBLISHED = ("table", "page", "split", "unit")  # keys of `published_in`
# Keys of a table that its rows cannot have
NOT_IN_ROWS = ("rows", "reference", "skip", "seeds", "published_in", "others", "schema", "name", "jobs", "hang_timeout")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+()-]*\Z")
_EXPECTED = "a letter or digit, then letters, digits, spaces and . _ + ( ) -"
_RECIPE_KEYS = {info.alias or name for name, info in Recipe.model_fields.items()} | set(_OF_ROWS)


@dataclass
class Rows:
    """The rows of a recipe, checked as far as that needs no other recipe.

    Attributes:
        rows: by label, in order; in a grid, without skipped cells.
        axes: labels of each axis; empty if the rows are no grid.
        skipped: reasons of skipped cells, by label.
        cells: number of rows of the whole grid.
        others: systems that the paper compares with and no row builds: published numbers alone.
    """

    document: Document = field(default_factory=lambda: Document({}))
    rows: dict[str, Row] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    others: dict[str, Row] = field(default_factory=dict)
    references: list[str] = field(default_factory=list)
    seeds: int = 1
    cells: int = 0
    problems: list[Problem] = field(default_factory=list)

    def fault(self, path: Path_, what: str, got: str = "", expected: str = "", hint: str = "") -> None:
        self.problems.append(self.document.fault(path, what, got, expected, hint))


def has_rows(document: Document) -> bool:
    """Returns True if a merged recipe is a table."""
    return isinstance(document.value, dict) and document.value.get("rows") is not None


def read_rows(document: Document) -> Rows:
    """Reads the rows of a merged recipe that has the key ``rows``."""
    table = Rows(document)
    written = document.value["rows"]
    if not isinstance(written, dict) or not written:
        what, expected = "rows are a mapping from labels to what each row changes", "LABEL: {model: {...}}"
        table.fault(("rows",), what, shown(written, 60), expected)
        return table
    axes = _axes(written, table)
    if axes is None:
        _plain(written, table)
    elif not table.problems:
        _grid(axes, table)
    folders: dict[str, str] = {}
    for label, row in table.rows.items():
        other = folders.setdefault(slug(label).lower(), label)
        if other != label:
            what = f"this label differs from {other!r} only in signs or case: both runs would have one folder"
            table.fault(row.path, what, label)
    _beside(table)
    return table


def select(labels: Iterable[str], wanted: Iterable[str]) -> tuple[list[str], list[str]]:
    """Returns the labels that match patterns (``7``, ``irpe/*``), in order, and the patterns without a match."""
    labels, wanted = list(labels), list(wanted)
    chosen = [one for one in labels if any(one == word or fnmatchcase(one, word) for word in wanted)]
    unknown = [word for word in wanted if not any(one == word or fnmatchcase(one, word) for one in labels)]
    return chosen, unknown


def without_tables_keys(value: dict[str, Any]) -> dict[str, Any]:
    """Returns a recipe without the keys that make it a table."""
    return {key: part for key, part in value.items() if key not in OF_TABLES}


def _axes(written: dict[str, Any], table: Rows) -> dict[str, dict[str, Any]] | None:
    kinds = {name: _kind_of(value) for name, value in written.items()}
    if "axis" not in kinds.values():
        return None
    near = (did_you_mean(key, _RECIPE_KEYS, cutoff=0.75) for row in written.values() for key in row)
    if len(kinds) == 1 and any(near):
        return None
    if "row" in kinds.values():  # the axes are likely rows with a misspelt key, or labels are keys of recipes
        for axis, key in [(name, key) for name in kinds if kinds[name] == "axis" for key in written[name]]:
            hint = did_you_mean(key, _RECIPE_KEYS) or "all of `rows` are rows, or all are axes"
            what = f"{key!r} is no key of a recipe, as those of other rows are"
            table.fault(("rows", axis, key), what, hint=hint)
        return {}
    for name in (name for name, kind in kinds.items() if kind == "nothing"):
        table.fault(("rows", name), "an axis has at least one label", "nothing")
    if len(kinds) == 1:
        what, expected = "a grid has two axes or more", "rows: {AXIS: {LABEL: {...}}, AXIS: {LABEL: {...}}}"
        table.fault(("rows", next(iter(kinds))), what, "one", expected)
    return {name: value for name, value in written.items() if kinds[name] == "axis"}


def _kind_of(value: Any) -> str:
    if not value:
        return "nothing"
    if not isinstance(value, dict) or set(value) & _RECIPE_KEYS:
        return "row"
    return "axis" if all(one is None or isinstance(one, dict) for one in value.values()) else "row"


def _plain(written: dict[str, Any], table: Rows) -> None:
    for label, value in written.items():
        path: Path_ = ("rows", label)
        if value is None and len(written) > 1 and path not in table.document.places:
            continue
        if (row := _row(label, value, path, table)) is not None:
            table.rows[label] = row
    table.cells = len(table.rows)


def _grid(axes: dict[str, dict[str, Any]], table: Rows) -> None:
    levels: dict[str, dict[str, Row]] = {axis: {} for axis in axes}
    for axis, values in axes.items():
        for label, value in values.items():
            path: Path_ = ("rows", axis, label)
            if isinstance(value, dict) and "published" in value:
                what = "a published number belongs to a cell, not to one of its axes"
                hint = "published: {LABEL/LABEL: {METRIC: NUMBER}} beside `rows`"
                table.fault((*path, "published"), what, hint=hint)
                continue
            if (row := _row(label, value, path, table)) is not None:
                levels[axis][label] = row
    table.axes = {axis: tuple(labels) for axis, labels in levels.items()}
    table.cells = math.prod(map(len, levels.values()))
    if table.cells > 100 * MOST_CELLS:
        table.problems.append(too_many(table.document, table.cells))
        return
    for cell in itertools.product(*(rows.values() for rows in levels.values())):
        parts = tuple(row.label for row in cell)
        documents = tuple(row.levels[0] for row in cell)
        path = next((row.path for row in reversed(cell) if row.levels[0].value), ("rows",))
        about = "; ".join(row.about for row in cell if row.about)
        table.rows["/".join(parts)] = Row("/".join(parts), parts, path, documents, about)
    _skip(table)


def too_many(document: Document, cells: int) -> Problem:
    """Returns the fault of a very large grid."""
    got, expected = f"{cells:,} rows", f"at most {MOST_CELLS:,}"
    hint = "leave cells out by `skip`, run some by --rows, or say --yes"
    return document.fault(("rows",), "the grid is very large", got, expected, hint)


def _row(label: str, value: Any, path: Path_, table: Rows) -> Row | None:
    before = len(table.problems)
    if not _LABEL.match(label) or label.endswith(" "):
        table.fault(path, "this cannot be the label of a row", shown(label), _EXPECTED)
    value = {} if value is None else value
    if not isinstance(value, dict):
        table.fault(path, "a row is a mapping", shown(value, 60), "keys of a recipe, such as model and stages")
        return None
    for key in value:
        if key in NOT_IN_ROWS:
            table.fault((*path, key), "this key belongs to the table, not to a row")
    unchanged = value.get("unchanged", False)
    if not isinstance(unchanged, bool):
        table.fault((*path, "unchanged"), "this value does not fit", shown(unchanged), "true")
    sound = len(table.problems) == before
    published = _numbers(value.get("published"), (*path, "published"), table)
    if not sound:
        return None
    changes = {key: part for key, part in value.items() if key not in _OF_ROWS}
    depth = len(path)
    places = {key[depth:]: where for key, where in table.document.places.items() if key[:depth] == path}
    return Row(label, (label,), path, (Document(changes, places),), str(value.get("about") or ""), published, unchanged)


def _numbers(written: Any, path: Path_, table: Rows) -> dict[str, Published]:
    published: dict[str, Published] = {}
    if written is not None and not section(written):
        what, expected = "published numbers are a mapping from metrics to numbers", "{accuracy: 0.72}"
        table.fault(path, what, shown(written, 60), expected)
    for key, value in section(written).items():
        metric, _, split = key.partition(_ON)
        numbers = value if isinstance(value, list) else [value]
        split = split or _source(table, metric, "split")
        name = metric if split == _source(table, metric, "split") else f"{metric}{_ON}{split}"
        if len(numbers) not in (1, 2) or not all(_is_number(one) for one in numbers):
            what = "a published number is a number, or [mean, spread]"
            table.fault((*path, key), what, shown(value, 60), "0.72 or [0.72, 0.003]")
        elif not split:
            what, expected = "a published number needs the split that it is of", "published_in: {split: SPLIT}"
            table.fault((*path, key), what, key, expected, f'or name it behind the metric: "{metric}{_ON}SPLIT"')
        elif name in published:
            table.fault((*path, key), "two published numbers stand for one cell", f"{metric} on {split}")
        else:
            spread = float(numbers[1]) if len(numbers) == 2 else None
            more = {word: found for word in ("unit", "table", "page") if (found := _source(table, metric, word))}
            published[name] = Published(float(numbers[0]), spread, split, **more)
    return published


def _source(table: Rows, metric: str, word: str) -> str:
    """Returns what ``published_in`` says of a number: for the whole table, or by metric, label or label's metric."""
    value = section(table.document.value, "published_in").get(word)
    if not isinstance(value, dict):
        return "" if value is None else str(value)
    names = (metric, metric.partition("/")[0], metric.rpartition("/")[2])
    return next((str(value[name]) for name in names if value.get(name) is not None), "")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _skip(table: Rows) -> None:
    written = table.document.value.get("skip")
    reasons = written if isinstance(written, dict) else {str(one): "" for one in as_list(written)}
    for index, (pattern, why) in enumerate(reasons.items()):
        path: Path_ = ("skip", pattern) if isinstance(written, dict) else ("skip", index)
        chosen, unknown = select(table.rows, [pattern])
        if unknown and pattern not in table.skipped:
            what = "no cell of the grid has this label"
            table.fault(path, what, pattern, "LABEL/LABEL, or a pattern such as */LABEL")
        for label in chosen:
            table.skipped[label] = str(why or "")
            del table.rows[label]


def _beside(table: Rows) -> None:
    value = table.document.value
    for key in _mapping(table, "published_in", "{table: 2, split: test}"):
        if key not in _OF_PUBLISHED:
            table.fault(("published_in", key), f"unknown key {key!r}", expected=", ".join(_OF_PUBLISHED))
    table.references = [str(label) for label in as_list(value.get("reference"))]
    values = [value for axis in table.axes.values() for value in axis]  # of a grid: the cell beside each
    unknown = [label for label in table.references if label not in [*table.rows, *values]]
    if unknown and not table.problems:
        expected = ", ".join(list(table.rows)[:20])
        hint = "a reference is a row of the same table" if ":" in unknown[0] else ""
        table.fault(("reference",), "no row has this label", unknown[0], expected, hint)
    if (seeds := value.get("seeds")) is not None and not (_is_number(seeds) and seeds in range(1, 1001)):
        table.fault(("seeds",), "this value does not fit", shown(seeds, 60), "a whole number from 1 to 1,000")
    else:
        table.seeds = int(seeds or 1)
    _others(table)
    for label, numbers in _mapping(table, "published", "LABEL: {METRIC: NUMBER}").items():
        read = _numbers(numbers, ("published", label), table)
        if label in table.rows:
            for metric in table.rows[label].published.keys() & read.keys():
                table.fault(("published", label, metric), "two published numbers stand for one cell", metric)
            table.rows[label].published.update(read)
        elif label not in table.skipped and not table.problems:
            what, expected = "no row has this label", ", ".join(list(table.rows)[:20])
            table.fault(("published", label), what, label, expected)


def _mapping(table: Rows, key: str, expected: str) -> dict[str, Any]:
    value = table.document.value.get(key)
    if value is not None and not isinstance(value, dict):
        table.fault((key,), "this value does not fit", shown(value, 60), expected)
    return section(value)


def _others(table: Rows) -> None:
    for label, numbers in _mapping(table, "others", "LABEL: {METRIC: NUMBER}").items():
        path: Path_ = ("others", label)
        if not _LABEL.match(label) or label.endswith(" "):
            table.fault(path, "this cannot be the label of a row", shown(label), _EXPECTED)
        elif label in table.rows:
            table.fault(path, "a row of the table has this label", label, hint="give it `published`")
        else:
            table.others[label] = Row(label, (label,), path, (), published=_numbers(numbers or 0, path, table))
