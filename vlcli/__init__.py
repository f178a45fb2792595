"""vlcli: one registry and one command line for vision-language pre-training.

``import vlcli`` is cheap: torch is imported by the first name that needs it.
"""

from typing import TYPE_CHECKING

from vlcli.lazy import lazily
from vlcli.version import __version__

if TYPE_CHECKING:
    from vlcli.api import Loaded, load, load_state_dict, model
    from vlcli.results import Page, Table, page, table

__all__ = ["Loaded", "Page", "Table", "__version__", "load", "load_state_dict", "model", "page", "table"]

__getattr__ = lazily(__name__, __file__)
