"""Former names that plugins may still use: each works, with a warning that says the present one."""

from __future__ import annotations

import importlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

NN = {
    "Facts": "DataSpec",
    "Needs": "InputSpec",
    "States": "EncoderOutput",
    "Fused": "FusionOutput",
    "Step": "ForwardPasses",
    "Detections": "DetectionOutput",
}
OBJECTIVES = {"Outcome": "ObjectiveOutput"}
DATA = {"Marks": "MaskLabels"}
MODULES = {
    "vlcli.engine.learner": "vlcli.engine.training_module",
    "vlcli.engine.loop": "vlcli.engine.trainer",
    "vlcli.nn.step": "vlcli.nn.forward_passes",
    "vlcli.recipe.ledger": "vlcli.recipe.stage_record",
}
"""Modules by the names that earlier plugins import."""


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


class FormerModules(MetaPathFinder, Loader):
    """Finds the modules of :data:`MODULES` under their former names, each with a warning.

    ``import vlcli`` puts it behind the finders of Python.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Called by Python for a module that no other finder knows."""
        return ModuleSpec(fullname, self) if fullname in MODULES else None

    def exec_module(self, module: ModuleType) -> None:
        """Called by Python once per former name: the present module takes the place of the empty one."""
        warn(module.__name__, MODULES[module.__name__], stacklevel=3)
        sys.modules[module.__name__] = importlib.import_module(MODULES[module.__name__])


class Attribute:
    """A former name of an attribute or method: reading it gives the present one, with a warning.

    A subclass may assign the former name on its instances: the assigned value is then read, without a warning.

    Args:
        present: the present name.
    """

    def __init__(self, present: str) -> None:
        self.present = present

    def __set_name__(self, owner: type, name: str) -> None:
        self.former = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        cls = type(instance).__name__
        warn(f"{cls}.{self.former}", f"{cls}.{self.present}", stacklevel=3)
        return getattr(instance, self.present)


def keywords(**names: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a function that is also called with former names of its parameters: each works, with a warning.

    Args:
        names: present names by former ones.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            for former in [name for name in names if name in kwargs]:
                warn(f"{function.__qualname__}({former}=)", f"{names[former]}=", stacklevel=3)
                kwargs[names[former]] = kwargs.pop(former)
            return function(*args, **kwargs)

        return call

    return decorate


def warn(former: str, present: str, stacklevel: int = 4) -> None:
    """One warning, attributed to the plugin's line."""
    warnings.warn(f"{former} is called {present} now", FutureWarning, stacklevel=stacklevel)
