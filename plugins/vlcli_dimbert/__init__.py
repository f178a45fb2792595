"""DiMBERT (Liu et al. 2021): disentangled attention, visual concepts, and models that generate."""

from vlcli_dimbert.attention import DisentangledAttention
from vlcli_dimbert.language import Bidirectional, CaptionModelling, SequenceToSequence
from vlcli_dimbert.model import DiMBERT
from vlcli_dimbert.weights import to_vlp

__all__ = [
    "Bidirectional",
    "CaptionModelling",
    "DiMBERT",
    "DisentangledAttention",
    "SequenceToSequence",
    "to_vlp",
]
