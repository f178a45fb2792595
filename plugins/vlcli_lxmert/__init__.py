"""LXMERT (Tan and Bansal, EMNLP 2019): the model, masked objects, its pre-training data, and two baselines.

The commands and readers of this package import without torch: a name is imported when it is first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vlcli_lxmert.butd import BUTD as BUTD
    from vlcli_lxmert.exporter import TransformersBUTD as TransformersBUTD
    from vlcli_lxmert.exporter import TransformersLXMERT as TransformersLXMERT
    from vlcli_lxmert.masked_object import MaskedObject as MaskedObject
    from vlcli_lxmert.model import LXMERT as LXMERT
    from vlcli_lxmert.names import from_public as from_public
    from vlcli_lxmert.names import to_airsplay as to_airsplay
    from vlcli_lxmert.names import to_transformers as to_transformers
    from vlcli_lxmert.pooled import Pooled as Pooled
    from vlcli_lxmert.readers import LxmertPretrain as LxmertPretrain
    from vlcli_lxmert.readers import LxmertSources as LxmertSources

_MODULES = {
    "BUTD": "butd",
    "Pooled": "pooled",
    "LXMERT": "model",
    "LxmertPretrain": "readers",
    "LxmertSources": "readers",
    "MaskedObject": "masked_object",
    "TransformersBUTD": "exporter",
    "TransformersLXMERT": "exporter",
    "from_public": "names",
    "to_airsplay": "names",
    "to_transformers": "names",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
