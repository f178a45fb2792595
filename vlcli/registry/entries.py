"""Which components are installed: entry-point metadata, read without importing anything."""

from __future__ import annotations

import difflib
import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, TypeVar

from vlcli.errors import ComponentError
from vlcli.registry.builtin import BUILT_IN
from vlcli.registry.outdated import not_installed, reinstall
from vlcli.registry.packages import expanded
from vlcli.version import __version__

KINDS = (
    "models",
    "objectives",
    "positions",
    "attentions",
    "equippers",
    "extractors",
    "datasets",
    "tasks",
    "transforms",
    "roles",
    "rewrites",
    "exporters",
    "drawings",
    "trackers",
    "heads",
    "formats",
    "worlds",
    "commands",
    "recipes",
    "claims",
    "checkpoints",
)
"""The kinds of components; the entry points of a kind are the group ``vlcli.KIND``."""
FILES = ("recipes", "claims", "checkpoints")
"""Kinds whose entries name a YAML file (``package:file`` without ``.yaml``), which is read and never imported."""

T = TypeVar("T")


@dataclass(frozen=True)
class Entry:
    """One registered component.

    Attributes:
        kind: one of :data:`KINDS`.
        name: its name in a recipe.
        value: ``module:attribute`` (of :data:`FILES`: ``package:file`` without ``.yaml``; of a package of recipes:
            ``package`` alone).
        distribution: the package that declares it; ``file`` for ``--plugin`` and ``session`` for run-time registration.
        version: that package's version.
        needs: packages that its distribution does not install, as far as the metadata say so (``vlcli.needs``).
        loaded: the component itself where it was registered at run time.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str = ""
    needs: tuple[str, ...] = ()
    loaded: Any = field(default=None, compare=False)


NEEDS = "vlcli.needs"
"""Entry points that name the package a component needs: ``"extractors.detectron2" = "detectron2"``."""
_MOST_LISTED = 40
_session: dict[tuple[str, str], Entry] = {}
_BUILT_IN = tuple(
    Entry(kind, name, value, "vlcli", __version__)
    for kind, listed in BUILT_IN.items()
    for name, value in listed.items()
)


def entries(kind: str | None = None) -> list[Entry]:
    """Every registered component of ``kind`` (None: of all kinds), sorted; duplicates are all listed."""
    if kind is not None and kind not in KINDS:
        raise ComponentError(f"There is no kind {kind!r}.", expected=", ".join(KINDS), hint=_did_you_mean(kind, KINDS))
    found = [*_BUILT_IN, *_each_recipe(kind), *_session.values()]
    return sorted((e for e in found if kind in (None, e.kind)), key=lambda e: (e.kind, e.name, e.distribution))


def _each_recipe(kind: str | None) -> list[Entry]:
    """The installed components; where recipes are asked for, with those of packages of recipes one by one."""
    if kind not in (None, "recipes"):
        return list(_installed())
    found: list[Entry] = []
    for entry in _installed():
        whole = entry.kind == "recipes" and ":" not in entry.value
        found += expanded(entry) if whole else (entry,)
    return found


def names(kind: str) -> list[str]:
    """The names of ``kind``, each once."""
    return sorted({entry.name for entry in entries(kind)})


def find(kind: str, name: str) -> Entry:
    """The entry that ``name`` means: ``NAME``, or ``DISTRIBUTION:NAME`` where two packages use one name.

    Raises:
        ComponentError: unknown (with suggestions and the list), or ambiguous (naming the distributions).
    """
    distribution, _, plain = name.rpartition(":")
    found = [e for e in entries(kind) if e.name == plain and distribution in ("", e.distribution)]
    if len(found) == 1:
        return found[0]
    if found:
        raise _ambiguous(kind, plain, found)
    raise _unknown(kind, name)


def register(kind: str, name: str, value: Any, distribution: str = "session") -> None:
    """Register ``value`` for this process (tests, notebooks, ``--plugin`` files).

    Raises:
        ComponentError: the same distribution has registered another component under this name.
    """
    key = (kind, f"{distribution}:{name}")
    place = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', name)}"
    if kind not in KINDS:
        raise ComponentError(f"There is no kind {kind!r}.", expected=", ".join(KINDS))
    if key in _session and _session[key].loaded is not value:
        raise ComponentError(
            f"Two components are called {name!r}.", where=f"vlcli.{kind}", got=f"{_session[key].value} and {place}"
        )
    _session[key] = Entry(kind, name, place, distribution, loaded=value)


def component(kind: str, name: str) -> Callable[[T], T]:
    """Decorator form of :func:`register`: ``@component("models", "mine")``."""

    def add(value: T) -> T:
        register(kind, name, value, _current_file or "session")
        return value

    return add


_current_file = ""


def load_file(path: str | Path) -> None:
    """Run a Python file that registers components (``--plugin FILE``).

    Raises:
        ComponentError: there is no such file, or it raises.
    """
    global _current_file
    file = Path(path).resolve()
    if not file.is_file():
        raise ComponentError("There is no such plugin file.", where=str(path), hint="give a Python file")
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
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a plugin that calls sys.exit is broken too
        del sys.modules[name]
        raise _raises(error, file, path) from error
    finally:
        _current_file = ""


def _raises(error: BaseException, file: Path, said: str | Path) -> ComponentError:
    """The message for a plugin file that raises, with its own last line that led there."""
    lines = [line for at, line in traceback.walk_tb(error.__traceback__) if at.f_code.co_filename == str(file)]
    if isinstance(error, SyntaxError) and error.filename == str(file):
        lines = [error.lineno or 1]
    where = f"{said}:{lines[-1]}" if lines else str(said)
    hint = "mend the file; -vv shows the whole traceback"
    return ComponentError(
        "The plugin file raises an error.", where=where, got=f"{type(error).__name__}: {error}", hint=hint
    )


def is_loaded(path: str | Path) -> bool:
    """Whether this process has run a plugin file."""
    return _module_name(Path(path).resolve()) in sys.modules


def _module_name(file: Path) -> str:
    return f"vlcli_plugin_{file.stem}_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}"


@lru_cache(maxsize=1)
def _installed() -> tuple[Entry, ...]:
    """Entries of installed packages; one distribution met twice on the path counts once, the first."""
    seen: set[str] = set()
    found: list[Entry] = []
    # A source tree's leftover egg-info may be stale, so an installed dist-info of the same name goes first.
    for distribution in sorted(distributions(), key=lambda d: str(getattr(d, "_path", "")).endswith(".egg-info")):
        name = _distribution_name(distribution)
        if name in seen:
            continue
        points = [p for p in distribution.entry_points if p.group.startswith("vlcli.")]
        if points or name == "vlcli":
            seen.add(name)
        version = distribution.version if points else ""
        needs = {p.name: (p.value,) for p in points if p.group == NEEDS}
        found += [
            Entry(kind, p.name, p.value, name, version, needs.get(f"{kind}.{p.name}", ()))
            for p in points
            if (kind := p.group[6:]) in KINDS
        ]
    return tuple(found)


def _distribution_name(distribution: Distribution) -> str:
    # The folder's name says it without parsing METADATA, which costs most of the start-up time.
    path = getattr(distribution, "_path", None)
    stem = Path(path).name if path is not None else distribution.metadata["Name"]
    return stem.split("-")[0].removesuffix(".egg").removesuffix(".dist").lower().replace("_", "-")


def _did_you_mean(name: str, known: list[str] | tuple[str, ...]) -> str:
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(repr(c) for c in close)}?" if close else ""


def _unknown(kind: str, name: str) -> ComponentError:
    known = names(kind)
    listed = ", ".join(known) or "(none is installed)"
    folder = not_installed(kind, name.rpartition(":")[2])
    again = None if folder is None else reinstall(folder, name)
    return ComponentError(
        f"There is no {kind[:-1]} called {name!r}.",
        where=f"vlcli.{kind}",
        # Hundreds of recipes would bury the one name that was meant.
        expected=listed if len(known) <= _MOST_LISTED else f"one of the {len(known)} that vlcli ls {kind} lists",
        hint=again or _did_you_mean(name, known) or f"list them: vlcli ls {kind}",
    )


def _ambiguous(kind: str, name: str, found: list[Entry]) -> ComponentError:
    return ComponentError(
        f"Two packages register the {kind[:-1]} {name!r}.",
        where=f"vlcli.{kind}",
        got=" and ".join(f"{e.distribution} ({e.value})" for e in found),
        hint="name one: " + " or ".join(f"{e.distribution}:{e.name}" for e in found),
    )
