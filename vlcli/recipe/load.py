"""From a name and the command line to a resolved recipe: find, ``extends``, overrides, schema.

resolved = load("quickstart", ["stages.pretrain.epochs=3"])
resolved.recipe.stages["pretrain"].epochs      # 3
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from vlcli.errors import ComponentError, Problem, RecipeError, UsageError
from vlcli.recipe import datasets, merge, overrides, yaml
from vlcli.recipe import trust as trusting
from vlcli.recipe.check import by_place, check_structure
from vlcli.recipe.components import with_present_names
from vlcli.recipe.resolved import RecipeFile, Resolved
from vlcli.recipe.schema import Recipe, kind_of
from vlcli.recipe.validate import of_document
from vlcli.recipe.yaml import Document
from vlcli.registry import find, load_file, names

_ABOUT = re.compile(r"^about: *(.+)$", re.MULTILINE)
RUN_COPY = "# The recipe of this run, resolved (2).\n"
"""First line of the copy that a run keeps; copies without it have former names of options, which are converted."""


def locate(reference: str, beside: RecipeFile | None = None) -> RecipeFile:
    """The file of a recipe: a registered name, or a path (relative to the recipe ``beside`` it, else to here).

    Raises:
        ComponentError: no recipe has this name (with suggestions).
        UsageError: the path names no file, or leaves its package.
    """
    is_path = reference.endswith((".yaml", ".yml"))
    if not is_path and reference.rpartition(":")[2] in names("recipes"):
        return _registered(reference)
    folder = beside.file.parent if beside else Path()
    file = folder / Path(reference).expanduser()
    if beside and beside.tree and not file.resolve().is_relative_to(beside.tree.resolve()):
        raise UsageError("A recipe's parent lies outside its package.", where=str(beside.file), got=reference)
    if file.is_file():
        return RecipeFile(reference, file, beside.tree if beside else None)
    if is_path:
        raise UsageError("There is no such recipe file.", where=str(file), hint="list recipes: vlcli ls recipes")
    return _registered(reference)


def _registered(reference: str) -> RecipeFile:
    return registered_file("recipes", reference)


def registered_file(kind: str, reference: str) -> RecipeFile:
    """The file of a registered recipe, or of another kind whose entries name a YAML file (``registry.FILES``).

    Raises:
        ComponentError: nothing of this kind has the name (with suggestions).
        UsageError: the file is not there.
    """
    entry = find(kind, reference)
    if isinstance(entry.loaded, str | Path):
        return RecipeFile(reference, Path(entry.loaded))
    package, _, stem = entry.value.partition(":")
    top, *rest = package.split(".")
    spec = importlib.util.find_spec(top)  # a top-level package is found without being imported
    folders = list(spec.submodule_search_locations or []) if spec else []
    tree = Path(folders[0]) if folders else Path(top)
    file = tree.joinpath(*rest, f"{stem}.yaml")
    if not file.is_file():
        hint = f"reinstall {entry.distribution}: its data files are missing"
        raise UsageError("A registered recipe's file is missing.", where=str(file), got=entry.value, hint=hint)
    return RecipeFile(reference, file, tree)


def about(reference: str) -> str:
    """What a registered recipe says of itself, read from its file alone; empty where it says nothing."""
    try:
        found = _ABOUT.search(locate(reference).file.read_text(encoding="utf-8"))
    except (UsageError, ComponentError, OSError, UnicodeDecodeError):
        return ""
    return found[1].strip().strip("\"'") if found else ""


def read_chain(source: RecipeFile) -> tuple[Document, list[RecipeFile]]:
    """A recipe's document merged upon its parents', and all files, itself first.

    Raises:
        RecipeError: a parent is missing, parents form a circle, or a file is not a mapping.
    """
    chain, documents = [source], [_mapping(source)]
    while parent := documents[-1].value.get("extends"):
        place = documents[-1].place(("extends",))
        if not isinstance(parent, str):
            problem = Problem("extends", "a parent is a name or a path", where=place, got=repr(parent))
            raise RecipeError([problem], source.name)
        following = _parent(parent, chain[-1], place)
        if any(following.file.resolve() == known.file.resolve() for known in chain):
            circle = " -> ".join([s.name for s in chain] + [following.name])
            raise RecipeError([Problem("extends", "recipes extend one another in a circle", where=place, got=circle)])
        chain.append(following)
        documents.append(_mapping(following))
    document = documents.pop()
    while documents:
        document = merge.merge(document, documents.pop())
    merge.drop_null_stages(document)
    return document, chain


def _parent(name: str, child: RecipeFile, place: str) -> RecipeFile:
    """The recipe that ``child`` extends; one that does not exist is told with the line that names it."""
    try:
        return locate(name, child)
    except (ComponentError, UsageError) as error:
        error.where = place
        raise


def _mapping(source: RecipeFile) -> Document:
    document = yaml.read(source.file)
    if not isinstance(document.value, dict):
        got = type(document.value).__name__
        problem = Problem("", "a recipe is a mapping with the key 'stages'", where=str(source.file), got=got)
        raise RecipeError([problem], source.name)
    if is_run_copy(source.file) and not source.file.read_text(encoding="utf-8").startswith(RUN_COPY):
        document.value = with_present_names(document.value)
    return document


def is_run_copy(file: Path) -> bool:
    """Whether a recipe's file is the copy that a run keeps in its folder."""
    return file.name == "recipe.yaml" and any(file.parent.glob("*/stage.json"))


def load(
    reference: str,
    words: list[str] | None = None,
    *,
    verb: str | None = None,
    only: str | None = None,
    trust: bool = False,
    plugins: bool = True,
    deep: bool = False,
) -> Resolved:
    """The resolved recipe.

    Args:
        reference: registered name or path.
        words: overrides, as typed.
        verb: the stage kind of the verb, where it is one: its only stage takes relative overrides.
        only: the stage of ``--only``: takes them too.
        trust: run the files of ``plugins:`` without asking whether the user trusts them.
        plugins: False: run none of them, to look at the recipe alone.
        deep: where the structure is wrong, tell the faults of components' parameters too (imports the components).

    Raises:
        ComponentError: a file of ``plugins:`` is not trusted, is not there, or raises.
        RecipeError: every fault of structure at once.
        UsageError: an override is off.
    """
    words = list(words or [])
    source = locate(reference)
    document, chain = read_chain(source)
    changed = _change(document, words, verb, only)
    loaded = _load_plugins(document, chain, trust) if plugins else []
    unclear = datasets.expand(document)
    recipe, problems = check_structure(document)
    problems += unclear
    if problems or recipe is None:
        raise RecipeError(_with_components(problems, document) if deep else problems, reference)
    return Resolved(
        slug(recipe.name or Path(reference).stem if source.tree is None else reference),
        reference,
        recipe,
        document,
        chain,
        changed,
        loaded,
    )


def _with_components(problems: list[Problem], document: Document) -> list[Problem]:
    """Faults of structure and of components' parameters, each key once."""
    known = {problem.key for problem in problems}
    return sorted([*problems, *(fault for fault in of_document(document) if fault.key not in known)], key=by_place)


def from_mapping(name: str, value: dict[str, Any], words: list[str] | None = None) -> Resolved:
    """A recipe made by the toolkit itself (``vlcli eval TASK``); ``words`` are overrides, as typed."""
    document = Document(value, {(): "command line"})
    _change(document, list(words or []), None, None)
    unclear = datasets.expand(document)
    recipe, problems = check_structure(document)
    problems += unclear
    if problems or recipe is None:
        raise RecipeError(problems, name)
    return Resolved(slug(name), name, recipe, document)


def slug(name: str) -> str:
    """A name fit for a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "recipe"


def _change(document: Document, words: list[str], verb: str | None, only: str | None) -> list[str]:
    """Apply the overrides; returns them with absolute paths."""
    changed = []
    roots = [info.alias or name for name, info in Recipe.model_fields.items()]
    for override in overrides.collect(words):
        stages = document.value.get("stages")
        stages = stages if isinstance(stages, dict) else {}
        keys = overrides.absolute(override, roots, list(stages), _verb_stage(stages, verb, only))
        overrides.apply(document, override, keys)
        changed.append(("~" if override.remove else "") + ".".join(keys) + override.text[len(_path_text(override)) :])
    return changed


def _path_text(override: overrides.Override) -> str:
    return ("~" if override.remove else "") + ".".join(override.keys)


def _verb_stage(stages: dict[str, Any], verb: str | None, only: str | None) -> str | None:
    if only is not None:
        return only
    wanted = [name for name, stage in stages.items() if verb is None or kind_of(name, stage) == verb]
    return wanted[0] if len(wanted) == 1 else None


def _load_plugins(document: Document, chain: list[RecipeFile], trust: bool) -> list[Path]:
    """Run the files of ``plugins:``, each relative to the recipe file that names it; all or none."""
    plugins = document.value.get("plugins")
    if not isinstance(plugins, list):
        return []
    sources = {str(source.file): source for source in chain}
    files, refused = [], []
    for index, item in enumerate(plugins):
        place = document.place(("plugins", index))
        source = sources.get(place.rpartition(":")[0])
        file = (source.file.parent if source else Path()) / Path(str(item)).expanduser()
        files.append(file)
        typed = place.startswith(("command line", "VLCLI_SET"))  # as good as --plugin
        if file.is_file() and not (trust or typed or trusting.may_run(file, source.tree if source else None)):
            refused.append((file, place))
    if refused:
        raise trusting.refusal(refused)
    for file in files:
        load_file(file)
    return [file.absolute() for file in files]
