"""Resolves a stage with the trained models that it starts from."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.engine.bundle import Bundle, find_bundle, read_bundle
from vlcli.errors import ComponentError
from vlcli.nn.model import Model
from vlcli.recipe.components import local_files
from vlcli.recipe.resolve import Kept, ResolvedStage, resolve
from vlcli.recipe.schema import TextOptions, Training
from vlcli.recipe.wiring import find_below, find_place
from vlcli.registry import Spec


def resolve_stage(context: StageContext) -> ResolvedStage:
    """Resolves a stage; sources that do not exist yet are resolved from the recipe."""
    return placed(resolve(context.recipe, context.config, lambda name: kept_by(context, name)), context.root)


def placed(resolved: ResolvedStage, root: Path) -> ResolvedStage:
    """Replaces names of folders of a model, and of files of a task and of objectives, by paths.

    Folders lie here, under the data root, or in the hub's local cache; files under the data root, or here.
    """
    stage, model = resolved.stage, resolved.model
    if isinstance(stage, Training) and stage.objectives:
        objectives = [_with_files("objectives", one, root) for one in stage.objectives]
        stage = stage.model_copy(update={"objectives": objectives})
    with suppress(ComponentError):  # raised again where the model is built
        if model is not None and "name" in model:
            folders = registry.of(Model).load(model["name"]).tower_folders(model)
            model = _at(model, {key: find_place(word, root) for key, word in folders.items()})
    task = None if resolved.task is None else _with_files("tasks", resolved.task, root)
    return replace(resolved, stage=stage, model=model, task=task)


def _with_files(kind: str, spec: Spec, root: Path) -> Spec:
    return _at(spec, {key: find_below(word, root) for key, word in local_files(kind, spec).items()})


def _at(spec: Spec, paths: Mapping[str, Path | None]) -> Spec:
    return {**spec, **{key: str(path.absolute()) for key, path in paths.items() if path is not None}}


def resolve_with(context: StageContext, bundle: Bundle) -> ResolvedStage:
    """Resolves a stage with one trained model in place of its sources."""
    return placed(resolve(context.recipe, context.config, lambda _: kept_of(bundle)), context.root)


def kept_by(context: StageContext, name: str) -> Kept | None:
    """Returns the specs of the trained model that ``from`` names, if it exists."""
    path = context.inputs.get(name)
    if path is None and name not in context.recipe.stages:
        path = find_place(name, context.root)
    folder = None if path is None else find_bundle(path)
    return None if folder is None else kept_of(read_bundle(folder))


def kept_of(bundle: Bundle) -> Kept:
    """Returns the specs of a bundle, with text options without a vocabulary."""
    known = {key: value for key, value in bundle.text_options.items() if key in TextOptions.model_fields}
    text = None if bundle.tokenizer is None else TextOptions(**known)
    return Kept(bundle.model_spec, bundle.task_spec, text, bundle.transform_spec)
