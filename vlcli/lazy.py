"""Imports the public names of a package when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def lazily(package: str, homes: Mapping[str, str] | str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package.

    Args:
        package: its name.
        homes: the module of the package that defines each public name, as ``module`` or ``module:name_there``; or the
            package's ``__file__``, whose imports ``if TYPE_CHECKING`` say the same.
    """

    def get(name: str) -> Any:
        nonlocal homes
        homes = reexported(package, ast.parse(Path(homes).read_text("utf-8"))) if isinstance(homes, str) else homes
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, there = homes[name].partition(":")
        return getattr(importlib.import_module(f"{package}.{module}"), there or name)

    return get


def reexported(package: str, tree: ast.Module) -> dict[str, str]:
    """Return the names that a package's ``__init__`` imports from its modules, with their ``module:name_there``."""
    inner = [node for block in tree.body if isinstance(block, ast.If) for node in block.body]
    imports = [node for node in [*tree.body, *inner] if isinstance(node, ast.ImportFrom) and node.module]
    return {
        alias.asname or alias.name: f"{node.module.removeprefix(f'{package}.')}:{alias.name}"
        for node in imports
        if node.module and node.module.startswith(f"{package}.")
        for alias in node.names
    }
