"""Defines ALBEF's answer decoder: words attend to earlier words and to the fused question, or to patches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vlcli.nn import (
    WORDS,
    AttentionContext,
    AttentionMask,
    AttentionShape,
    BlockStyle,
    CrossLayer,
    DataSpec,
    EncoderOutput,
    KeyValueCache,
    Layout,
    Recorder,
    Text,
    TextEmbeddings,
    TiedWordHead,
    build_positions,
    run_layer,
)
from vlcli.registry import Spec


@dataclass
class Saying:
    """The cache of incremental decoding.

    Attributes:
        cache: keys and values of the words so far, and of ``seen``.
        begun: (P, K) words to go on from, until the first step has read them.
    """

    seen: EncoderOutput
    cache: KeyValueCache
    begun: Tensor | None = None

    def select(self, rows: Tensor, per: int = 1) -> Saying:
        """Returns the cache of these rows; nothing but the class token is common to beams, so each keeps its own."""
        begun = None if self.begun is None else self.begun[rows]
        return Saying(self.seen.select(rows), self.cache.select(rows), begun)


class WordDecoder(nn.Module):
    """Layers in which words look at earlier words, then at what they speak of; scored by a head of its own.

    It has its own word embeddings, which the head's decoder is tied to. Attention is recorded under
    ``decoder.N.text`` and ``decoder.N.other``.
    """

    def __init__(
        self,
        data_spec: DataSpec,
        count: int,
        shape: AttentionShape,
        hidden: int | None,
        style: BlockStyle,
        attention: Spec | str,
        positions: int,
    ) -> None:
        super().__init__()
        learned = build_positions({"name": "learned", "length": positions}, shape, WORDS)[0]
        self.embed = TextEmbeddings(data_spec, shape.dim, learned, dropout=style.dropout)
        of_layers = replace(shape, layers=count, cross=True)
        self.layers = nn.ModuleList(CrossLayer(of_layers, hidden, style, attention) for _ in range(count))
        self.head = TiedWordHead(shape.dim, data_spec.vocab_size)
        self.checkpointing = False

    def forward(self, text: Text, seen: EncoderOutput, record: Recorder | None = None) -> Tensor:
        """Returns hidden states (N, T, D) of whole texts, row i of ``seen`` with row i of ``text``."""
        tokens, layout = self.embed(text)
        return self._run(tokens, layout, seen, AttentionMask(layout.valid, causal=True), None, record)

    def scores(self, hidden: Tensor) -> Tensor:
        """Returns the scores (..., V) of the next word."""
        scores: Tensor = self.head(hidden, self.embed.words.weight)  # (..., V)
        return scores

    def step(self, ids: Tensor, saying: Saying) -> tuple[Tensor, Saying]:
        """Scores (P, V) of the word after ``ids`` (P,), and what is kept from now on."""
        words = ids[:, None] if saying.begun is None else torch.cat([ids[:, None], saying.begun], 1)
        first = saying.cache.kept[0, False][0].shape[2] if saying.cache.has((0, False)) else 0
        index = torch.arange(first, first + words.shape[1], device=ids.device).expand_as(words)
        real = torch.ones_like(words, dtype=torch.bool)
        tokens, layout = self.embed(Text(words, real, ~real, index, positions=index))
        cache = KeyValueCache(dict(saying.cache.kept))
        hidden = self._run(tokens, layout, saying.seen, AttentionMask(causal=True), cache, None)
        return self.scores(hidden[:, -1]), Saying(saying.seen, cache)

    def _run(
        self,
        x: Tensor,
        layout: Layout,
        seen: EncoderOutput,
        mask: AttentionMask,
        cache: KeyValueCache | None,
        record: Recorder | None,
    ) -> Tensor:
        active = self.checkpointing and record is None and cache is None
        other_mask = AttentionMask(seen.layout.valid)
        for number, layer in enumerate(self.layers):
            shared = AttentionContext(x_layout=layout, layer=number, cache=cache, record=record)
            itself = replace(shared, mask=mask, name=f"decoder.{number}.text")
            other = replace(shared, mask=other_mask, y_layout=seen.layout, name=f"decoder.{number}.other")
            x = run_layer(layer, x, seen.hidden, itself, other, active=active)
        return x
