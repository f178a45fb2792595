"""``vlcli ls``, ``show`` and ``cp``: list and describe components, recipes and tables."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from vlcli.cli import console, options
from vlcli.cli.guard import RunRequest, guarded, leave, requested
from vlcli.errors import ComponentError, did_you_mean
from vlcli.files import write_text
from vlcli.recipe.load import about, load, read_chain
from vlcli.recipe.locate import COUNTED, Published, RecipeFile, is_recipe, locate, slug
from vlcli.recipe.table import is_table, load_table
from vlcli.recipe.yaml import to_yaml
from vlcli.registry import FILES, KINDS, Entry, describe, entries, lacking, names, private_imports_of, status
from vlcli.registry.contract import incomplete
from vlcli.registry.entries import not_installed, reinstall
from vlcli.registry.lookup import Broken

# The word that stands for every kind
ALL = "all"
_WIDEST = 60
_KIND = "models, objectives, recipes ..., or a table."
_LISTED = Argument(metavar="[KIND|TABLE|all]", help=_KIND, autocompletion=options.complete_kinds)
_NAME = "A component or recipe; overrides for a recipe."


@requested("plugin", "json_")
def ls(
    request: RunRequest,
    kind: Annotated[str | None, _LISTED] = None,
    check: Annotated[bool, Option("--check", help="Import every component and mark what is broken.")] = False,
) -> None:
    """List the kinds of components, the components of one kind or of all; or the rows of a table.

    vlcli ls
    vlcli ls models
    vlcli ls all
    """
    if kind == "claims":
        _list_claims(request.json_)
    elif kind == "checkpoints":
        _list_checkpoints(request.json_)
    elif kind not in (None, ALL, *KINDS) and is_recipe(kind):
        _list_rows(kind, request.json_)
    elif kind is None and not (check or request.json_):
        _list_kinds()
    else:
        _list_components(None if kind == ALL else kind, check, request.json_)


def _list_kinds() -> None:
    rows = []
    for kind in KINDS:
        known = names(kind)
        shown = [name for index, name in enumerate(known) if len(", ".join(known[: index + 1])) <= _WIDEST]
        if known:
            rows.append([kind, f"{len(known):,}", ", ".join(shown) + (" ..." if len(shown) < len(known) else "")])
    console.table(["kind", "count", "for example"], rows)
    console.err("one kind: vlcli ls KIND; every component: vlcli ls all")


def _list_components(kind: str | None, check: bool, json_: bool) -> None:
    from vlcli.registry.summaries import summary

    components = entries(kind)  # before the check imports plugins, some of which register heads as they are imported
    faults = {(one.entry.kind, one.entry.name, one.entry.distribution): one for one in status(kind)} if check else {}
    rows: list[dict[str, Any]] = []
    for entry in components:
        row = {name: getattr(entry, name) for name in ("kind", "name", "distribution", "version", "value")}
        if kind is not None:
            row["about"] = about(entry.name) if entry.kind == "recipes" else summary(entry)
        if check:
            row |= _checked(entry, faults.get((entry.kind, entry.name, entry.distribution)))
        rows.append(row)
    if json_:
        console.out_json({"components": rows})
    else:
        columns = ["kind", "name", "from", *(["about"] if kind is not None else []), *(["state"] if check else [])]
        for row in rows:
            row["from"] = f"{row['distribution']} {row['version']}".strip()
            row["state"] = _state(row) if check else ""
        console.table(columns, [[row[column] for column in columns] for row in rows])
    leave(4 if faults else 0)


def _checked(entry: Entry, fault: Broken | None) -> dict[str, Any]:
    lacks = "" if fault or entry.kind in FILES else lacking(entry.kind, f"{entry.distribution}:{entry.name}")
    broken = {"broken": fault.cause if fault else "", "place": fault.place if fault else ""}
    return {"private": private_imports_of(entry), **broken, "lacks": lacks}


def _state(row: dict[str, Any]) -> str:
    if row["broken"]:
        return f"broken: {row['broken']}" + (f" ({row['place']})" if row["place"] else "")
    return row["lacks"] or (f"ok, but {row['private'][0]}" if row["private"] else "ok")


def _list_claims(json_: bool) -> None:
    from vlcli.claims.load import as_row, every

    rows = [as_row(one) for one in every()]
    cells = [[row[key] for key in ("id", "table", "claim", "test")] for row in rows]
    heads = ["claim", "table", "what the paper says", "tested by"]
    console.out_json({"claims": rows}) if json_ else console.table(heads, cells)


def _list_checkpoints(json_: bool) -> None:
    from vlcli.checkpoints.load import every
    from vlcli.checkpoints.trial import as_row, score

    rows, cells = [], []
    for one in every():
        rows.append(row := as_row(one))
        cells.append([row["file"], row["family"], row["about"], f"{row['numbers']:,}", row["licence"], score(one)])
    heads = ["file", "family", "what it is", "numbers", "licence", "published"]
    console.out_json({"checkpoints": rows}) if json_ else console.table(heads, cells)


def _list_rows(name: str, as_json: bool) -> None:
    table = load_table(name, plugins=False)
    others = table.written.others
    written = table.rows | others
    rows: list[dict[str, Any]] = []
    for label, one in written.items():
        published = {metric: asdict(number) for metric, number in one.published.items()}
        name = label if label in others else f"{table.reference}:{label}"
        facts = {"name": name, "about": "not built here: the paper's numbers" if label in others else one.about}
        rows.append({**facts, "reference": label in table.written.references, "published": published})
    if as_json:
        skipped = [{"cell": cell, "why": why} for cell, why in table.written.skipped.items()]
        console.out_json({"recipe": table.reference, "title": table.title, "rows": rows, "skipped": skipped})
        return
    numbers = {(key, one.split): one for row in written.values() for key, one in row.published.items()}
    cells = []
    for row, one in zip(rows, written.values(), strict=True):
        texts = [one.published[key].text if key in one.published else "-" for key, _ in numbers]
        cells.append([row["name"] + (" (reference)" if row["reference"] else ""), row["about"], *texts])
    heads = [f"published {key.removesuffix(f' on {split}')} on {split}" for key, split in numbers]
    console.table(["row", "about", *heads], cells, table.title)
    for head, number in zip(heads, numbers.values(), strict=True):
        if not number.is_compared and number.split != COUNTED:
            console.err(f"{head}: not compared, this stage measures {number.measures or 'another split'}")
    tables = {f"{one.table}, page {one.page}" if one.page else one.table: "" for one in numbers.values()}
    if numbers:
        units = ", ".join({one.unit: "" for one in numbers.values()})
        console.err(f"published in table {'; '.join(tables) or '(not said)'}; units: {units}")


@requested("plugin", "json_")
def show(
    request: RunRequest,
    words: Annotated[list[str], options.names("NAME [KEY=VALUE]...", _NAME, options.complete_all)],
    kind: Annotated[str | None, Option(help="Of this kind alone.", autocompletion=options.complete_kinds)] = None,
) -> None:
    """Describe a component (what it does, its paper, its parameters), or a recipe resolved with its parents."""
    name, overrides = options.one_name(words)
    plain = name.rpartition(":")[2]
    is_named = kind in (None, "recipes") and is_recipe(name)
    is_row = is_named and bool(locate(name).row)  # TABLE:ROW may end in a component's name
    kinds = [k for k in ([kind] if kind else KINDS) if k not in FILES and plain in names(k) and not is_row]
    components = [describe(k, name) for k in kinds]
    recipe = _recipe(name, overrides) if is_named else None
    if not components and recipe is None:
        raise _unknown(name, kind)
    if request.json_:
        console.out_json({"components": components, **({"recipe": recipe} if recipe else {})})
    else:
        for item in components:
            _show_component(item)
        if recipe:
            _show_recipe(recipe)
    for item in (item for item in components if item["broken"]):
        leave(4 if request.json_ else 0)  # the JSON says what is broken
        raise incomplete(item["kind"], item["name"], item["broken"], item["origin"], item["distribution"])


def _unknown(name: str, kind: str | None) -> Exception:
    kinds = [kind] if kind else [one for one in KINDS if one not in FILES or one == "recipes"]
    if (folder := next(filter(None, (not_installed(one, name) for one in kinds)), None)) is not None:
        return ComponentError(f"Nothing is called {name!r} yet.", hint=reinstall(folder, name))
    close = did_you_mean(name, sorted({entry.name for one in kinds for entry in entries(one)}), 3, 0.5)
    what = f"Nothing is called {name!r}" + (f"; {close}" if close else ".")
    return ComponentError(what, hint=f"all names: vlcli ls {kind or ALL}")


def _recipe(name: str, overrides: list[str]) -> dict[str, Any]:
    if is_table(name):
        table = load_table(name, overrides, plugins=False)
        value = table.document.value
        if table.chosen != list(table.written.rows):
            value = {**value, "rows": {label: value["rows"].get(label) for label in table.chosen}}
        return {**_sources(table, table.loading.words), "rows": list(table.chosen), "resolved": value}
    resolved = load(name, overrides, plugins=False)
    stages = {name: {"kind": stage.kind} for name, stage in resolved.stages.items()}
    facts = {**_sources(resolved, resolved.words), "stages": stages, "resolved": resolved.document.value}
    return {**facts, "published": published_of(name)}


def published_of(name: str) -> dict[str, Any]:
    """Returns the published numbers of a row (``TABLE:ROW``) by metric."""
    source = locate(name)
    published = load_table(name, plugins=False).rows[source.row].published if source.row else {}
    return {key: asdict(one) for key, one in published.items()}


def _sources(recipe: Any, words: Sequence[str]) -> dict[str, Any]:
    files = [{"name": source.name, "file": str(source.file)} for source in recipe.sources]
    return {"name": recipe.name, "sources": files, "overrides": list(words)}


def _show_component(item: dict[str, Any]) -> None:
    console.out(f"{item['kind'][:-1]} {item['name']}  ({item['distribution']} {item['version']})\n{item['doc']}")
    facts = {
        "paper": item["paper"],
        "capabilities": ", ".join(item["capabilities"]),
        "position encodings": "; ".join(f"{name} takes {' and '.join(item['slots'][name])}" for name in item["slots"]),
        "needs a model that can": ", ".join(item["requires"]),
        "source": item["origin"],
    }
    console.out_lines(f"{label}: {text}" for label, text in facts.items() if text)
    needed = "(must be given)"
    rows = [[p["name"], p["type"], needed if p["required"] else repr(p["default"])] for p in item["parameters"]]
    if rows:
        console.out("")
        console.table(["parameter", "type", "default"], rows)
    console.out("")


def _show_recipe(recipe: dict[str, Any]) -> None:
    files = [f"{source['name']}: {source['file']}" for source in recipe["sources"]]
    console.out("# " + "\n# extends ".join(files))
    for metric, number in recipe.get("published", {}).items():
        told = Published(**number).told(metric.removesuffix(f" on {number['split']}"))
        console.out(f"# {told}" + (f" (table {number['table']})" if number["table"] else ""))
    console.out(to_yaml({k: v for k, v in recipe["resolved"].items() if k != "extends"}).rstrip())


@guarded
def cp(
    recipe: Annotated[str, Argument(help="A recipe's name or path.", autocompletion=options.complete_recipes)],
    dest: Annotated[Path | None, Argument(help="Where to; - for stdout. Default: here, under its name.")] = None,
    force: options.Replace = False,
    json_: options.Json = False,
) -> None:
    """Copy a recipe, comments kept, to start one's own from."""
    source = locate(recipe)
    text = _portable(recipe, source)
    if str(dest) == "-":
        console.out(text.rstrip())
        return
    file = f"{slug(source.name)}.yaml" if source.row else source.file.name
    target = dest or Path(file)
    target = target / file if target.is_dir() else target
    options.refuse_existing(target, force)
    write_text(target, text)
    console.answer(json_, {"path": str(target)}, str(target))


def _portable(name: str, source: RecipeFile) -> str:
    # parents are merged in where the recipe names one by a path that a copy would lose
    document, chain = read_chain(source)
    if not source.row and (len(chain) == 1 or chain[1].name in names("recipes")):
        return source.file.read_text(encoding="utf-8")
    value = {key: item for key, item in document.value.items() if key != "extends"}
    parents = ", ".join(one.name for one in chain[1:])
    origin = f"a row of {source.table}, with its parents" if source.row else f"with its parents ({parents})"
    return f"# {name}, {origin} merged in\n" + to_yaml(value)
