"""Former names that plugins may still use: each works, with a warning that says the present one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

NN = {
    "Facts": "DataSpec",
    "Needs": "InputSpec",
    "States": "EncoderOutput",
    "Fused": "FusionOutput",
    "Step": "ForwardPasses",
}
OBJECTIVES = {"Outcome": "ObjectiveOutput"}
DATA = {"Marks": "MaskLabels"}


def getattr_of(
    module: str, names: Mapping[str, str], others: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """``__getattr__`` of a module: former names give the present objects, with a warning.

    Args:
        module: the module's ``__name__``.
        names: present names by former ones.
        others: finds the module's other names; None: it has none that must be found.
    """

    def find(name: str) -> Any:
        if name not in names and others is not None:
            return others(name)
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        warn(f"{module}.{name}", f"{module}.{names[name]}")
        return getattr(sys.modules[module], names[name])

    return find


def take_over(cls: type, names: Mapping[str, str]) -> None:
    """Let hooks that a subclass defines under former names serve under the present ones, with a warning.

    Called by ``__init_subclass__`` of the base classes that plugins extend.

    Args:
        cls: the subclass.
        names: present names by former ones.
    """
    for former, present in names.items():
        if former in vars(cls) and present not in vars(cls):
            warn(f"{cls.__name__}.{former}", f"{cls.__name__}.{present}")
            setattr(cls, present, vars(cls)[former])


def warn(former: str, present: str) -> None:
    """One warning, attributed to the plugin's line."""
    warnings.warn(f"{former} is called {present} now", FutureWarning, stacklevel=4)
