"""Finds the components that a recipe names."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.plain import as_list
from vlcli.recipe.schema import ObjectiveOptions, ReaderOptions, Recipe, Stage, TextOptions, Training, TrainVocabulary
from vlcli.recipe.yaml import Path_, dotted, section
from vlcli.registry.schema import Spec, as_spec

# Keys of a ``data`` entry that every reader has
READER_OPTIONS = tuple(ReaderOptions.model_fields)
# Keys of an ``objectives`` entry that belong to the training, not to the objective
OBJECTIVE_OPTIONS = ("as", *ObjectiveOptions.model_fields)
# Option of a :class:`Use` of a changed objective: the parameters that changed
CHANGED = "changed"

# Registry kind of the components that a key of a stage names
FIELDS = {
    "extractor": "extractors",
    "data": "datasets",
    "validation": "datasets",
    "fit": "datasets",
    "objectives": "objectives",
    "task": "tasks",
    "transform": "transforms",
    "trackers": "trackers",
    "format": "exporters",
    "drawing": "drawings",
    "model": "models",
}
_OPTIONS = {"datasets": READER_OPTIONS, "objectives": OBJECTIVE_OPTIONS}


@dataclass(frozen=True)
class Use:
    """A component that a recipe names at ``path``; ``options`` are vlcli's keys beside the parameters."""

    kind: str
    spec: Spec
    path: Path_
    options: dict[str, Any]

    @property
    def key(self) -> str:
        return dotted(self.path)


def local_files(kind: str, spec: Spec) -> dict[str, str]:
    """Returns the words of the options in which a model, task or objective names files (imports it); of others none."""
    if kind not in ("models", "tasks", "objectives"):
        return {}
    with suppress(ComponentError):  # raised again where it is built
        options = getattr(registry.load(kind, spec["name"]), "local_files", ())
        return {key: spec[key] for key in options if isinstance(spec.get(key), str)}
    return {}


def split_options(kind: str, spec: Spec) -> tuple[Spec, dict[str, Any]]:
    """Splits an entry into the component's keys and vlcli's keys."""
    kept = _OPTIONS.get(kind, ())
    return {k: v for k, v in spec.items() if k not in kept}, {k: v for k, v in spec.items() if k in kept}


def of_recipe(recipe: Recipe) -> Iterator[Use]:
    """Yields the components named at the recipe's root."""
    if recipe.model is not None:
        yield _use("models", recipe.model, ("model",))
    yield from _of_text(recipe.text, ("text",))


def of_stage(name: str, stage: Stage) -> Iterator[Use]:
    """Yields the components that one stage names."""
    for use in of_raw_stage(name, dict(stage)):  # a model without a name adds to the recipe's model, and is none here
        yield use
        yield from _changed(use)
    if isinstance(stage, Training) and stage.text is not None:
        yield from _of_text(stage.text, ("stages", name, "text"))


def _changed(use: Use) -> Iterator[Use]:
    spec, changes = use.spec, use.options.get("changes")
    for index, change in enumerate(changes if isinstance(changes, list) else ()):
        parameters = split_options(use.kind, section(change))[0]
        if parameters:
            spec = {**spec, **parameters}
            yield Use(use.kind, spec, (*use.path, "changes", index), {CHANGED: list(parameters)})


def of_raw_stage(name: str, stage: dict[str, Any]) -> Iterator[Use]:
    """Yields the components of an unchecked stage, as far as they have the form of one."""
    for field, kind in FIELDS.items():
        value, path = stage.get(field), ("stages", name, field)
        for index, item in enumerate(as_list(value)):
            if isinstance(item, str) or (isinstance(item, dict) and isinstance(item.get("name"), str)):
                yield _use(kind, as_spec(item), (*path, index) if isinstance(value, list) else path)


def _of_text(text: TextOptions, path: Path_) -> Iterator[Use]:
    if isinstance(text.vocabulary, TrainVocabulary):
        for index, item in enumerate(text.vocabulary.train):
            yield _use("datasets", item, (*path, "vocabulary", "train", index))


def _use(kind: str, value: Spec, path: Path_) -> Use:
    spec, options = split_options(kind, value)
    return Use(kind, spec, path, options)
