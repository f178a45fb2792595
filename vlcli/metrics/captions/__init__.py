"""Scores captions: BLEU, ROUGE-L and CIDEr without Java, METEOR and SPICE with it."""

from vlcli.metrics.captions.cider import Cider, DocumentFrequency
from vlcli.metrics.captions.measure import bleu, rouge_l
from vlcli.metrics.captions.tokens import tokenize

__all__ = ["Cider", "DocumentFrequency", "bleu", "rouge_l", "tokenize"]
