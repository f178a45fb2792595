"""Lists the installed components from entry-point metadata, and registers components at run time."""

import hashlib
import importlib.util
import json
import sys
import tomllib
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlparse

from vlcli.errors import ComponentError, did_you_mean
from vlcli.registry.packages import KINDS, Entry, expanded, listed


def not_installed(kind: str, name: str) -> Path | None:
    """Returns the folder of an editable installation whose pyproject.toml names a component that its metadata lack.

    An updated checkout has new files at once, new entry points only after it is installed again.
    """
    for distribution in distributions():
        with suppress(OSError, KeyError, ValueError, AttributeError):
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")  # PEP 610
            address = urlparse(str(origin.get("url", "")))
            if origin.get("dir_info", {}).get("editable") and address.scheme == "file":
                folder = Path(unquote(address.path))
                project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
                if name in project.get("entry-points", {}).get(f"vlcli.{kind}", {}):
                    return folder
    return None


def reinstall(folder: Path, name: str) -> str:
    """Returns the hint for a component that :func:`not_installed` found."""
    return f"install {folder} again (pip install -e): its pyproject.toml has {name!r}, the installation not yet"


T = TypeVar("T")
_NEEDS = "vlcli.needs"  # entry points that name the package a component needs: `"extractors.detectron2" = "detectron2"`
_MOST_LISTED = 40
_session: dict[tuple[str, str], Entry] = {}
_current_file = ""


def entries(kind: str | None = None) -> list[Entry]:
    """Returns the registered components of ``kind`` (None: of all kinds), sorted, with duplicates."""
    if kind is not None and kind not in KINDS:
        hint = did_you_mean(kind, KINDS, 3, 0.5)
        raise ComponentError(f"There is no kind {kind!r}.", expected=", ".join(KINDS), hint=hint)
    rows = list(_session.values())
    for entry in _installed():
        folder = entry.kind == "recipes" and ":" not in entry.value and kind in (None, "recipes")
        rows += expanded(entry) if folder else (entry,)
    return sorted((e for e in rows if kind in (None, e.kind)), key=lambda e: (e.kind, e.name, e.distribution))


def names(kind: str) -> list[str]:
    """Returns the names of ``kind``, each once."""
    return sorted({entry.name for entry in entries(kind)})


def find(kind: str, name: str) -> Entry:
    """Returns the entry of ``NAME`` or ``DISTRIBUTION:NAME``; the case of a recipe's name does not matter.

    Raises:
        ComponentError: unknown (with suggestions and the list), or ambiguous (with the distributions).
    """
    distribution, _, plain = name.rpartition(":")
    near = [e for e in entries(kind) if e.name.lower() == plain.lower() and distribution in ("", e.distribution)]
    matches = [e for e in near if e.name == plain] or (near if kind == "recipes" else [])
    if len(matches) == 1:
        return matches[0]
    if matches:
        where, got = f"vlcli.{kind}", " and ".join(f"{e.distribution} ({e.value})" for e in matches)
        hint = "name one: " + " or ".join(f"{e.distribution}:{e.name}" for e in matches)
        raise ComponentError(f"Two packages register the {kind[:-1]} {plain!r}.", where=where, got=got, hint=hint)
    known, folder = names(kind), not_installed(kind, plain)
    expected = ", ".join(known) or "(none is installed)"
    if len(known) > _MOST_LISTED:  # hundreds of recipes would bury the one name that was meant
        expected = f"one of the {len(known)} that vlcli ls {kind} lists"
    hint = reinstall(folder, name) if folder else did_you_mean(name, known, 3, 0.5) or f"list them: vlcli ls {kind}"
    what = f"There is no {kind[:-1]} called {name!r}."
    raise ComponentError(what, where=f"vlcli.{kind}", expected=expected, hint=hint)


def register(kind: str, name: str, value: Any, distribution: str = "session") -> None:
    """Registers ``value`` for this process (tests, notebooks, ``--plugin`` files).

    Raises:
        ComponentError: the same distribution has registered another component under this name.
    """
    key = (kind, f"{distribution}:{name}")
    origin = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', name)}"
    if kind not in KINDS:
        raise ComponentError(f"There is no kind {kind!r}.", expected=", ".join(KINDS))
    if key in _session and _session[key].loaded is not value:
        got = f"{_session[key].value} and {origin}"
        raise ComponentError(f"Two components are called {name!r}.", where=f"vlcli.{kind}", got=got)
    _session[key] = Entry(kind, name, origin, distribution, loaded=value)


def component(kind: str, name: str) -> Callable[[T], T]:
    """Registers the decorated class or function: ``@component("models", "mine")``."""

    def add(value: T) -> T:
        register(kind, name, value, _current_file or "session")
        return value

    return add


def load_file(path: str | Path) -> None:
    """Runs a Python file that registers components (``--plugin FILE``).

    Raises:
        ComponentError: there is no such file, or it raises.
    """
    global _current_file
    file = Path(path).resolve()
    if not file.is_file() or file.suffix != ".py":
        raise ComponentError("There is no such plugin file.", where=str(path), hint="give a Python file: NAME.py")
    name = _module_name(file)
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _current_file = file.name
    try:
        with redirect_stdout(sys.stderr):  # stdout is for what the command writes: JSON, say
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a plugin that calls sys.exit is broken too
        del sys.modules[name]
        lines = [line for at, line in traceback.walk_tb(error.__traceback__) if at.f_code.co_filename == str(file)]
        if isinstance(error, SyntaxError) and error.filename == str(file):
            lines = [error.lineno or 1]
        where, hint = f"{path}:{lines[-1]}" if lines else str(path), "mend the file; -vv shows the whole traceback"
        got = f"{type(error).__name__}: {error}"
        raise ComponentError("The plugin file raises an error.", where=where, got=got, hint=hint) from error
    finally:
        _current_file = ""


def is_loaded(path: str | Path) -> bool:
    """Whether this process has run a plugin file."""
    return _module_name(Path(path).resolve()) in sys.modules


def _module_name(file: Path) -> str:
    return f"vlcli_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


@lru_cache(maxsize=1)
def _installed() -> tuple[Entry, ...]:
    # The first of each name counts; a source tree's leftover egg-info may be stale and comes after a dist-info.
    seen: set[str] = set()
    rows: list[Entry] = []
    for distribution in sorted(distributions(), key=lambda d: str(getattr(d, "_path", "")).endswith(".egg-info")):
        name = _distribution_name(distribution)
        if name in seen:
            continue
        points = [p for p in distribution.entry_points if p.group.startswith("vlcli.")]
        if points or name == "vlcli":
            seen.add(name)
        version = distribution.version if points else ""
        needs = {p.name: (p.value,) for p in points if p.group == _NEEDS}
        interface = next((p.value.removeprefix("v") for p in points if p.group == "vlcli.interface"), "")
        for point in points:
            kind = point.group[6:]
            if kind == "packages":
                rows += listed(point.value, name, version)
            elif kind in KINDS:
                needed = needs.get(f"{kind}.{point.name}", ())
                rows.append(Entry(kind, point.name, point.value, name, version, needed, interface=interface))
    return tuple(rows)


def _distribution_name(distribution: Distribution) -> str:
    # The folder's name says it without parsing METADATA, which costs most of the start-up time.
    path = getattr(distribution, "_path", None)
    stem = Path(path).name if path is not None else distribution.metadata["Name"]
    return stem.split("-")[0].removesuffix(".egg").removesuffix(".dist").lower().replace("_", "-")
