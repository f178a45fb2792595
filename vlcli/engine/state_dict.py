"""Loads weights that a program has in memory into a model."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from vlcli.engine.training_module import TrainingModule
from vlcli.engine.weights import LoadReport, WeightLoader
from vlcli.nn.model import Model
from vlcli.nn.weights import states_of


def load_state_dict(
    model: Model,
    state: Mapping[str, Any],
    *,
    names: Mapping[str, str] | Callable[[str], str] = MappingProxyType({}),
    key: str | None = None,
    allow_unmatched: Iterable[str] = (),
) -> LoadReport:
    """Loads tensors in memory as ``from: FILE`` of a recipe loads a file; after an error the model is as before.

    Prefixes of wrappers (``module.``, ``model.``) are removed, then the model's ``adapt`` converts names.

    Args:
        model: of ``vlcli.model(...)``, or ``vlcli.load(...).model``.
        state: tensors by name, or a checkpoint that holds them under some key (``{"model": {...}, "epoch": 3}``).
        names: new prefixes by old ones, as ``rename`` in a recipe; or a function of each name.
        key: of the state dict in a checkpoint; None: the averaged one, else the first.
        allow_unmatched: patterns (searched) of the model's names that may keep their values.

    Raises:
        DataError: a weight of the model is missing or of another shape, or ``names`` or ``key`` fits nothing.
    """
    where, before = Path("the state dict"), {name: value.clone() for name, value in model.state_dict().items()}
    states, prefixes = states_of(state, where), names if isinstance(names, Mapping) else {}
    if not isinstance(names, Mapping):
        states = {part: {names(name): value for name, value in one.items()} for part, one in states.items()}
    try:
        loader = WeightLoader(TrainingModule(model, {}, []), allow_unmatched)
        loader.add_file(where, states, key, prefixes)
        return loader.finish()
    except Exception:
        model.load_state_dict(before)
        raise
