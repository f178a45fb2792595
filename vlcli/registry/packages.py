"""Finds packages of components and of recipes without importing them, and describes their entries.

    [project.entry-points."vlcli.packages"]
    my-paper = "my_paper"                  # my_paper/components.toml lists the components of the package

    [project.entry-points."vlcli.recipes"]
    my-paper = "my_paper.recipes"          # a folder of the package my_paper
    alone = "my_other:alone"               # one file, alone.yaml in the folder of my_other

The recipe of ``table_1.yaml`` in such a folder is called ``my-paper/table-1``; that of ``my_paper.yaml``, which is
called like the entry point, ``my-paper``. Files whose names begin with ``_`` are no recipes.
"""

import importlib.util
import tomllib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

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
    "engines",
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


@dataclass(frozen=True)
class Entry:
    """One registered component.

    Attributes:
        value: ``module:attribute`` (of :data:`FILES`: ``package:file`` without ``.yaml``; of a package of recipes:
            ``package`` alone).
        distribution: the package that declares it, the file of ``--plugin``, or ``session`` (registered at run time).
        version: of the distribution.
        needs: packages that the distribution does not install, from the entry points ``vlcli.needs``.
        loaded: the component itself if it was registered at run time.
        interface: the version of vlcli's interface that the package states, or "".
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str = ""
    needs: tuple[str, ...] = ()
    loaded: Any = field(default=None, compare=False)
    interface: str = ""

    @property
    def package(self) -> str:
        """The top-level package of ``value``."""
        return self.value.partition(":")[0].partition(".")[0]


COMPONENTS = "components.toml"
INTERFACE, OLDEST = 1, 1
"""Version of the interface of base classes and entry points, raised with what packages from outside can newly use; and
the oldest version whose packages still work, raised when they would have to change."""


def package_folder(package: str) -> tuple[Path, Path]:
    """Returns the folders of a package's top level and of the package, without importing them."""
    top, *rest = package.split(".")
    try:
        spec = importlib.util.find_spec(top)  # a top-level package is found without being imported
    except (ImportError, ValueError):
        spec = None
    folders = list(spec.submodule_search_locations or [(spec.origin or top).removesuffix(".py")]) if spec else [top]
    return Path(folders[0]), Path(folders[0], *rest)


@lru_cache(maxsize=64)
def expanded(entry: Entry) -> tuple[Entry, ...]:
    """Returns the recipes of an entry point that names a folder; the entry itself if the folder has none."""
    _, folder = package_folder(entry.value)
    recipes = []
    for parts in sorted(file.relative_to(folder).with_suffix("").parts for file in folder.rglob("*.yaml")):
        if any(part.startswith(("_", ".")) for part in parts):
            continue
        words = [part.replace("_", "-") for part in parts]
        name = entry.name if words == [entry.name.rpartition("/")[2]] else "/".join([entry.name, *words])
        recipes.append(replace(entry, name=name, value=f"{'.'.join([entry.value, *parts[:-1]])}:{parts[-1]}"))
    return tuple(recipes) or (entry,)


def listed(package: str, distribution: str, version: str) -> Iterator[Entry]:
    """Yields the components that the file ``components.toml`` of a package lists; warns if it cannot be read.

    A table of the file is a kind (``[models]``), a key a component's name, a value a ``NAME`` of the package or
    ``MODULE:NAME`` with a module of it. ``interface`` states the :data:`INTERFACE` that the package was written for,
    the table ``needs`` the packages that a component needs (``"extractors.mine" = "package"``).
    """
    file = package_folder(package)[1] / COMPONENTS
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
        interface, needs = str(tables.get("interface", "")), tables.get("needs", {})
        for kind in (kind for kind in KINDS if kind in tables):
            for name, value in tables[kind].items():
                module, _, attribute = value.rpartition(":")
                home = f"{package}.{module}" if module else package
                needed = (needs[f"{kind}.{name}"],) if f"{kind}.{name}" in needs else ()
                yield Entry(kind, name, f"{home}:{attribute}", distribution, version, needed, interface=interface)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        fault = error.strerror if isinstance(error, OSError) else error
        what = f"the components of {package} are not listed: {file}: {fault}"
        warnings.warn(f"{what}; reinstall {distribution or package}", stacklevel=2)
