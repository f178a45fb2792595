"""What every component must do, checked: ``vlcli plugin check`` asks it of a package, a test of the built-ins."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vlcli import registry
from vlcli.errors import ComponentError, UsageError, VlcliError
from vlcli.registry import Entry
from vlcli.registry.contract import blame, fault, origin

PASSED, FAILED, SKIPPED = "passed", "failed", "does not apply"


@dataclass(frozen=True)
class Result:
    """One check of one component.

    Attributes:
        kind: of the component.
        name: of the component.
        check: what was checked.
        state: :data:`PASSED`, :data:`FAILED` or :data:`SKIPPED`.
        where: ``file:line``, where it failed.
        got: what was found.
        expected: what would have been right.
    """

    kind: str
    name: str
    check: str
    state: str = PASSED
    where: str = ""
    got: str = ""
    expected: str = ""

    def __str__(self) -> str:
        """One line: what, where, got, expected."""
        place = f" ({self.where})" if self.where else ""
        wanted = f"; expected {self.expected}" if self.expected else ""
        return f"{self.kind[:-1]} {self.name}, {self.check}{place}: {self.got}{wanted}"


class Failure(Exception):  # noqa: N818  (a check that fails is no fault of vlcli)
    """A check that a component does not pass.

    Args:
        got: what was found.
        expected: what would have been right.
    """

    def __init__(self, got: str, expected: str) -> None:
        super().__init__(got)
        self.got, self.expected = got, expected


class DoesNotApply(Exception):  # noqa: N818
    """A check that means nothing for this component."""


Check = Callable[[Entry], None]


def chosen(what: str | None) -> list[Entry]:
    """The components of a package, of its folder, or of a name; all of them without one.

    Raises:
        ComponentError: nothing has that name.
        UsageError: the folder declares no component.
    """
    known = [entry for entry in registry.entries() if entry.kind not in (*registry.FILES, "commands")]
    if what is None:
        return known
    if Path(what).is_dir():
        return of_folder(Path(what))
    found = [entry for entry in known if what in (entry.distribution, entry.name)]
    if not found:
        expected, hint = "an installed package, a component, or a folder with pyproject.toml", "list them: vlcli ls"
        raise ComponentError("There is no such package or component.", got=repr(what), expected=expected, hint=hint)
    return found


def of_folder(folder: Path) -> list[Entry]:
    """The components that a folder's ``pyproject.toml`` declares; registered for this process if not installed.

    Raises:
        UsageError: it declares none, or cannot be read.
    """
    file = folder / "pyproject.toml"
    try:
        project = tomllib.loads(file.read_text(encoding="utf-8"))["project"]
        points = {group[6:]: names for group, names in project["entry-points"].items() if group[6:] in registry.KINDS}
    except (OSError, KeyError, AttributeError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        got = f"{type(error).__name__}: {error}"
        expected = '[project.entry-points."vlcli.models"] and the like'
        raise UsageError("The folder declares no components.", where=str(file), got=got, expected=expected) from None
    sys.path[:0] = [str(path) for path in (folder / "src", folder) if path.is_dir() and str(path) not in sys.path]
    installed = {(e.kind, e.name) for e in registry.entries() if e.distribution == project["name"].lower()}
    rows = [(kind, name, value) for kind, names in points.items() for name, value in names.items()]
    return [
        registry.find(kind, f"{project['name'].lower()}:{name}") if (kind, name) in installed else _added(project, *row)
        for row in rows
        for kind, name, _ in [row]
        if kind not in (*registry.FILES, "commands")
    ]


def _added(project: dict[str, Any], kind: str, name: str, value: str) -> Entry:
    """A component of a folder that is not installed, under its own name."""
    made = Entry(kind, name, value, project["name"].lower(), str(project.get("version", "")))
    try:
        registry.register(kind, name, imported(made), made.distribution)
    except Exception:  # the check of its interface says why it cannot be imported
        return made
    return registry.find(kind, f"{made.distribution}:{name}")


def imported(entry: Entry) -> Any:
    """The component itself, imported from the module that its entry names."""
    if entry.loaded is not None:
        return entry.loaded
    module, _, attribute = entry.value.partition(":")
    __import__(module)
    found: Any = sys.modules[module]
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def one(entry: Entry, name: str, check: Check) -> Result:
    """What a check finds; whatever the component raises is a failure with its author's line."""
    try:
        check(entry)
    except DoesNotApply as reason:
        return Result(entry.kind, entry.name, name, SKIPPED, got=str(reason))
    except Failure as failure:
        where = _origin(entry)
        return Result(entry.kind, entry.name, name, FAILED, where, failure.got, failure.expected)
    except VlcliError as error:
        got = f"{error.what} {error.got}".strip()
        return Result(entry.kind, entry.name, name, FAILED, error.where or _origin(entry), got, error.expected)
    except Exception as error:
        text = (str(error).strip() or "no message").split("\n")[0]
        return Result(
            entry.kind, entry.name, name, FAILED, blame(error, _target(entry)), f"{type(error).__name__}: {text}"
        )
    return Result(entry.kind, entry.name, name)


def _origin(entry: Entry) -> str:
    target = _target(entry)
    return origin(target) if target is not None else entry.value


def _target(entry: Entry) -> Any:
    try:
        return imported(entry)
    except Exception:
        return None


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
