"""Editable installations that are older than their sources: components that pyproject.toml names and metadata lack."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import Distribution, distributions
from pathlib import Path
from urllib.parse import unquote, urlparse


def not_installed(kind: str, name: str) -> Path | None:
    """The folder of an editable installation whose pyproject.toml names a component that its metadata lack.

    Whoever updates a checkout has its new files at once, its new entry points only after installing it again.

    Args:
        kind: of the component, such as ``models``.
        name: that no metadata have.
    """
    for folder in filter(None, map(_editable, distributions())):
        if name in _named(folder, kind):
            return folder
    return None


def reinstall(folder: Path, name: str) -> str:
    """What to do about it, as a hint of an error."""
    return f"install {folder} again (pip install -e): its pyproject.toml has {name!r}, the installation not yet"


def _editable(distribution: Distribution) -> Path | None:
    """Where an editable installation has its sources; None of another one (PEP 610)."""
    try:
        found = json.loads(distribution.read_text("direct_url.json") or "{}")
    except ValueError:
        return None
    if not found.get("dir_info", {}).get("editable"):
        return None
    address = urlparse(str(found.get("url", "")))
    return Path(unquote(address.path)) if address.scheme == "file" else None


def _named(folder: Path, kind: str) -> list[str]:
    try:
        project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return list(project.get("entry-points", {}).get(f"vlcli.{kind}", {}))
    except (OSError, KeyError, ValueError, AttributeError):
        return []
