"""Imports the public names of a package when they are first used, so that importing the package stays cheap."""

import ast
import importlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any


def lazily(package: str, file: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which imports a name from where its ``TYPE_CHECKING`` block does."""

    @cache
    def homes() -> dict[str, str]:
        return reexported(package, ast.parse(Path(file).read_text("utf-8")))

    def get(name: str) -> Any:
        if name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, _, attribute = homes()[name].partition(":")
        return getattr(importlib.import_module(f"{package}.{module}"), attribute)

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
