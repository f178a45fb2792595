"""Validation of a recipe beyond its structure.

*Shallow* looks names up in the metadata and paths on disk and imports no component (except one whose packages are not
installed, for the command that installs them). *Deep* imports every component,
checks every parameter, and asks the readers for their files; the runner then rehearses the training stages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from vlcli import registry
from vlcli.errors import ComponentError, Problem, VlcliError
from vlcli.files import is_remote
from vlcli.recipe import keys, wiring
from vlcli.recipe.check import MOST_STAGES, by_place
from vlcli.recipe.components import (
    CHANGED,
    Use,
    dotted,
    of_raw_stage,
    of_recipe,
    of_stage,
)
from vlcli.recipe.datasets import suggestion
from vlcli.recipe.resolve import resolve
from vlcli.recipe.resolved import Resolved
from vlcli.recipe.schema import Stage, Training
from vlcli.recipe.yaml import Document, Path_
from vlcli.registry import Spec


def shallow(resolved: Resolved, names: Iterable[str] | None = None) -> list[Problem]:
    """Unknown components anywhere; packages, roots and files that the stages ``names`` (None: all) need and lack."""
    chosen = list(resolved.stages if names is None else names)
    problems: list[Problem] = []
    for use in uses(resolved):
        problems += _known(resolved, use)
    for use in uses(resolved, chosen):
        problems += _lacking(resolved, use)
    earlier: list[str] = []
    for name, stage in resolved.stages.items():
        problems += _world(resolved, name, stage)
        problems += _model_given(resolved, name, stage)
        if name in chosen:
            problems += _data_paths(resolved, name, stage, earlier)
            problems += _missing_places(resolved, name, stage, earlier)
        earlier.append(name)
    return problems


def _world(resolved: Resolved, name: str, stage: Stage) -> list[Problem]:
    """A generated world that no package has."""
    if stage.kind != "make":
        return []
    try:
        registry.find("worlds", getattr(stage, "world", {"name": "shapes"})["name"])
    except ComponentError as error:
        path: Path_ = ("stages", name, "world", "name")
        return [_at(resolved, path, error.what, error.got, error.expected, error.hint, code=4)]
    return []


def faults(
    resolved: Resolved, names: Iterable[str] | None = None, artifacts: Mapping[str, Path] | None = None
) -> list[Problem]:
    """Shallow and deep faults at once; files of data are looked for where there is none of these.

    Args:
        resolved: the recipe.
        names: the stages that matter; None: all.
        artifacts: finished stages.
    """
    chosen = list(resolved.stages if names is None else names)
    found = shallow(resolved, chosen)
    told = {problem.key for problem in found}
    found += [fault for fault in parameters(resolved, chosen) if f"{fault.key}.name" not in told]
    once = {(fault.key, fault.what, fault.got): fault for fault in reversed(found)}  # e.g. one root of several stages
    return sorted(once.values(), key=by_place) or _missing_files(resolved, chosen, artifacts or {})


def parameters(resolved: Resolved, names: Iterable[str] | None = None) -> list[Problem]:
    """Every fault of every component's parameters (imports the components), and of tasks that need no model."""
    chosen = list(resolved.stages if names is None else names)
    found = _of_uses(uses(resolved, chosen), resolved.document)
    return found or [fault for name in chosen for fault in _fit_given(resolved, name)]


def of_document(document: Document) -> list[Problem]:
    """The same of a recipe whose structure is wrong elsewhere: of the components that can be made out."""
    found = []
    stages = document.value.get("stages")
    for name, stage in list(stages.items())[:MOST_STAGES] if isinstance(stages, dict) else ():
        found += list(of_raw_stage(name, stage)) if isinstance(stage, dict) else []
    return _of_uses(found, document)


def _of_uses(found: Iterable[Use], document: Document) -> list[Problem]:
    return [
        _placed(document, fault, use.key)
        for use in found
        for fault in (*registry.check(use.kind, use.spec, use.key), *_fixed(use))
    ]


def uses(resolved: Resolved, names: Iterable[str] | None = None) -> list[Use]:
    """Every component that the recipe (or its stages ``names``) uses."""
    found = list(of_recipe(resolved.recipe))
    for name in resolved.stages if names is None else names:
        found += of_stage(name, resolved.stages[name])
        found += _model_with_recipe(resolved, name)
    return found


def _model_with_recipe(resolved: Resolved, name: str) -> list[Use]:
    """The model it starts from with a stage's changes, where the stage does not name a model of its own."""
    stage = resolved.stages[name]
    own = getattr(stage, "model", None)
    if not isinstance(stage, Training) or own is None or "name" in own:
        return []
    spec = resolve(resolved.recipe, stage).model
    return [Use("models", spec, ("stages", name, "model"), {})] if spec and "name" in spec else []


def _fixed(use: Use) -> list[Problem]:
    """Parameters that a change by epoch names though they are fixed once the objective is built."""
    if CHANGED not in use.options:
        return []
    try:
        target = registry.load(use.kind, use.spec["name"])
    except ComponentError:
        return []  # told already
    allowed = sorted(getattr(target, "changeable", ()))
    known = registry.parameters(target)
    what = "this parameter cannot change from an epoch on"
    return [
        Problem(f"{use.key}.{name}", what, expected=", ".join(["weight", *(n for n in allowed if n in known)]))
        for name in use.options[CHANGED]
        if name in known and name not in allowed
    ]


def _known(resolved: Resolved, use: Use) -> list[Problem]:
    try:
        registry.find(use.kind, use.spec["name"])
    except ComponentError as error:
        path, hint = (*use.path, "name"), error.hint
        if use.kind == "datasets":
            hint = suggestion(use.spec["name"], resolved.recipe.datasets) or hint
        return [_at(resolved, path, error.what, error.got or use.spec["name"], error.expected, hint, code=4)]
    return []


def _lacking(resolved: Resolved, use: Use) -> list[Problem]:
    try:
        early = registry.lacking_early(use.kind, use.spec, use.key)
        return [_placed(resolved.document, fault, use.key) for fault in early]
    except ComponentError:  # unknown: that has been said
        return []


def _data_paths(resolved: Resolved, name: str, stage: Stage, earlier: list[str]) -> list[Problem]:
    """The root and the files a stage names itself; nothing where the root is still to be made."""
    if (
        stage.if_missing == "skip"
        or wiring.root_stage(resolved.recipe, stage, earlier)
        or stage.kind in ("make", "export")
        or (stage.kind == "draw" and not keys.data_specs(resolved.recipe, stage, defaults=False))
    ):
        return []
    root = wiring.root_folder(resolved.recipe, stage, {})
    path: Path_ = ("stages", name, "root") if stage.root else ("root",)
    if not root.is_dir():
        word = stage.root or resolved.recipe.root
        hint = "point `root` at the folder that holds the data: root=DATA"
        expected = f"a folder, or an earlier stage: {', '.join(earlier) or 'none'}"
        return [_at(resolved, path, "the data root is not there", word, expected, hint, code=5)]
    problems = []
    boxes = getattr(stage, "boxes", None) or []
    for field, values in (("images", [getattr(stage, "images", None)]), ("boxes", boxes)):
        for value in values if isinstance(values, list) else [values]:
            if value and not is_remote(value) and not (root / Path(value).expanduser()).exists():
                at = ("stages", name, field)
                problems.append(_at(resolved, at, "this is not there", str(root / value), hint="check `root`", code=5))
    return problems


def _missing_places(resolved: Resolved, name: str, stage: Stage, earlier: list[str]) -> list[Problem]:
    """Files, folders and hub names in ``from`` and ``features`` that are not there."""
    made = wiring.root_stage(resolved.recipe, stage, earlier)
    rootless = not made and not wiring.root_folder(resolved.recipe, stage, {}).is_dir()  # told already
    if stage.if_missing == "skip":
        return []
    problems = []
    for field, key in (("source", "from"), *(() if rootless else (("features", "features"),))):
        words = tuple(value for value in getattr(stage, field, []) if value not in earlier)
        for value in wiring.missing_places(resolved.recipe, stage, words, {}):
            path: Path_ = ("stages", name, key)
            what, expected = "there is no such stage, file or folder", ", ".join(earlier) or "a file or folder"
            problems.append(_at(resolved, path, what, value, expected, _remedy(value, key), code=5))
    return problems


def _remedy(value: str, key: str) -> str:
    if wiring.is_hub_name(value):
        return f"where there is a network: hf download {value}; or name a file or folder"
    return "make a store: vlcli extract, or vlcli features import" if key == "features" else "check the path and `root`"


def _model_given(resolved: Resolved, name: str, stage: Stage) -> list[Problem]:
    if not isinstance(stage, Training) or stage.source or resolve(resolved.recipe, stage).model:
        return []
    return [
        _at(
            resolved,
            ("stages", name, "model"),
            "no model is named, here or at the recipe's root",
            expected=", ".join(registry.names("models")),
        )
    ]


def _fit_given(resolved: Resolved, name: str) -> list[Problem]:
    """Where `fit` and the task do not go together."""
    stage = resolved.stages[name]
    spec: Spec | None = getattr(stage, "task", None)
    fit = bool(getattr(stage, "fit", []))
    fitted = spec is not None and bool(getattr(registry.load("tasks", spec["name"]), "fitted", False))
    said = "no task" if spec is None else str(spec["name"])
    if fitted and stage.kind != "evaluate":
        what = "this task is fitted without a model: it belongs to an evaluate stage"
        return [_at(resolved, ("stages", name, "task"), what, said, "kind: evaluate, with `fit: DATA`")]
    if fitted and not fit:
        what = "this task is fitted without a model, and no data are named to fit it on"
        return [_at(resolved, ("stages", name, "task"), what, said, "fit: DATA in the stage")]
    if fit and not fitted:
        what = "`fit` is for tasks that need no model"
        return [_at(resolved, ("stages", name, "fit"), what, said, "task: cca-retrieval, say; or leave `fit` out")]
    if fit and stage.source:
        what = "a task that is fitted without a model takes none"
        return [_at(resolved, ("stages", name, "from"), what, ", ".join(stage.source), "leave `from` out")]
    return []


def _missing_files(resolved: Resolved, names: list[str], artifacts: Mapping[str, Path]) -> list[Problem]:
    problems, order = [], list(resolved.stages)
    for name in names:
        stage = resolved.stages[name]
        made = wiring.root_stage(resolved.recipe, stage, order[: order.index(name)])
        if stage.if_missing == "skip" or (made and made not in artifacts):
            continue
        root = wiring.root_folder(resolved.recipe, stage, artifacts)
        problems += _readers_of(resolved, name, stage, root)
    return problems


def _readers_of(resolved: Resolved, name: str, stage: Stage, root: Path) -> list[Problem]:
    problems = []
    for (owner, *place), spec in keys.data_places(resolved.recipe, stage):
        try:
            registry.build("datasets", spec, root).require()
        except VlcliError as error:
            key: Path_ = tuple(place) if owner == "recipe" else ("stages", name, *place)
            problems.append(
                _at(
                    resolved,
                    key,
                    error.what,
                    ": ".join(part for part in (error.where, error.got) if part),
                    error.expected,
                    error.hint,
                    code=error.exit_code,
                )
            )
    return problems


def _placed(document: Document, fault: Problem, key: str) -> Problem:
    """A component's fault with the line of the key it is about."""
    path = next((p for p in document.places if dotted(p) == fault.key), None)
    if path is None:
        path = next((p for p in document.places if dotted(p) == key), ())
    return replace(fault, where=fault.where or document.place(path))


def _at(
    resolved: Resolved, path: Path_, what: str, got: str = "", expected: str = "", hint: str = "", code: int = 3
) -> Problem:
    return Problem(dotted(path), what, resolved.document.place(path), got, expected, hint, code)
