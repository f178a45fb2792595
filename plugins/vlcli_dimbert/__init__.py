"""DiMBERT (Liu et al. 2021): disentangled attention, visual concepts, and models that generate."""

from vlcli_dimbert.ablations import ImageSentence, MaskedConcept, MaskedRoI
from vlcli_dimbert.attention import DisentangledAttention
from vlcli_dimbert.language import Bidirectional, CaptionModelling, SequenceToSequence
from vlcli_dimbert.model import Decoding, DiMBERT
from vlcli_dimbert.table6 import UNITER, VLBERT
from vlcli_dimbert.vilbert import ViLBERT
from vlcli_dimbert.weights import to_vlp
