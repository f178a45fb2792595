"""vlcli: one registry and one command line for vision-language pre-training.

``import vlcli`` is cheap: torch is imported by the first name that needs it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from vlcli.version import __version__

if TYPE_CHECKING:
    from vlcli.api import Loaded, load, load_state_dict, model

__all__ = ["Loaded", "__version__", "load", "load_state_dict", "model"]


def __getattr__(name: str) -> Any:
    """Import the Python interface (and torch with it) on first use."""
    if name != "__version__" and name in __all__:
        return getattr(importlib.import_module("vlcli.api"), name)
    raise AttributeError(f"module 'vlcli' has no attribute {name!r}")
