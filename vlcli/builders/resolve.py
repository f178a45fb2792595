"""A stage resolved with what lies on disk: the trained models that it starts from."""

from __future__ import annotations

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
    """What a stage will do; sources that have not been made yet are resolved from the recipe."""
    return placed(resolve(context.recipe, context.config, lambda name: kept_by(context, name)), context.root)


def placed(resolved: ResolvedStage, root: Path) -> ResolvedStage:
    """A stage whose model names its folders by their paths: here, under the data root, or in the hub's local cache."""
    model = resolved.model
    if model is None or "name" not in model:
        return resolved
    try:
        named = registry.of(Model).load(model["name"]).tower_folders(model)
    except ComponentError:  # told where the model is built
        return resolved
    found = {key: find_place(word, root) for key, word in named.items()}
    paths = {key: str(place.absolute()) for key, place in found.items() if place is not None}
    return replace(resolved, model={**model, **paths}) if paths else resolved


def resolve_with(context: StageContext, bundle: Bundle) -> ResolvedStage:
    """What a stage does with one trained model, whichever its sources are."""
    return placed(resolve(context.recipe, context.config, lambda _: kept_of(bundle)), context.root)


def kept_by(context: StageContext, name: str) -> Kept | None:
    """What the trained model keeps that a word of ``from`` leads to; None where there is none, or none yet."""
    place = context.inputs.get(name)
    if place is None and name not in context.recipe.stages:
        place = find_place(name, context.root)
    folder = None if place is None else find_bundle(place)
    return None if folder is None else kept_of(read_bundle(folder))


def kept_of(bundle: Bundle) -> Kept:
    """What a bundle keeps for a stage that starts from it."""
    return Kept(bundle.model_spec, bundle.task_spec, text_of(bundle), bundle.transform_spec)


def text_of(bundle: Bundle) -> TextOptions | None:
    """A bundle's text options; its tokenizer stands for the vocabulary. None where its model reads no text."""
    if bundle.tokenizer is None:
        return None
    known = {key: value for key, value in bundle.text_options.items() if key in TextOptions.model_fields}
    return TextOptions(**known)
