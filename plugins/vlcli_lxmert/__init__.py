"""LXMERT (Tan and Bansal, EMNLP 2019): the model, its masked-object objective, and its public weight layouts."""

from vlcli_lxmert.masked_object import MaskedObject
from vlcli_lxmert.model import LXMERT
from vlcli_lxmert.names import from_public, to_airsplay, to_transformers

__all__ = ["LXMERT", "MaskedObject", "from_public", "to_airsplay", "to_transformers"]
