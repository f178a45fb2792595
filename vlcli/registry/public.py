"""The public names of vlcli: what packages may import, and which private names a module imports instead.

A name is public if ``__all__`` of one of :data:`PUBLIC` lists it, or without ``__all__`` if its ``__init__`` imports
it. All other modules are private and change without notice. Nothing is imported here: the names are read from the
source files.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

from vlcli.lazy import reexported

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
"""The modules that packages import from."""
_FOLDER = Path(__file__).parents[2]


class PrivateImportWarning(FutureWarning):
    """A package imports a name of vlcli that is not public."""


@dataclass(frozen=True)
class PrivateImport:
    """A private name that a module imports.

    Attributes:
        file: of the importing module.
        line: of the import.
        name: the private name, dotted.
        public: the public name of the same thing, dotted; empty where it has none.
    """

    file: str
    line: int
    name: str
    public: str

    def __str__(self) -> str:
        remedy = f"import {self.public} instead" if self.public else "it has no public name and may change"
        return f"{self.name} is private: {remedy}"


@cache
def public_names(module: str) -> tuple[str, ...]:
    """Return the names that ``__all__`` of a public module lists, or else that it imports from its own modules."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and any(_is(target, "__all__") for target in node.targets):
            return tuple(sorted(ast.literal_eval(node.value)))
    return tuple(sorted(reexported(module, _tree(module))))


def public_name(name: str) -> str:
    """The public dotted name of what a module of vlcli defines; ``name`` itself where it has none."""
    return _homes().get(name, name)


def private_imports(file: Path) -> list[PrivateImport]:
    """The private names of vlcli that a Python file imports, by line; none where the file cannot be parsed."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError):
        return []
    return [PrivateImport(str(file), line, name, _homes().get(name, "")) for line, name in _private(tree)]


def warn_of_private_imports(module: str) -> None:
    """Warn once of each private name that a loaded package imports; called when one of its components is loaded.

    Args:
        module: a module of the package, or ``module:attribute``. All its modules that are loaded are looked at.
    """
    _warn(module.partition(":")[0].partition(".")[0])


@cache
def _warn(package: str) -> None:
    for found in imports_of(package):
        warnings.warn_explicit(str(found), PrivateImportWarning, found.file, found.line)


@cache
def imports_of(package: str) -> tuple[PrivateImport, ...]:
    """The private names that the loaded modules of a top-level package import."""
    files = [_file(module) for name, module in sorted(sys.modules.items()) if name.partition(".")[0] == package]
    return tuple(found for file in files if file for found in private_imports(file))


def _file(module: ModuleType | None) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name) if name and name.endswith(".py") else None


def _private(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything private that a module imports, wherever the import stands."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if _is_private(alias.name))
        elif isinstance(node, ast.ImportFrom) and _of_vlcli(node.module or "") and not node.level:
            home = node.module or ""
            names = [f"{home}.{alias.name}" for alias in node.names]
            yield from ((node.lineno, name) for name in names if not _is_public(home, name))


def _is_private(module: str) -> bool:
    return _of_vlcli(module) and module not in PUBLIC


def _of_vlcli(module: str) -> bool:
    return module.partition(".")[0] == "vlcli"


def _is_public(home: str, name: str) -> bool:
    last = name.rpartition(".")[2]
    return name in PUBLIC or (home in PUBLIC and (last == "*" or last in public_names(home)))


@cache
def _homes() -> dict[str, str]:
    """The public name of everything that a public module takes from a private one, both dotted."""
    found: dict[str, str] = {}
    for module in PUBLIC:
        for node in ast.walk(_tree(module)):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    if (name := alias.asname or alias.name) in public_names(module):
                        found.setdefault(f"{node.module}.{alias.name}", f"{module}.{name}")
    return found


def _tree(module: str) -> ast.Module:
    stem = _FOLDER.joinpath(*module.split("."))
    file = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
