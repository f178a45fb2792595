"""Describes one registered component: kind, name, and where its code is."""

from __future__ import annotations

from dataclasses import dataclass, field
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
        distribution: the package that declares it; the file's name for ``--plugin``, ``session`` for run-time
            registration.
        version: of that package.
        needs: packages that its distribution does not install, from the entry points ``vlcli.needs``.
        loaded: the component itself if it was registered at run time.
        interface: the version of vlcli's interface that its package states; empty where it states none.
    """

    kind: str
    name: str
    value: str
    distribution: str
    version: str = ""
    needs: tuple[str, ...] = ()
    loaded: Any = field(default=None, compare=False)
    interface: str = ""
