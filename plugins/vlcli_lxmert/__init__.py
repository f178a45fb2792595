"""LXMERT (Tan and Bansal, EMNLP 2019): the model, masked objects, its pre-training data, and two baselines.

The commands and readers of this package import without torch: a name is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vlcli_lxmert.butd import BUTD
    from vlcli_lxmert.exporter import TransformersBUTD, TransformersLXMERT
    from vlcli_lxmert.masked_object import MaskedObject
    from vlcli_lxmert.model import LXMERT
    from vlcli_lxmert.names import from_public, to_airsplay, to_transformers
    from vlcli_lxmert.pooled import Pooled
    from vlcli_lxmert.readers import LxmertPretrain, LxmertSources

_NAMES = {
    "butd": ("BUTD",),
    "exporter": ("TransformersBUTD", "TransformersLXMERT"),
    "masked_object": ("MaskedObject",),
    "model": ("LXMERT",),
    "names": ("from_public", "to_airsplay", "to_transformers"),
    "pooled": ("Pooled",),
    "readers": ("LxmertPretrain", "LxmertSources"),
}


def __getattr__(name: str) -> Any:
    for module, names in _NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
