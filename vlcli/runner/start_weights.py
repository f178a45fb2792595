"""Checks before training whether a stage can start from the weights that it names under ``from``.

Both models are built without memory: the names and the shapes of their weights decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from vlcli.builders.context import StageContext
from vlcli.builders.resolve import kept_by
from vlcli.engine.bundle import find_bundle, read_bundle
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import VlcliError
from vlcli.nn.model import DataSpec
from vlcli.nn.undrawn import without_memory
from vlcli.recipe.resolve import resolve
from vlcli.recipe.schema import Average, Training
from vlcli.recipe.wiring import find_place

Described = tuple[dict[str, Any], list[Any]]
"""The specs of a model and of its objectives."""


def refuse_other_sizes(context: StageContext, make: Callable[[], TrainingModule], data_spec: DataSpec) -> None:
    """Refuses to start from weights of other sizes.

    A source that is no model of vlcli, or that cannot be described yet, is left to the run itself.

    Args:
        context: the stage.
        make: builds what it trains with ``data_spec`` on the meta device; called where there is something to compare.
        data_spec: invented sizes of the data, with which the sources are built too.

    Raises:
        DataError: weights of the model are not in what the stage starts from.
    """
    assert isinstance(context.config, Training)
    stages = context.recipe.stages  # those that extract or make data give no weights, nor do stores
    named = context.config.source
    names = [one for one in named if (stages[one].gives_weights if one in stages else not one.endswith(".h5"))]
    states = [state for name in names if (state := _state(context, name, data_spec)) is not None]
    if not names or len(states) < len(names):
        return
    loader = WeightLoader(make(), list(context.config.allow_unmatched))
    try:
        for name, state in zip(names, states, strict=True):
            loader.add(state, name, ours=True)
    except VlcliError:
        raise
    except Exception:  # a model's `adapt` that reads values, of which there are none yet
        return
    loader.finish()


def _state(context: StageContext, name: str, data_spec: DataSpec) -> dict[str, Tensor] | None:
    # without values; None where the model cannot be described or built
    try:
        described = next(_described(context, name), None)
        if described is None or not described[0].get("name"):
            return None
        module = without_memory(lambda: build_training_module(*described, data_spec))
    except Exception:  # a fault of the source: it is found where the source itself is checked
        return None
    return dict(module.state_dict())


def _described(context: StageContext, name: str) -> Iterator[Described]:
    stage = context.recipe.stages.get(name)
    if isinstance(stage, Training):
        resolved = resolve(context.recipe, stage, lambda word: kept_by(context, word))
        yield resolved.model or {}, resolved.objectives
    elif isinstance(stage, Average):
        yield from (described for word in stage.source for described in _described(context, word))
    elif stage is None:
        path = find_place(name, context.root)
        if path is not None and find_bundle(path) is not None:
            bundle = read_bundle(path)
            yield bundle.model_spec, bundle.objectives_specs
