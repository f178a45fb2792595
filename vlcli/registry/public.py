"""Lists the public names of vlcli from its source, and finds the private names that a module imports.

A name is public if ``__all__`` of one of :data:`PUBLIC` lists it, or without ``__all__`` if its ``__init__`` imports
it. All other modules are private and change without notice.
"""

import ast
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from vlcli.lazy import reexported

# The modules that packages import from
PUBLIC = (
    "vlcli",
    "vlcli.commands",
    "vlcli.data",
    "vlcli.data.language",
    "vlcli.data.transforms",
    "vlcli.detection",
    "vlcli.drawings",
    "vlcli.engine",
    "vlcli.errors",
    "vlcli.export",
    "vlcli.features",
    "vlcli.files",
    "vlcli.foreign",
    "vlcli.images",
    "vlcli.metrics",
    "vlcli.nn",
    "vlcli.nn.generation",
    "vlcli.objectives",
    "vlcli.progress",
    "vlcli.registry",
    "vlcli.report",
    "vlcli.tasks",
)
_FOLDER = Path(__file__).parents[2]


class PrivateImportWarning(FutureWarning):
    """A package imports a name of vlcli that is not public."""


@dataclass(frozen=True)
class PrivateImport:
    """A private dotted ``name`` that a module imports; ``public`` is that of the same object, or ""."""

    file: str
    line: int
    name: str
    public: str

    def __str__(self) -> str:
        remedy = f"import {self.public} instead" if self.public else "it has no public name and may change"
        return f"{self.name} is private: {remedy}"


@cache
def public_names(module: str) -> tuple[str, ...]:
    """Return the names in ``__all__`` of a public module, or else those that it imports from its own modules."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and "__all__" in [getattr(target, "id", "") for target in node.targets]:
            return tuple(sorted(ast.literal_eval(node.value)))
    return tuple(sorted(reexported(module, _tree(module))))


def public_name(name: str) -> str:
    """Returns the public dotted name of an object of vlcli, or ``name``."""
    return _homes().get(name, name)


def private_imports(file: Path) -> list[PrivateImport]:
    """Returns the private names of vlcli that a Python file imports; none of a file that cannot be parsed."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    return [PrivateImport(str(file), line, name, _homes().get(name, "")) for line, name in _private(tree)]


@cache
def warn_of_private_imports(package: str) -> None:
    """Warns once of each private name that the loaded modules of a top-level package import."""
    for one in imports_of(package):
        warnings.warn_explicit(str(one), PrivateImportWarning, one.file, one.line)


@cache
def imports_of(package: str) -> tuple[PrivateImport, ...]:
    """Returns the private names that the loaded modules of a top-level package import."""
    modules = [module for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == package]
    files = [getattr(module, "__file__", None) or "" for module in modules]
    return tuple(one for file in files if file.endswith(".py") for one in private_imports(Path(file)))


def _private(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "vlcli" and alias.name not in PUBLIC:
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] == "vlcli":
            home = node.module or ""
            for alias in node.names:
                public = home in PUBLIC and (alias.name == "*" or alias.name in public_names(home))
                if not public and f"{home}.{alias.name}" not in PUBLIC:
                    yield node.lineno, f"{home}.{alias.name}"


@cache
def _homes() -> dict[str, str]:
    # Public names by private ones, both dotted.
    homes: dict[str, str] = {}
    for module in PUBLIC:
        for node in ast.walk(_tree(module)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (name := alias.asname or alias.name) in public_names(module):
                        homes.setdefault(f"{node.module}.{alias.name}", f"{module}.{name}")
    return homes


def _tree(module: str) -> ast.Module:
    stem = _FOLDER.joinpath(*module.split("."))
    file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))
