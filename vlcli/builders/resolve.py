"""Resolves a stage with the trained models on disk that it starts from."""

from dataclasses import replace
from pathlib import Path

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.engine.bundle import Bundle, find_bundle, read_bundle
from vlcli.errors import ComponentError
from vlcli.nn.model import Model
from vlcli.recipe.resolve import Kept, ResolvedStage, resolve
from vlcli.recipe.schema import TextOptions
from vlcli.recipe.wiring import find_place


def resolve_stage(context: StageContext) -> ResolvedStage:
    """Resolves a stage; sources that have not been made yet are resolved from the recipe."""
    return placed(resolve(context.recipe, context.config, lambda name: kept_by(context, name)), context.root)


def placed(resolved: ResolvedStage, root: Path) -> ResolvedStage:
    """Replaces the folders that a model names by paths: here, under the data root, or in the hub's local cache."""
    model = resolved.model
    if model is None or "name" not in model:
        return resolved
    try:
        named = registry.of(Model).load(model["name"]).tower_folders(model)
    except ComponentError:  # raised again where the model is built
        return resolved
    folders = {key: find_place(word, root) for key, word in named.items()}
    paths = {key: str(folder.absolute()) for key, folder in folders.items() if folder is not None}
    return replace(resolved, model={**model, **paths}) if paths else resolved


def resolve_with(context: StageContext, bundle: Bundle) -> ResolvedStage:
    """Resolves a stage with one trained model in place of its sources."""
    return placed(resolve(context.recipe, context.config, lambda _: kept_of(bundle)), context.root)


def kept_by(context: StageContext, name: str) -> Kept | None:
    """Returns the specs of the trained model that ``from`` names; None if there is none (yet)."""
    path = context.inputs.get(name)
    if path is None and name not in context.recipe.stages:
        path = find_place(name, context.root)
    folder = None if path is None else find_bundle(path)
    return None if folder is None else kept_of(read_bundle(folder))


def kept_of(bundle: Bundle) -> Kept:
    """Returns the specs of a bundle."""
    return Kept(bundle.model_spec, bundle.task_spec, text_of(bundle), bundle.transform_spec)


def text_of(bundle: Bundle) -> TextOptions | None:
    """Returns a bundle's text options without the vocabulary; None if its model reads no text."""
    if bundle.tokenizer is None:
        return None
    known = {key: value for key, value in bundle.text_options.items() if key in TextOptions.model_fields}
    return TextOptions(**known)
