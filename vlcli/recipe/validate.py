"""Validates a recipe beyond its structure.

*Shallow* looks names up in the metadata and paths on disk; it imports a component only if its packages are not
installed. *Deep* imports every component, checks every parameter, and asks the readers for their files.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vlcli import registry
from vlcli.errors import ComponentError, Problem, VlcliError, did_you_mean
from vlcli.files import is_remote
from vlcli.plain import as_list
from vlcli.recipe import keys, wiring
from vlcli.recipe.check import MOST_STAGES, by_place
from vlcli.recipe.components import CHANGED, Use, of_raw_stage, of_recipe, of_stage
from vlcli.recipe.digests import read_files
from vlcli.recipe.locate import Resolved
from vlcli.recipe.resolve import resolve
from vlcli.recipe.schema import Make, Stage, Training
from vlcli.recipe.yaml import Document, Path_, dotted, section
from vlcli.registry import Spec


def shallow(resolved: Resolved, names: Iterable[str] | None = None) -> list[Problem]:
    """Returns unknown components, and packages, roots and files that the stages ``names`` (None: all) lack."""
    chosen = list(resolved.stages if names is None else names)
    problems: list[Problem] = []
    for use in uses(resolved):
        problems += _known(resolved, use.kind, use.spec["name"], (*use.path, "name"))
    for use in uses(resolved, chosen):
        with suppress(ComponentError):  # unknown: reported above
            early = registry.lacking_early(use.kind, use.spec, use.key)
            problems += [_placed(resolved.document, fault, use.key) for fault in early]
    earlier: list[str] = []
    for name, stage in resolved.stages.items():
        if isinstance(stage, Make):
            problems += _known(resolved, "worlds", stage.world["name"], ("stages", name, "world", "name"))
        if isinstance(stage, Training) and not stage.source and not resolve(resolved.recipe, stage).model:
            what, models = "no model is named, here or at the recipe's root", ", ".join(registry.names("models"))
            problems.append(resolved.document.fault(("stages", name, "model"), what, expected=models))
        if name in chosen and stage.if_missing != "skip":
            problems += _data_paths(resolved, name, stage, earlier)
            problems += _missing_places(resolved, name, stage, earlier)
        earlier.append(name)
    return problems


def faults(
    resolved: Resolved, names: Iterable[str] | None = None, artifacts: Mapping[str, Path] | None = None
) -> list[Problem]:
    """Returns shallow and deep faults, or else those of data files; ``artifacts`` are folders of finished stages."""
    chosen = list(resolved.stages if names is None else names)
    problems = shallow(resolved, chosen)
    keys_of_faults = {problem.key for problem in problems}
    problems += [fault for fault in parameters(resolved, chosen) if f"{fault.key}.name" not in keys_of_faults]
    return sorted(problems, key=by_place) or list(_missing_files(resolved, chosen, artifacts or {}))


def parameters(resolved: Resolved, names: Iterable[str] | None = None) -> list[Problem]:
    """Returns the faults of all components' parameters (imports the components), and of tasks without a model."""
    chosen = list(resolved.stages if names is None else names)
    problems = _of_uses(uses(resolved, chosen), resolved.document)
    return problems or [fault for name in chosen for fault in _fit_faults(resolved, name)]


def of_document(document: Document) -> list[Problem]:
    """Returns the parameter faults of a recipe that the schema refused, for components that can be read."""
    stages = section(document.value, "stages")
    raw = [use for name in list(stages)[:MOST_STAGES] for use in of_raw_stage(name, section(stages, name))]
    return _of_uses(raw, document)


def _of_uses(every: Iterable[Use], document: Document) -> list[Problem]:
    return [
        _placed(document, fault, use.key)
        for use in every
        for fault in (*registry.check(use.kind, use.spec, use.key), *_fixed(use))
    ]


def uses(resolved: Resolved, names: Iterable[str] | None = None) -> list[Use]:
    """Returns every component that the recipe (or its stages ``names``) uses."""
    every = list(of_recipe(resolved.recipe))
    for name in resolved.stages if names is None else names:
        stage = resolved.stages[name]
        every += of_stage(name, stage)
        if isinstance(stage, Training) and stage.model is not None and "name" not in stage.model:
            spec = resolve(resolved.recipe, stage).model  # the recipe's, with the stage's changes
            every += [Use("models", spec, ("stages", name, "model"), {})] if spec and "name" in spec else []
    return every


def _fixed(use: Use) -> list[Problem]:
    if CHANGED not in use.options:
        return []
    try:
        target = registry.load(use.kind, use.spec["name"])
    except ComponentError:
        return []  # told already
    known = registry.parameters(target)
    allowed = ["weight", *sorted(known.keys() & set(getattr(target, "changeable", ())))]
    fixed = [name for name in use.options[CHANGED] if name in known and name not in allowed]
    what = "this parameter cannot change from an epoch on"
    return [Problem(f"{use.key}.{name}", what, expected=", ".join(allowed)) for name in fixed]


def _known(resolved: Resolved, kind: str, name: str, path: Path_) -> Iterator[Problem]:
    try:
        registry.find(kind, name)
    except ComponentError as error:
        hint = did_you_mean(name, resolved.recipe.datasets) if kind == "datasets" else ""
        got = error.got or ("" if kind == "worlds" else name)
        yield resolved.document.fault(path, error.what, got, error.expected, hint or error.hint, code=4)


def _data_paths(resolved: Resolved, name: str, stage: Stage, earlier: list[str]) -> Iterator[Problem]:
    without_data = stage.kind == "draw" and not keys.data_specs(resolved.recipe, stage, defaults=False)
    if stage.kind in ("make", "export") or without_data or wiring.root_stage(resolved.recipe, stage, earlier):
        return
    root = wiring.root_folder(resolved.recipe, stage, {})
    if not root.is_dir():
        path: Path_ = ("stages", name, "root") if stage.root else ("root",)
        word = stage.root or resolved.recipe.root
        hint = f"point `root` at the folder that holds the data: root=DATA{_sources_of(resolved)}"
        expected = "a folder" + (f", or an earlier stage: {', '.join(earlier)}" if earlier else "")
        yield resolved.document.fault(path, "the data root is not there", word, expected, hint, code=5)
        return
    for field in ("images", "boxes"):
        for value in as_list(getattr(stage, field, None)):
            if value and not is_remote(value) and not (root / Path(value).expanduser()).exists():
                at, place = ("stages", name, field), str(root / value)
                yield resolved.document.fault(at, "this is not there", place, hint="check `root`", code=5)


def _missing_places(resolved: Resolved, name: str, stage: Stage, earlier: list[str]) -> Iterator[Problem]:
    of_stage = wiring.root_stage(resolved.recipe, stage, earlier)
    rootless = not of_stage and not wiring.root_folder(resolved.recipe, stage, {}).is_dir()  # reported already
    for field, key in (("source", "from"), *(() if rootless else (("features", "features"),))):
        words = tuple(value for value in getattr(stage, field, []) if value not in earlier)
        for value in wiring.missing_places(resolved.recipe, stage, words, {}):
            path: Path_ = ("stages", name, key)
            what, expected = "there is no such stage, file or folder", ", ".join(earlier) or "a file or folder"
            hint = f"check the path and `root`{_sources_of(resolved)}"
            if key == "features":
                hint = "make a store: vlcli extract, or vlcli features import"
            if wiring.is_hub_name(value):
                hint = f"where there is a network: hf download {value}{_sources_of(resolved)}"
            yield resolved.document.fault(path, what, value, expected, hint, code=5)


def _sources_of(resolved: Resolved) -> str:
    of_file = resolved.sources and not any(char.isspace() for char in resolved.reference)
    return f"; where to get it: vlcli data where {resolved.reference}" if of_file else ""


def _fit_faults(resolved: Resolved, name: str) -> Iterator[Problem]:
    stage = resolved.stages[name]
    spec: Spec | None = getattr(stage, "task", None)
    fit = bool(getattr(stage, "fit", []))
    fitted = spec is not None and bool(getattr(registry.load("tasks", spec["name"]), "fitted", False))
    got = "no task" if spec is None else str(spec["name"])
    if fitted and stage.kind != "evaluate":
        what = "this task is fitted without a model: it belongs to an evaluate stage"
        key, expected = "task", "kind: evaluate, with `fit: DATA`"
    elif fitted and not fit:
        what = "this task is fitted without a model, and no data are named to fit it on"
        key, expected = "task", "fit: DATA in the stage"
    elif fit and not fitted:
        what = "`fit` is for tasks that need no model"
        key, expected = "fit", "task: cca-retrieval, say; or leave `fit` out"
    elif fit and stage.source:
        what, got = "a task that is fitted without a model takes none", ", ".join(stage.source)
        key, expected = "from", "leave `from` out"
    else:
        return
    yield resolved.document.fault(("stages", name, key), what, got, expected)


def _missing_files(resolved: Resolved, names: list[str], artifacts: Mapping[str, Path]) -> Iterator[Problem]:
    order = list(resolved.stages)
    for name in names:
        stage = resolved.stages[name]
        of_stage = wiring.root_stage(resolved.recipe, stage, order[: order.index(name)])
        if stage.if_missing == "skip" or (of_stage and of_stage not in artifacts):
            continue
        root = wiring.root_folder(resolved.recipe, stage, artifacts)
        for place, file in keys.component_files(uses(resolved, [name]), root):
            if not file.exists():
                hint = "check `root`: such a path is looked for there, then in the current folder"
                yield resolved.document.fault(place, "there is no such file", str(file), hint=hint, code=5)
        for (owner, *rest), spec in keys.data_places(resolved.recipe, stage):
            try:
                reader = registry.build("datasets", spec, root)
                read_files(reader)  # first: it says whose code fails
                reader.require()
            except VlcliError as error:
                path: Path_ = tuple(rest) if owner == "recipe" else ("stages", name, *rest)
                got = ": ".join(filter(None, (error.where, error.got)))
                yield resolved.document.fault(path, error.what, got, error.expected, error.hint, error.exit_code)


def _placed(document: Document, fault: Problem, key: str) -> Problem:
    by_key = {dotted(path): path for path in reversed(document.places)}
    path = by_key.get(fault.key, by_key.get(key, ()))
    return replace(fault, where=fault.where or document.place(path))
