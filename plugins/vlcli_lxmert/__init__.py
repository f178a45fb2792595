"""LXMERT (Tan and Bansal, EMNLP 2019): the model, masked objects, public weight layouts, and its baseline BUTD."""

from vlcli_lxmert.butd import BUTD
from vlcli_lxmert.exporter import Transformers
from vlcli_lxmert.masked_object import MaskedObject
from vlcli_lxmert.model import LXMERT
from vlcli_lxmert.names import from_public, to_airsplay, to_transformers

__all__ = ["BUTD", "LXMERT", "MaskedObject", "Transformers", "from_public", "to_airsplay", "to_transformers"]
