"""Finds editable installations whose pyproject.toml names components that their metadata lack."""

from __future__ import annotations

import json
import tomllib
from importlib.metadata import distributions
from pathlib import Path
from urllib.parse import unquote, urlparse


def not_installed(kind: str, name: str) -> Path | None:
    """Returns the folder of an editable installation whose pyproject.toml names a component that its metadata lack.

    An updated checkout has its new files at once, its new entry points only after it is installed again.

    Args:
        kind: of the component, such as ``models``.
        name: that no metadata have.
    """
    for distribution in distributions():
        try:
            origin = json.loads(distribution.read_text("direct_url.json") or "{}")  # PEP 610
            address = urlparse(str(origin.get("url", "")))
            if not origin.get("dir_info", {}).get("editable") or address.scheme != "file":
                continue
            folder = Path(unquote(address.path))
            project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
            if name in project.get("entry-points", {}).get(f"vlcli.{kind}", {}):
                return folder
        except (OSError, KeyError, ValueError, AttributeError):
            continue
    return None


def reinstall(folder: Path, name: str) -> str:
    """Returns the hint of an error about a component that :func:`not_installed` found."""
    return f"install {folder} again (pip install -e): its pyproject.toml has {name!r}, the installation not yet"
