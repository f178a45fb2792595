"""Options of components that have a new name: refused in recipes, converted in files that vlcli wrote earlier.

A package declares them as entry points in the group ``vlcli.renames``, ``"KIND.COMPONENT.FORMER" = "present"``, so that
nothing needs to be imported to know them::

    [project.entry-points."vlcli.renames"]
    "models.deit.dim" = "hidden"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vlcli.errors import ComponentError, Problem
from vlcli.registry.entries import find
from vlcli.registry.schema import Spec

_NESTED = ("positions", "attentions")
"""Kinds of the components that stand inside another one's options."""


def renamed(kind: str, name: str) -> dict[str, str]:
    """The present name of every option that a component formerly called otherwise; empty for unknown components."""
    try:
        return dict(find(kind, name).renames)
    except ComponentError:
        return {}


def former_names(kind: str, spec: Mapping[str, Any], key: str) -> list[Problem]:
    """One problem for each option of a recipe's component that has a new name.

    Where a former name is in use again with another meaning, it is refused unless the option that took over its former
    meaning stands beside it: ``hidden`` of ``detr`` was the size that is called ``intermediate`` today.

    Args:
        kind: registry kind.
        spec: name and options as the recipe has them.
        key: where in the recipe the component stands (dotted).
    """
    names = renamed(kind, str(spec.get("name")))
    found = []
    for former, present in names.items():
        reused = former in names.values()
        if former in spec and not (reused and present in spec):
            what = f"{former!r} has a new meaning" if reused else f"{former!r} has a new name"
            hint = f"say {present!r} too: that is what {former!r} was" if reused else f"call it {present!r}"
            found.append(Problem(f"{key}.{former}", what, got=former, expected=present, hint=hint))
    return found


def present(kind: str, value: Any) -> Any:
    """A component as an earlier version wrote it, with today's names of its options."""
    return _translated(kind, value, renamed)


def former(kind: str, value: Any) -> Any:
    """A component as the first version would have written it: stage keys are computed from these names.

    So a finished stage stays finished when its recipe follows a renaming.
    """
    return _translated(kind, value, lambda kind, name: {new: old for old, new in renamed(kind, name).items()})


def _translated(kind: str, value: Any, names_of: Callable[[str, str], dict[str, str]]) -> Any:
    if isinstance(value, list):
        return [_translated(kind, item, names_of) for item in value]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return value
    names = names_of(kind, value["name"])
    return {names.get(key, key): _nested(item, names_of) for key, item in value.items()}


def _nested(value: Any, names_of: Callable[[str, str], dict[str, str]]) -> Any:
    for kind in _NESTED:
        value = _translated(kind, value, names_of) if isinstance(value, dict | list) else value
    return value


def with_model_name(value: Spec, name: str, translate: Callable[[str, Any], Any]) -> Spec:
    """A stage's changes of its recipe's model, which leave out its name, translated as options of that model."""
    changed: Spec = translate("models", {**value, "name": name})
    return changed if "name" in value else {key: item for key, item in changed.items() if key != "name"}
