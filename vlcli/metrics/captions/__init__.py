"""How good captions are: BLEU, ROUGE-L, CIDEr without Java; METEOR and SPICE where Java is."""

from vlcli.metrics.captions.bleu import bleu
from vlcli.metrics.captions.cider import Cider, DocumentFrequency
from vlcli.metrics.captions.rouge import rouge_l
from vlcli.metrics.captions.tokens import tokenize

__all__ = ["Cider", "DocumentFrequency", "bleu", "rouge_l", "tokenize"]
