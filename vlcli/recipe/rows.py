"""The rows of a table: what a recipe writes under ``rows``, and each row as a recipe of its own.

A row is a mapping of a recipe's keys that is merged over the recipe as ``extends`` merges a child over its parent.
Where the keys under ``rows`` are axes instead (each a mapping from labels to such changes), the rows are all
combinations, and the label of a row is ``LABEL/LABEL``.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from vlcli.errors import Problem, shown
from vlcli.plain import as_list
from vlcli.recipe.components import dotted
from vlcli.recipe.resolved import Published, Row
from vlcli.recipe.schema import Recipe
from vlcli.recipe.yaml import Document, Path_

OF_TABLES = ("rows", "reference", "skip", "published", "seeds")
"""Keys that make a recipe a table; a row of it has none of them."""
MOST_CELLS = 1000
"""Rows of a grid beyond which ``--yes`` must be given."""
_OF_ROWS = ("published", "unchanged")
NOT_IN_ROWS = ("rows", "reference", "skip", "seeds", "schema", "name", "jobs", "hang_timeout")
"""Keys of a table that its rows cannot have."""
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+()-]*\Z")
_EXPECTED = "a letter or digit, then letters, digits, spaces and . _ + ( ) -"
_RECIPE_KEYS = {info.alias or name for name, info in Recipe.model_fields.items()} | set(_OF_ROWS)


@dataclass
class Rows:
    """What a recipe writes about its rows, read and checked as far as that needs no other recipe.

    Attributes:
        rows: by label, in order; in a grid, without the cells that are skipped.
        axes: labels of each axis; empty where the rows are no grid.
        skipped: why a cell of the grid is left out, by label.
        reference: the row that others are compared with, or None.
        seeds: how many seeds a run of the table takes.
        cells: rows of the whole grid.
        problems: every fault, with its line.
    """

    rows: dict[str, Row] = field(default_factory=dict)
    axes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    reference: str | None = None
    seeds: int = 1
    cells: int = 0
    problems: list[Problem] = field(default_factory=list)


def has_rows(document: Document) -> bool:
    """Whether a merged recipe is a table."""
    return isinstance(document.value, dict) and document.value.get("rows") is not None


def read_rows(document: Document) -> Rows:
    """The rows of a merged recipe.

    Args:
        document: with the key ``rows``.
    """
    found = Rows()
    written = document.value["rows"]
    if not isinstance(written, dict) or not written:
        what, expected = "rows are a mapping from labels to what each row changes", "LABEL: {model: {...}}"
        found.problems.append(_fault(document, ("rows",), what, shown(written, 60), expected))
        return found
    axes = _axes(written, document, found)
    if axes is None:
        _plain(written, document, found)
    elif not found.problems:
        _grid(axes, document, found)
    _unlike_folders(document, found)
    _beside(document, found)
    return found


def select(labels: Iterable[str], wanted: Iterable[str]) -> tuple[list[str], list[str]]:
    """The labels that patterns (``7``, ``irpe/*``) mean, in the table's order, and the patterns that mean none."""
    labels, wanted = list(labels), list(wanted)
    chosen = [one for one in labels if any(one == word or fnmatchcase(one, word) for word in wanted)]
    unknown = [word for word in wanted if not any(one == word or fnmatchcase(one, word) for one in labels)]
    return chosen, unknown


def without_tables_keys(value: dict[str, Any]) -> dict[str, Any]:
    """A recipe without the keys that make it a table."""
    return {key: part for key, part in value.items() if key not in OF_TABLES}


def _axes(written: dict[str, Any], document: Document, found: Rows) -> dict[str, dict[str, Any]] | None:
    """The axes, where ``rows`` is a grid: no key below them is a key of recipes; None where it lists rows."""
    kinds = {name: _kind_of(value) for name, value in written.items()}
    if "axis" not in kinds.values() or (len(kinds) == 1 and "axis" in kinds.values() and _near(written)):
        return None
    if "row" in kinds.values():
        return _mixed(written, kinds, document, found)
    for name in (name for name, kind in kinds.items() if kind == "nothing"):
        found.problems.append(_fault(document, ("rows", name), "an axis has at least one label", "nothing"))
    if len(kinds) == 1:
        what, expected = "a grid has two axes or more", "rows: {AXIS: {LABEL: {...}}, AXIS: {LABEL: {...}}}"
        found.problems.append(_fault(document, ("rows", next(iter(kinds))), what, "one", expected))
    return {name: value for name, value in written.items() if kinds[name] == "axis"}


def _kind_of(value: Any) -> str:
    """What stands below a key of ``rows``: a row, an axis, or nothing (which is either)."""
    if not value:
        return "nothing"
    if not isinstance(value, dict) or set(value) & _RECIPE_KEYS:
        return "row"
    return "axis" if all(_is_level(one) for one in value.values()) else "row"


def _near(written: dict[str, Any]) -> bool:
    return any(difflib.get_close_matches(key, _RECIPE_KEYS, 1, 0.75) for value in written.values() for key in value)


def _mixed(written: dict[str, Any], kinds: dict[str, str], document: Document, found: Rows) -> dict[str, Any]:
    """Rows and axes in one mapping: the axes are likely rows with a misspelt key, or labels are keys of recipes."""
    for name, kind in kinds.items():
        for key in written[name] if kind == "axis" else ():
            close = difflib.get_close_matches(key, _RECIPE_KEYS, 1)
            hint = f"did you mean {close[0]!r}?" if close else "all of `rows` are rows, or all are axes"
            what = f"{key!r} is no key of a recipe, as those of other rows are"
            found.problems.append(_fault(document, ("rows", name, key), what, hint=hint))
    return {}


def _is_level(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _plain(written: dict[str, Any], document: Document, found: Rows) -> None:
    for label, value in written.items():
        path: Path_ = ("rows", label)
        if value is None and len(written) > 1 and path not in document.places:
            continue
        level = _level(label, value, path, document, found)
        if level is not None:
            changes, about, published, unchanged = level
            found.rows[label] = Row(label, (label,), path, (changes,), about, published, unchanged)
    found.cells = len(found.rows)


def _grid(axes: dict[str, dict[str, Any]], document: Document, found: Rows) -> None:
    levels: dict[str, dict[str, Any]] = {axis: {} for axis in axes}
    for axis, values in axes.items():
        for label, value in values.items():
            path: Path_ = ("rows", axis, label)
            if isinstance(value, dict) and "published" in value:
                what = "a published number belongs to a cell, not to one of its axes"
                hint = "published: {LABEL/LABEL: {METRIC: NUMBER}} beside `rows`"
                found.problems.append(_fault(document, (*path, "published"), what, hint=hint))
                continue
            level = _level(label, {} if value is None else value, path, document, found)
            if level is not None:
                levels[axis][label] = (path, level)
    found.axes = {axis: tuple(found_ones) for axis, found_ones in levels.items()}
    found.cells = math.prod(len(found_ones) for found_ones in levels.values())
    if found.cells > 100 * MOST_CELLS:
        found.problems.append(too_many(document, found.cells))
        return
    for cell in itertools.product(*(values.items() for values in levels.values())):
        parts = tuple(label for label, _ in cell)
        documents = tuple(level[0] for _, (_, level) in cell)
        about = "; ".join(level[1] for _, (_, level) in cell if level[1])
        path = next((path for _, (path, level) in reversed(cell) if level[0].value), ("rows",))
        found.rows["/".join(parts)] = Row("/".join(parts), parts, path, documents, about)
    _skip(document, found)


def too_many(document: Document, cells: int) -> Problem:
    """The fault of a grid that nobody can have meant."""
    got, expected = f"{cells:,} rows", f"at most {MOST_CELLS:,}"
    hint = "leave cells out by `skip`, run some by --rows, or say --yes"
    return Problem("rows", "the grid is very large", document.place(("rows",)), got, expected, hint)


def _level(label: str, value: Any, path: Path_, document: Document, found: Rows) -> Any:
    """One mapping of changes, checked: the document to merge, about, published numbers, whether it says `unchanged`."""
    problems = []
    if not _LABEL.match(label) or label.endswith(" "):
        problems.append(_fault(document, path, "this cannot be the label of a row", shown(label), _EXPECTED))
    if value is None:
        value = {}
    if not isinstance(value, dict):
        expected = "keys of a recipe, such as model and stages"
        found.problems += [*problems, _fault(document, path, "a row is a mapping", shown(value, 60), expected)]
        return None
    for key in value:
        if key in NOT_IN_ROWS:
            what = "this key belongs to the table, not to a row"
            problems.append(_fault(document, (*path, key), what))
    published, faults = _numbers(value.get("published"), (*path, "published"), document)
    unchanged = value.get("unchanged", False)
    if not isinstance(unchanged, bool):
        problems.append(_fault(document, (*path, "unchanged"), "this value does not fit", shown(unchanged), "true"))
    found.problems += problems + faults
    if problems:
        return None
    changes = {key: part for key, part in value.items() if key not in _OF_ROWS}
    depth = len(path)
    places = {place[depth:]: where for place, where in document.places.items() if place[:depth] == path}
    return Document(changes, places), str(value.get("about") or ""), published, bool(unchanged)


def _numbers(written: Any, path: Path_, document: Document) -> tuple[dict[str, Published], list[Problem]]:
    """Published numbers by metric: a number, or its mean and spread."""
    if written is None:
        return {}, []
    if not isinstance(written, dict) or not written:
        what, expected = "published numbers are a mapping from metrics to numbers", "{accuracy: 0.72}"
        return {}, [_fault(document, path, what, shown(written, 60), expected)]
    found: dict[str, Published] = {}
    problems = []
    for metric, given in written.items():
        numbers = given if isinstance(given, list) else [given]
        if len(numbers) not in (1, 2) or not all(_is_number(one) for one in numbers):
            what = "a published number is a number, or [mean, spread]"
            problems.append(_fault(document, (*path, metric), what, shown(given, 60), "0.72 or [0.72, 0.003]"))
        else:
            found[metric] = float(numbers[0]), float(numbers[1]) if len(numbers) == 2 else None
    return found, problems


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _skip(document: Document, found: Rows) -> None:
    """Take out the cells that ``skip`` names: labels or patterns, each with a reason where it is a mapping."""
    written = document.value.get("skip")
    if written is None:
        return
    given = written if isinstance(written, dict) else {str(one): "" for one in as_list(written)}
    for index, (pattern, why) in enumerate(given.items()):
        path: Path_ = ("skip", pattern) if isinstance(written, dict) else ("skip", index)
        chosen, unknown = select(found.rows, [pattern])
        if unknown and pattern not in found.skipped:
            what = "no cell of the grid has this label"
            found.problems.append(_fault(document, path, what, pattern, "LABEL/LABEL, or a pattern such as */LABEL"))
        for label in chosen:
            found.skipped[label] = str(why or "")
            del found.rows[label]


def _unlike_folders(document: Document, found: Rows) -> None:
    """Run folders are called after labels: two labels that differ only in signs would share one."""
    from vlcli.recipe.locate import slug

    folders: dict[str, str] = {}
    for label, row in found.rows.items():
        other = folders.setdefault(slug(label).lower(), label)
        if other != label:
            what = f"this label differs from {other!r} only in signs or case: both runs would have one folder"
            found.problems.append(_fault(document, row.path, what, label))


def _beside(document: Document, found: Rows) -> None:
    """The keys beside ``rows``: the reference, the seeds, and published numbers by label."""
    reference, seeds, published = (document.value.get(key) for key in ("reference", "seeds", "published"))
    if reference is not None:
        found.reference = str(reference)
        values = [value for axis in found.axes.values() for value in axis]  # of a grid: the cell beside each
        if found.reference not in [*found.rows, *values] and not found.problems:
            expected = ", ".join(list(found.rows)[:20])
            found.problems.append(_fault(document, ("reference",), "no row has this label", found.reference, expected))
    if isinstance(seeds, int) and seeds >= 1:
        found.seeds = seeds
    if published is None:
        return
    if not isinstance(published, dict):
        expected = "LABEL: {METRIC: NUMBER}"
        found.problems.append(
            _fault(document, ("published",), "this value does not fit", shown(published, 60), expected)
        )
        return
    for label, numbers in published.items():
        read, faults = _numbers(numbers, ("published", label), document)
        found.problems += faults
        if label in found.rows:
            found.rows[label].published.update(read)
        elif label not in found.skipped and not found.problems:
            what, expected = "no row has this label", ", ".join(list(found.rows)[:20])
            found.problems.append(_fault(document, ("published", label), what, label, expected))


def _fault(document: Document, path: Path_, what: str, got: str = "", expected: str = "", hint: str = "") -> Problem:
    return Problem(dotted(path), what, document.place(path), got, expected, hint)
