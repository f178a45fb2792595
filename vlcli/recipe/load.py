"""Loads a recipe: finds its file, merges it over its parents, applies overrides, checks the schema."""

import copy
import difflib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vlcli.errors import ComponentError, Problem, RecipeError, UsageError
from vlcli.plain import comma_list
from vlcli.recipe import defaults, merge, overrides, yaml
from vlcli.recipe import trust as trusting
from vlcli.recipe.check import by_place, check_structure
from vlcli.recipe.locate import RecipeFile, Resolved, Row, locate, registered_file, slug
from vlcli.recipe.rows import Rows, has_rows, read_rows, without_tables_keys
from vlcli.recipe.schema import Recipe, kind_of
from vlcli.recipe.validate import of_document
from vlcli.recipe.yaml import Document, section
from vlcli.registry import load_file

__all__ = ["Loading", "about", "from_mapping", "load", "locate", "read_chain", "registered_file", "slug"]

_ABOUT = re.compile(r"^about: *(.+)$", re.MULTILINE)
_ROWS = re.compile(r"^rows:", re.MULTILINE)


@dataclass(frozen=True)
class Loading:
    """Arguments of :func:`load` behind the name.

    Attributes:
        verb: the stage kind of the verb, if it is one: its only stage takes relative overrides.
        only: the stage of ``--only``, which takes them too.
        trust: run the files of ``plugins:`` even if the user does not trust them.
        deep: with faults of structure, report the faults of components' parameters (imports the components).
    """

    words: tuple[str, ...] = ()
    verb: str | None = None
    only: str | None = None
    trust: bool = False
    plugins: bool = True
    deep: bool = False


def about(reference: str) -> str:
    """Reads the ``about`` of a registered recipe from its file alone; empty if it has none."""
    with suppress(UsageError, ComponentError, OSError, UnicodeDecodeError):
        source = locate(reference)
        if source.row:
            return str(merged(source)[0].value.get("about") or "")
        text = source.file.read_text(encoding="utf-8")
        words = line[1].strip().strip("\"'") if (line := _ABOUT.search(text)) else ""
        return f"{words} (table: vlcli ls {reference})" if _ROWS.search(text) else words
    return ""


def read_chain(source: RecipeFile) -> tuple[Document, list[RecipeFile]]:
    """Returns a recipe's document merged over its parents', and all files, its own first.

    Raises RecipeError: a parent is missing, parents form a circle, or a file is not a mapping.
    """
    document, chain = merged(source)
    merge.drop_null_stages(document)
    return document, chain


def merged(source: RecipeFile, within: tuple[RecipeFile, ...] = ()) -> tuple[Document, list[RecipeFile]]:
    """Returns a merged recipe with its ``rows`` and null stages (of a row, the row alone), and all files.

    ``within`` are the recipes that extend it, outermost first.
    """
    if source.row:
        document, chain, _ = merged_row(source, within)
        return document, chain
    document = _mapping(source)
    parent = document.value.get("extends")
    if parent is None:
        return document, [source]
    base, chain = _above(parent, document.place(("extends",)), source, within)
    return merge.merge(base, document), [source, *chain]


def merged_row(source: RecipeFile, within: tuple[RecipeFile, ...] = ()) -> tuple[Document, list[RecipeFile], Row]:
    """Returns a row of a table as a recipe, all files, and the row as it is written.

    A row's ``extends`` replaces that of the table's file; a row that extends one of the same table is merged over that
    row alone, which includes the table's file. Raises RecipeError: a row is not well formed; UsageError: no such row.
    """
    table, chain = merged(replace(source, row="", name=source.table), within)
    written = read_rows(table) if has_rows(table) else Rows()
    if written.problems:
        raise RecipeError(sorted(written.problems, key=by_place), source.table)
    row = written.rows.get(source.row)
    if row is None:
        raise no_such_row(source, written, [source.row])
    document, chain = with_row(source, table, chain, row, within)
    return document, chain, row


def with_row(
    source: RecipeFile, table: Document, chain: list[RecipeFile], row: Row, within: tuple[RecipeFile, ...] = ()
) -> tuple[Document, list[RecipeFile]]:
    """Returns a row merged over its table (or over what the row extends), and all files."""
    level = next((one for one in reversed(row.levels) if one.value.get("extends") is not None), None)
    if level is not None:
        name, line = level.value["extends"], level.place(("extends",))
        base, above = _above(name, line, source, within)
        parent = _parent(name, source, line)
        beside = parent.row and parent.file.resolve() == source.file.resolve()
        table = base if beside else merge.merge(base, _mapping(source))
        chain = [source, *above]
    document = Document(without_tables_keys(table.value), table.places)
    for one in row.levels:
        document = merge.merge(document, one)
    return document, chain


def no_such_row(source: RecipeFile, written: Rows, labels: list[str]) -> UsageError:
    """Returns the error for labels that no row has."""
    where, got = str(source.file), ", ".join(labels)
    if not written.cells:
        return UsageError("This recipe has no rows.", where=where, got=got, hint=f"name it alone: {source.table}")
    if (why := written.skipped.get(labels[0])) is not None:
        return UsageError("This cell of the grid is left out by `skip`.", where=where, got=got, expected=why)
    close = difflib.get_close_matches(labels[0], list(written.rows), n=1)
    hint = f"did you mean {source.table}:{close[0]}?" if close else f"see all rows: vlcli ls {source.table}"
    return UsageError(
        "The table has no such row.", where=where, got=got, expected=comma_list(written.rows, 20), hint=hint
    )


def _above(
    parent: Any, line: str, child: RecipeFile, within: tuple[RecipeFile, ...]
) -> tuple[Document, list[RecipeFile]]:
    if not isinstance(parent, str):
        problem = Problem("extends", "a parent is a name or a path", where=line, got=repr(parent))
        raise RecipeError([problem], (within or (child,))[0].name)
    following, open_ones = _parent(parent, child, line), (*within, child)
    if any(following.file.resolve() == one.file.resolve() and following.row == one.row for one in open_ones):
        circle = " -> ".join([one.name for one in open_ones] + [following.name])
        raise RecipeError([Problem("extends", "recipes extend one another in a circle", where=line, got=circle)])
    return merged(following, open_ones)


def _parent(name: str, child: RecipeFile, line: str) -> RecipeFile:
    try:
        return locate(name, child)
    except (ComponentError, UsageError) as error:
        error.where = line
        raise


def _mapping(source: RecipeFile) -> Document:
    document = yaml.read(source.file)
    if not isinstance(document.value, dict):
        got = "nothing" if document.value is None else type(document.value).__name__
        problem = Problem("", "a recipe is a mapping with the key 'stages'", where=str(source.file), got=got)
        raise RecipeError([problem], source.name)
    return document


def load(reference: str, words: Sequence[str] | None = None, **options: Any) -> Resolved:
    """Loads and checks a recipe.

    Args:
        reference: registered name or path.
        words: overrides, as typed.
        options: further attributes of :class:`Loading`.

    Raises:
        ComponentError: a file of ``plugins:`` is not trusted, is not there, or raises.
        RecipeError: every fault of structure at once.
        UsageError: an override is off.
    """
    source = locate(reference)
    loading = Loading(tuple(words or ()), **options)
    if source.row:
        document, chain, row = merged_row(source)
        return resolve(source, document, chain, loading, row)
    document, chain = merged(source)
    if has_rows(document):
        raise _is_table(source, read_rows(document))
    return resolve(source, document, chain, loading)


def resolve(
    source: RecipeFile, document: Document, chain: list[RecipeFile], loading: Loading, row: Row | None = None
) -> Resolved:
    """Applies overrides, defaults and named data sets to a copy of a merged recipe (or row), and checks it."""
    document = Document(copy.deepcopy(document.value), dict(document.places))
    gone = [name for name, stage in section(document.value, "stages").items() if row and stage is None]
    merge.drop_null_stages(document)
    changed, unclear = _change(document, loading, gone)
    ran = _load_plugins(document, chain, loading.trust) if loading.plugins else []
    unclear += merge.expand_datasets(document)
    recipe, problems = check_structure(document)
    problems += unclear
    if problems or recipe is None:
        known = {problem.key for problem in problems}
        others = [fault for fault in of_document(document) if fault.key not in known] if loading.deep else []
        raise RecipeError(sorted([*problems, *others], key=by_place) if loading.deep else problems, source.name)
    folder = source.name
    if source.tree is None:
        folder = recipe.name or Path(source.table).stem
        folder += f"-{source.row}" if source.row else ""
    return Resolved(slug(folder), source.name, recipe, document, chain, changed, ran, row)


def _is_table(source: RecipeFile, written: Rows) -> Exception:
    if written.problems:
        return RecipeError(sorted(written.problems, key=by_place), source.name)
    expected = ", ".join(f"{source.name}:{label}" for label in list(written.rows)[:5])
    return UsageError(
        f"This recipe is a table of {len(written.rows)} rows; name one of them.",
        where=str(source.file),
        got=source.name,
        expected=expected + (", ..." if len(written.rows) > 5 else ""),
        hint=f"see all rows: vlcli ls {source.name}; run all: vlcli run {source.name}",
    )


def from_mapping(name: str, value: dict[str, Any], words: list[str] | None = None) -> Resolved:
    """Checks a recipe made by vlcli itself (``vlcli eval TASK``); ``words`` are overrides, as typed."""
    document = Document(value, {(): "command line"})
    resolved = resolve(RecipeFile(name, Path(), Path()), document, [], Loading(tuple(words or ()), plugins=False))
    return replace(resolved, words=[])  # so that its folder is called as it is


def _change(document: Document, loading: Loading, gone: Sequence[str] = ()) -> tuple[list[str], list[Problem]]:
    # Overrides of `defaults` come first, all others change the stages that `defaults` is merged into. Those of stages
    # that a row takes out of its table (`gone`) concern the other rows.
    removed = [("stages", name) for name in gone]
    every = [one for one in overrides.collect(list(loading.words)) if one.keys[:2] not in removed]
    changed = {one.text: _apply(document, one, loading) for one in every if one.keys[0] == defaults.KEY}
    problems = defaults.expand(document)
    changed |= {one.text: _apply(document, one, loading) for one in every if one.keys[0] != defaults.KEY}
    return [changed[one.text] for one in every], problems


def _apply(document: Document, override: overrides.Override, loading: Loading) -> str:
    roots = [info.alias or name for name, info in Recipe.model_fields.items()]
    stages = section(document.value, "stages")
    of_verb = [name for name, stage in stages.items() if loading.verb is None or kind_of(name, stage) == loading.verb]
    verb_stage = loading.only or (of_verb[0] if len(of_verb) == 1 else None)
    keys = overrides.absolute(override, roots, list(stages), verb_stage)
    overrides.apply(document, override, keys)
    sign = "~" if override.remove else ""
    return sign + ".".join(keys) + override.text[len(sign + ".".join(override.keys)) :]


def _load_plugins(document: Document, chain: list[RecipeFile], trust: bool) -> list[Path]:
    plugins = document.value.get("plugins")
    if not isinstance(plugins, list):
        return []
    sources = {str(source.file): source for source in chain}
    files, refused = [], []
    for index, item in enumerate(plugins):
        line = document.place(("plugins", index))
        source = sources.get(line.rpartition(":")[0])
        file = (source.file.parent if source else Path()) / Path(str(item)).expanduser()
        files.append(file)
        typed = line.startswith(("command line", "VLCLI_SET"))  # as good as --plugin
        if file.is_file() and not (trust or typed or trusting.may_run(file, source.tree if source else None)):
            refused.append((file, line))
    if refused:
        raise trusting.refusal(refused)
    for file in files:
        load_file(file)
    return [file.absolute() for file in files]
