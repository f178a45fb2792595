"""``vlcli ls``, ``show``, ``cp``: what is there, from metadata; what a thing is, by importing it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vlcli.cli import options as o
from vlcli.cli.guard import guarded
from vlcli.cli.recipes import list_rows
from vlcli.errors import ComponentError
from vlcli.files import write_text

if TYPE_CHECKING:
    from vlcli.recipe.table import RowTable
    from vlcli.registry import Entry


@guarded
def ls(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="[KIND|TABLE]", help="models, objectives, recipes ..., or a table.", autocompletion=o.complete_kinds
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Import every component and mark what is broken.")] = False,
    plugin: o.Plugin = None,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """List components: every kind, or one; or the rows of a table."""
    from vlcli.recipe.locate import is_recipe
    from vlcli.registry import KINDS

    o.load_plugins(plugin)
    if kind == "claims":
        _list_claims(json_)
    elif kind == "checkpoints":
        _list_checkpoints(json_)
    elif kind is not None and kind not in KINDS and is_recipe(kind):
        list_rows(kind, json_)
    else:
        _list_components(kind, check, json_)


def _list_components(kind: str | None, check: bool, json_: bool) -> None:
    """One line for each component of a kind, or of all; with ``check``, exit code 1 where one is broken."""
    from vlcli.cli import console
    from vlcli.registry import entries

    found = entries(kind)
    rows = [_component(entry, described=kind is not None) for entry in found]
    broken = _checked(rows, found, kind) if check else False
    if json_:
        console.out_json({"components": rows})
    else:
        tells = ["about"] if kind is not None else []
        columns = ["kind", "name", "from", *tells, *(["state"] if check else [])]
        sources = [f"{row['distribution']} {row['version']}".strip() for row in rows]
        cells = [
            [row["kind"], row["name"], source, *(row[word] for word in tells), *([_state(row)] if check else [])]
            for row, source in zip(rows, sources, strict=True)
        ]
        console.table(columns, cells)
    _end(broken)


def _component(entry: Entry, *, described: bool) -> dict[str, Any]:
    """What ``--json`` says of a component; ``described``: with one sentence about it."""
    from vlcli.recipe.load import about
    from vlcli.registry.summaries import summary

    names = ("kind", "name", "distribution", "version", "value")
    row: dict[str, Any] = {name: getattr(entry, name) for name in names}
    if described:
        row["about"] = about(entry.name) if entry.kind == "recipes" else summary(entry)
    return row


def _checked(rows: list[dict[str, Any]], found: Sequence[Entry], kind: str | None) -> bool:
    """Import every component and add to its row what is wrong with it; whether one is broken."""
    from vlcli.registry import FILES, lacking, private_imports_of, status

    broken = {(one.entry.kind, one.entry.name, one.entry.distribution): one for one in status(kind)}
    for row, entry in zip(rows, found, strict=True):
        row["private"] = private_imports_of(entry)
        fault = broken.get((row["kind"], row["name"], row["distribution"]))
        row |= {"broken": fault.cause if fault else "", "place": fault.place if fault else ""}
        known = row["kind"] not in FILES and not fault
        row["lacks"] = lacking(row["kind"], f"{row['distribution']}:{row['name']}") if known else ""
    return bool(broken)


def _list_claims(json_: bool) -> None:
    """One line for each registered claim of a paper: what it says and which rows of which recipe test it."""
    from vlcli.claims.listing import as_row
    from vlcli.claims.load import every
    from vlcli.cli import console

    rows = [as_row(one) for one in every()]
    if json_:
        console.out_json({"claims": rows})
        return
    cells = [[r["id"], r["table"], r["claim"], r["test"]] for r in rows]
    console.table(["claim", "table", "what the paper says", "tested by"], cells)


def _list_checkpoints(json_: bool) -> None:
    """One line for each published checkpoint: what it is, its size, licence and first published number."""
    from vlcli.checkpoints.listing import as_row, score
    from vlcli.checkpoints.load import every
    from vlcli.cli import console

    found = every()
    if json_:
        console.out_json({"checkpoints": [as_row(one) for one in found]})
        return
    cells = []
    for one in found:
        row = as_row(one)
        cells.append([row["file"], row["family"], row["about"], f"{row['numbers']:,}", row["licence"], score(one)])
    console.table(["file", "family", "what it is", "numbers", "licence", "published"], cells)


def _state(row: dict[str, Any]) -> str:
    """A component's state in words, with its author's file and line where it is broken."""
    place = f" ({row['place']})" if row["place"] else ""
    if row["broken"]:
        return f"broken: {row['broken']}{place}"
    return row["lacks"] or (f"ok, but {row['private'][0]}" if row["private"] else "ok")


def _end(broken: bool) -> None:
    """Leave with the code of a broken component where there is one; what was listed stands."""
    if broken:
        raise typer.Exit(4)


@guarded
def show(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME [KEY=VALUE]...",
            help="A component or recipe; overrides for a recipe.",
            autocompletion=o.complete_all,
        ),
    ],
    kind: Annotated[
        str | None, typer.Option("--kind", help="Of this kind alone.", autocompletion=o.complete_kinds)
    ] = None,
    plugin: o.Plugin = None,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Describe a component (what it does, its paper, its parameters), or a recipe resolved with its parents."""
    from vlcli.cli import console
    from vlcli.recipe.locate import is_recipe
    from vlcli.registry import FILES, KINDS, describe, names

    o.load_plugins(plugin)
    name, overrides = o.one_recipe(words)
    plain = name.rpartition(":")[2]
    recipe_name = kind in (None, "recipes") and is_recipe(name)
    kinds = [k for k in ([kind] if kind else KINDS) if k not in FILES and plain in names(k)]
    found = [describe(k, name) for k in kinds]
    recipe = _recipe(name, overrides) if recipe_name else None
    if not found and recipe is None:
        raise _unknown(name, kind)
    if json_:
        console.out_json({"components": found, **({"recipe": recipe} if recipe else {})})
    else:
        for item in found:
            _show_component(item)
        if recipe:
            _show_recipe(recipe)
    wrong = [item for item in found if item["broken"]]
    if wrong and json_:
        raise typer.Exit(4)  # the JSON says what is broken
    if wrong:
        raise _not_sound(wrong[0])


def _not_sound(item: dict[str, Any]) -> ComponentError:
    """A component that is no whole one of its kind, told behind its description."""
    from vlcli.registry.contract import incomplete

    return incomplete(item["kind"], item["name"], item["broken"], item["origin"], item["distribution"])


def _unknown(name: str, kind: str | None) -> Exception:
    import difflib

    from vlcli.registry import FILES, KINDS, entries
    from vlcli.registry.outdated import not_installed, reinstall

    shown = [kind] if kind else [one for one in KINDS if one not in FILES or one == "recipes"]
    if (folder := next(filter(None, (not_installed(one, name) for one in shown)), None)) is not None:
        return ComponentError(f"Nothing is called {name!r} yet.", hint=reinstall(folder, name))
    known = sorted({entry.name for one in shown for entry in entries(one)})
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    what = f"Nothing is called {name!r}" + (f"; did you mean {' or '.join(map(repr, close))}?" if close else ".")
    return ComponentError(what, hint=f"all names: vlcli ls{f' {kind}' if kind else ''}")


def _recipe(name: str, overrides: list[str]) -> dict[str, Any]:
    from vlcli.recipe.load import load
    from vlcli.recipe.table import is_table, load_table

    if is_table(name):
        return _table(load_table(name, overrides or [], plugins=False))
    resolved = load(name, overrides, plugins=False)
    stages = {n: {"kind": s.kind} for n, s in resolved.stages.items()}
    files = [{"name": source.name, "file": str(source.file)} for source in resolved.sources]
    return {
        "name": resolved.name,
        "sources": files,
        "overrides": resolved.words,
        "stages": stages,
        "resolved": resolved.document.value,
    }


def _table(table: RowTable) -> dict[str, Any]:
    """A table as it is written, with its parents; and its rows."""
    files = [{"name": source.name, "file": str(source.file)} for source in table.sources]
    value = table.document.value
    if table.chosen != list(table.written.rows):
        value = {**value, "rows": {label: value["rows"].get(label) for label in table.chosen}}
    facts = {"name": table.name, "sources": files, "overrides": list(table.loading.words)}
    return {**facts, "rows": list(table.chosen), "resolved": value}


def _show_component(item: dict[str, Any]) -> None:
    from vlcli.cli import console

    console.out(f"{item['kind'][:-1]} {item['name']}  ({item['distribution']} {item['version']})")
    console.out(item["doc"])
    facts = {
        "paper": item["paper"],
        "capabilities": ", ".join(item["capabilities"]),
        "position encodings": "; ".join(f"{name} takes {' and '.join(item['slots'][name])}" for name in item["slots"]),
        "needs a model that can": ", ".join(item["requires"]),
        "source": item["origin"],
    }
    for label, text in facts.items():
        if text:
            console.out(f"{label}: {text}")
    rows = [
        [p["name"], p["type"], "(must be given)" if p["required"] else repr(p["default"])] for p in item["parameters"]
    ]
    if rows:
        console.out("")
        console.table(["parameter", "type", "default"], rows)
    console.out("")


def _show_recipe(recipe: dict[str, Any]) -> None:
    from vlcli.cli import console
    from vlcli.recipe.dump import to_yaml

    for index, source in enumerate(recipe["sources"]):
        console.out(f"# {'extends ' if index else ''}{source['name']}: {source['file']}")
    console.out(to_yaml({k: v for k, v in recipe["resolved"].items() if k != "extends"}).rstrip())


@guarded
def cp(
    recipe: Annotated[str, typer.Argument(help="A recipe's name or path.", autocompletion=o.complete_recipes)],
    dest: Annotated[Path | None, typer.Argument(help="Where to; - for stdout. Default: here, under its name.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
    json_: o.Json = False,
    verbose: o.Verbose = 0,
) -> None:
    """Copy a recipe, comments kept, to start one's own from."""
    from vlcli.cli import console
    from vlcli.errors import UsageError
    from vlcli.recipe.load import locate, slug

    source = locate(recipe)
    text = _portable(recipe, source)
    if dest is not None and str(dest) == "-":
        console.out(text.rstrip())
        return
    file = f"{slug(source.name)}.yaml" if source.row else source.file.name
    target = dest or Path(file)
    target = target / file if target.is_dir() else target
    if target.exists() and not force:
        raise UsageError("There is a file already.", where=str(target), hint="choose another name, or --force")
    write_text(target, text)
    console.out_json({"path": str(target)}) if json_ else console.out(str(target))


def _portable(name: str, source: Any) -> str:
    """The recipe's text; with its parents merged in where it names one by a path that a copy would lose."""
    from vlcli.recipe.dump import to_yaml
    from vlcli.recipe.load import read_chain
    from vlcli.registry import names

    document, chain = read_chain(source)
    if source.row:
        value = {key: item for key, item in document.value.items() if key != "extends"}
        return f"# {name}, a row of {source.table}, with its parents merged in\n" + to_yaml(value)
    if len(chain) == 1 or chain[1].name in names("recipes"):
        text: str = source.file.read_text(encoding="utf-8")
        return text
    value = {key: item for key, item in document.value.items() if key != "extends"}
    return f"# {name}, with its parents ({', '.join(s.name for s in chain[1:])}) merged in\n" + to_yaml(value)
