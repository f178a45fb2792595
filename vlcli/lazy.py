"""Imports the public names of a package when they are first used, so that importing the package stays cheap."""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from functools import cache
from typing import Any


def lazily(package: str) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package, which imports a name from where its ``TYPE_CHECKING`` block does."""

    @cache
    def homes() -> dict[str, tuple[str, str]]:
        tree = ast.parse(inspect.getsource(sys.modules[package]))
        block = next(node for node in tree.body if isinstance(node, ast.If))
        imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
        return {name.asname or name.name: (str(node.module), name.name) for node in imports for name in node.names}

    def get(name: str) -> Any:
        if name.startswith("__") or name not in homes():
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = homes()[name]
        return getattr(importlib.import_module(module), attribute)

    return get
