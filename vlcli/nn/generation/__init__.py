"""Generates sentences of pictures word by word, with any model that has ``start`` and ``step``."""

from vlcli.nn.generation.search import Recomputed, generate, next_scores, rank
from vlcli.nn.generation.settings import Decoder, Generated, Generation

__all__ = ["Decoder", "Generated", "Generation", "Recomputed", "generate", "next_scores", "rank"]
