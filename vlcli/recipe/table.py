"""Loads tables: recipes with ``rows``, each of which is a recipe: ``load_table("irpe/table4").member("7")``."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from vlcli.errors import Problem, RecipeError, UsageError
from vlcli.plain import as_list
from vlcli.recipe import overrides
from vlcli.recipe.check import by_place
from vlcli.recipe.load import Loading, merged, no_such_row, resolve, with_row
from vlcli.recipe.locate import COUNTED, RecipeFile, Resolved, Row, locate, slug
from vlcli.recipe.rows import MOST_CELLS, OF_TABLES, Rows, has_rows, read_rows, select, too_many, without_tables_keys
from vlcli.recipe.schema import kind_of
from vlcli.recipe.yaml import Document, Path_, section

_NO_EFFECT = ("about", "paper", "extends", "table")  # keys that do not change what a row runs


@dataclass
class RowTable:
    """A recipe whose rows are run and compared.

    Attributes:
        document: the recipe merged with its parents, without any row.
        written: all rows; ``chosen``: labels of the selected ones, in order.
    """

    name: str
    reference: str
    document: Document
    sources: list[RecipeFile]
    written: Rows
    chosen: list[str]
    loading: Loading
    members: dict[str, Resolved] = field(default_factory=dict)

    @property
    def rows(self) -> dict[str, Row]:
        return {label: self.written.rows[label] for label in self.chosen}

    @property
    def title(self) -> str:
        title = section(self.document.value, "table").get("title")
        return str(title or self.document.value.get("about") or self.reference)

    def member(self, label: str, words: Iterable[str] = ()) -> Resolved:
        """Returns a row as a recipe, with further overrides. Raises RecipeError: all faults of structure at once."""
        words = tuple(words)
        if not words and label in self.members:
            return self.members[label]
        source = replace(self.sources[0], name=f"{self.reference}:{label}", row=label)
        row = self.written.rows[label]
        document, chain = with_row(source, self.document, self.sources, row)
        resolved = resolve(source, document, chain, replace(self.loading, words=(*self.loading.words, *words)), row)
        if not words:
            self.members[label] = resolved
        return resolved


def load_table(
    reference: str, words: Iterable[str] = (), rows: Iterable[str] = (), many: bool = False, **options: Any
) -> RowTable:
    """Loads a table and checks its rows against one another.

    Args:
        reference: the table's name or path; ``TABLE:7,8`` names some of its rows.
        words: overrides, as typed, for every row.
        rows: labels or patterns of rows; none: all.
        many: allows more than 1,000 rows.
        options: as for :func:`vlcli.recipe.load.load`.

    Raises:
        RecipeError: faults of the rows, each with its line.
        UsageError: no row has such a label, the recipe has no rows, or an override changes a key of the table.
    """
    words = list(words)
    for one in overrides.collect(words):
        if one.keys[0] in OF_TABLES:
            what = f"`{one.keys[0]}` belongs to the table: an override changes its rows alone."
            hint = _INSTEAD.get(one.keys[0], "change the file, or write one with `extends`")
            raise UsageError(what, where=one.origin, got=one.text, hint=hint)
    source = locate(reference)
    wanted = [*(source.row.split(",") if source.row else ()), *rows]
    table = replace(source, row="", name=source.table)
    document, chain = merged(table)
    if not has_rows(document):
        raise no_such_row(table, Rows(), wanted)
    written = read_rows(document)
    chosen, unknown = select(written.rows, wanted) if wanted else (list(written.rows), [])
    if unknown and not written.problems:
        raise no_such_row(table, written, unknown)
    if not wanted and written.cells > MOST_CELLS and not many:
        written.problems = [too_many(document, written.cells)]
    elif not written.problems:
        written.problems = list(_compared(table, document, written, chosen))
    if written.problems:
        raise RecipeError(sorted(written.problems, key=by_place), table.name)
    loading = Loading(tuple(words), **options)
    name = slug(table.name if table.tree is not None else document.value.get("name") or table.file.stem)
    return RowTable(name, table.name, document, chain, written, chosen, loading)


_INSTEAD = {"seeds": "--seeds N", "rows": "--rows A,B", "reference": "vlcli table NAME --reference ROW"}


def is_table(reference: str) -> bool:
    """Returns True if a name means a table or several rows of one."""
    source = locate(reference)
    document, _ = merged(replace(source, row="", name=source.table))
    return has_rows(document) and not (source.row and source.row in read_rows(document).rows)


def _compared(source: RecipeFile, document: Document, written: Rows, chosen: list[str]) -> Iterator[Problem]:
    base = _effect(Document(without_tables_keys(document.value)))
    seen: dict[str, str] = {}
    members = []
    for label in chosen:
        row = written.rows[label]
        merged_row, _ = with_row(replace(source, name=f"{source.name}:{label}", row=label), document, [source], row)
        effect = _effect(merged_row)
        other = seen.setdefault(effect, label)
        if fault := _of_effect(row, effect == base, other if other != label else "", bool(written.axes)):
            yield document.fault(row.path, fault[0], label, hint=fault[1])
        yield from _published(row, [merged_row.value], document)
        members.append(merged_row.value)
    whole = chosen == list(written.rows)  # of a part, no row may measure what another system published
    for row in written.others.values() if whole else ():
        yield from _published(row, members, document)


def _of_effect(row: Row, same: bool, other: str, cell: bool) -> tuple[str, str] | None:
    if other:
        return f"this row is like the row {other!r}", "leave one out, or change something else in it"
    if row.unchanged and not same:
        return "this row says `unchanged: true`, and it changes something", "leave one of both out"
    empty = all(not without(level.value) for level in row.levels)
    if same and not row.unchanged and not (cell and empty):
        hint = "say `unchanged: true` if the row is the recipe as it stands; vlcli show prints the recipe"
        return "this row changes nothing", hint
    return None


def without(value: dict[str, Any]) -> dict[str, Any]:
    """Returns the keys of a recipe that change what is run."""
    return {key: part for key, part in value.items() if key not in _NO_EFFECT}


def _effect(document: Document) -> str:
    value = without(document.value)
    if stages := section(value, "stages"):
        value["stages"] = {name: stage for name, stage in stages.items() if stage is not None}
    return json.dumps(value, sort_keys=True, default=str)


def _published(row: Row, members: list[dict[str, Any]], document: Document) -> Iterator[Problem]:
    # a row's own recipe, or those of all rows: whichever measures what the number is of
    cells = set()
    for key, number in list(row.published.items()):
        metric = key.removesuffix(f" on {number.split}")
        takers = [one for one in members if takes(metric, *metrics_of(one))] or members
        measured = [_measured_split(one, _label_of(metric, one) or metric.partition("/")[0]) for one in takers]
        chosen = measured.index(number.split) if number.split in measured else 0
        row.published[key] = replace(number, measures=measured[chosen])
        if number.split == COUNTED:
            continue
        (labels, patterns), label = metrics_of(takers[chosen]), _label_of(metric, takers[chosen])
        paths: list[Path_] = [(*row.path, "published", key), ("published", row.label, key), (*row.path, key)]
        path = next((one for one in paths if one in document.places), paths[0])
        cell = (label, metric.removeprefix(f"{label}/"), number.split)
        if cell in cells:
            yield document.fault(path, "two published numbers stand for one cell", metric)
        elif (label or row.published[key].is_compared) and not takes(metric, labels, patterns):
            shown = patterns or ["*"]
            names = [f"{label}/{one}" for label in labels for one in shown] if len(labels) > 1 else shown
            what = "the table has no such metric, with which this published number could be compared"
            yield document.fault(path, what, metric, ", ".join(names))
        cells.add(cell)


def _label_of(metric: str, value: dict[str, Any]) -> str:
    labels, _ = metrics_of(value)
    return next((one for one in labels if metric.startswith(f"{one}/")), labels[0] if len(labels) == 1 else "")


def _measured_split(value: dict[str, Any], label: str) -> str:
    """Returns the split that the evaluate stage of a label, or of this name, reads; empty if that is the task's."""
    stage = section(value, "stages", section(value, "table", "rows").get(label, label))
    specs = [one for one in as_list(stage.get("data")) if isinstance(one, dict)]
    split = stage.get("split") or next((one.get("split") for one in specs), None)
    return "+".join(str(one) for one in as_list(split or [one["file"] for one in specs if "file" in one]))


def metrics_of(value: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the labels of a recipe's ``table`` (else its evaluate stages) and the patterns of its metrics."""
    layout, stages = section(value, "table"), section(value, "stages")
    if isinstance(layout.get("rows"), dict):
        gone = [None, *(name for name, stage in stages.items() if stage is None)]
        patterns = [one for one in as_list(layout.get("metrics")) if isinstance(one, str)]
        return [label for label, name in layout["rows"].items() if name not in gone], patterns
    return [name for name, stage in stages.items() if stage is not None and kind_of(name, stage) == "evaluate"], []


def takes(metric: str, labels: list[str], patterns: list[str]) -> bool:
    """Returns True if a table has a metric: ``LABEL/METRIC``; with one label, ``METRIC`` too."""
    label = next((one for one in labels if metric.startswith(f"{one}/")), None)
    if label is None and len(labels) != 1:
        return False
    metric = metric.removeprefix(f"{label}/")
    return not patterns or any(fnmatchcase(metric, pattern) for pattern in patterns)
