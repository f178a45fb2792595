"""Selects components to check, and turns what a check raises into a result."""

import sys
import tomllib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from vlcli import registry
from vlcli.errors import ComponentError, UsageError, VlcliError
from vlcli.registry import Entry
from vlcli.registry.contract import blame, fault, in_a_line, origin
from vlcli.registry.packages import listed

PASSED, FAILED, SKIPPED = "passed", "failed", "does not apply"
_NOT_CHECKED = (*registry.FILES, "commands", "engines")


@dataclass(frozen=True)
class Result:
    """Result of one check: :data:`PASSED`, :data:`FAILED` at ``where`` (``file:line``), or :data:`SKIPPED`."""

    kind: str
    name: str
    check: str
    state: str = PASSED
    where: str = ""
    got: str = ""
    expected: str = ""

    def __str__(self) -> str:
        where = f" ({self.where})" if self.where else ""
        expected = f"; expected {self.expected}" if self.expected else ""
        return f"{self.kind[:-1]} {self.name}, {self.check}{where}: {self.got}{expected}"


class Failure(Exception):  # noqa: N818  (a check that fails is no fault of vlcli)
    """Raised by a check that a component does not pass."""

    def __init__(self, got: str, expected: str) -> None:
        super().__init__(got)
        self.got, self.expected = got, expected


class DoesNotApply(Exception):  # noqa: N818
    """Raised by a check that means nothing for a component."""


Check = Callable[[Entry], None]


def chosen(what: str | None) -> list[Entry]:
    """Return the components of a package, of its folder, or of a name; without one, all components.

    Raises ComponentError: nothing has that name; UsageError: the folder declares no component.
    """
    known = [entry for entry in registry.entries() if entry.kind not in _NOT_CHECKED]
    if what is None:
        return known
    if Path(what).is_dir():
        return of_folder(Path(what))
    entries = [entry for entry in known if what in (entry.distribution, entry.name)]
    if not entries:
        expected, hint = "an installed package, a component, or a folder with pyproject.toml", "list them: vlcli ls"
        raise ComponentError("There is no such package or component.", got=repr(what), expected=expected, hint=hint)
    return entries


def of_folder(folder: Path) -> list[Entry]:
    """Return, and register, the components of a folder's ``pyproject.toml``. Raises UsageError: it declares none."""
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        points = {group[6:]: names for group, names in project["entry-points"].items() if group.startswith("vlcli.")}
        distribution, version = project["name"].lower(), str(project.get("version", ""))
    except (OSError, KeyError, AttributeError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        got = f"{type(error).__name__}: {error}"
        expected = '[project.entry-points."vlcli.models"] and the like'
        raise UsageError("The folder declares no components.", where=str(file), got=got, expected=expected) from None
    sys.path[:0] = [str(path) for path in (folder / "src", folder) if path.is_dir() and str(path) not in sys.path]
    installed = {(entry.kind, entry.name) for entry in registry.entries() if entry.distribution == distribution}
    named = [
        Entry(kind, name, value, distribution, version)
        for kind in registry.KINDS
        for name, value in points.get(kind, {}).items()
    ]
    for package in points.get("packages", {}).values():
        named += listed(package, distribution, version)
    entries = []
    for entry in (entry for entry in named if entry.kind not in _NOT_CHECKED):
        try:
            if (entry.kind, entry.name) not in installed:
                registry.register(entry.kind, entry.name, imported(entry), distribution)
            entries.append(registry.find(entry.kind, f"{distribution}:{entry.name}"))
        except Exception:  # the check of its interface says why it cannot be imported
            entries.append(entry)
    return entries


def imported(entry: Entry) -> Any:
    """Import a component from the module that its entry names."""
    return resolve_name(entry.value) if entry.loaded is None else entry.loaded


def one(entry: Entry, name: str, check: Check) -> Result:
    """Run a check; an exception of the component is a failure with the line of its author's code."""
    try:
        check(entry)
    except DoesNotApply as reason:
        return Result(entry.kind, entry.name, name, SKIPPED, got=str(reason))
    except Exception as error:
        return Result(entry.kind, entry.name, name, FAILED, *_failure(entry, error))
    return Result(entry.kind, entry.name, name)


def _failure(entry: Entry, error: Exception) -> tuple[str, str, str]:
    target = None
    with suppress(Exception):
        target = imported(entry)
    where = entry.value if target is None else origin(target)
    if isinstance(error, Failure):
        return where, error.got, error.expected
    if isinstance(error, VlcliError):
        return error.where or where, f"{error.what} {error.got}".strip(), error.expected
    return blame(error, target), in_a_line(error), ""


def interface(entry: Entry) -> None:
    """It can be imported, has the base class and methods of its kind, a summary, and options with defaults."""
    target = imported(entry)
    if wrong := fault(entry.kind, target):
        raise Failure(wrong, f"what docs/seams.md lists for {entry.kind}")
    if not (getattr(target, "__doc__", None) or "").strip():
        raise Failure("no docstring", "a first line that says what it is: vlcli ls and show print it")
    if private := registry.private_imports_of(entry):
        raise Failure(private[0], "public names only (docs/api.md)")
    registry.parameters(target)
