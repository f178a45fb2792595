"""Defines DiMBERT: one transformer over regions, visual concepts and words that also generates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vlcli.nn import AttentionMask, DataSpec, EncoderOutput, KeyValueCache, Layout, Text, TiedWordHead
from vlcli.registry import AttentionSpec
from vlcli_dimbert.embedding import PaperRegions, VLPRegions
from vlcli_dimbert.stream import SENTENCE, SingleStream


@dataclass
class Decoding:
    """The cache of incremental decoding, of P rows."""

    cache: KeyValueCache  # of all tokens but the mask that was asked about
    before: Tensor  # (P,) real tokens before the sentence's words, the class token included
    words: Tensor  # (P,) words so far
    begun: bool = False

    def select(self, rows: Tensor, per: int = 1) -> Decoding:
        return Decoding(self.cache.select(rows, per), self.before[rows], self.words[rows], self.begun)

    def __len__(self) -> int:
        return len(self.before)


class DiMBERT(SingleStream):
    """DiMBERT: regions, visual concepts and words in one transformer with disentangled attention.

    The sequence is [CLS] regions [SEP] concepts [SEP] words [SEP]; regions and concepts of several pictures follow one
    another. Rows whose text is ``causal`` are sequence to sequence: the prefix before the words sees itself, a word
    sees the prefix and the words up to itself. Attention is recorded under ``fuse.N``.

    Args:
        regions: how regions are embedded: as the paper prints it, or as VLP's code does.
        appearance: a region feature through fc7 anew and a linear layer (VLP), or one linear layer.
        weighted: learned weights in the sum of a region's embeddings; they start at 1.
        segments: a row for regions, concepts and sentence each (``roles``), or VLP's six rows by mode (``modes``).
        position_ids: ``restart`` in every part (a concept's is its rank), or ``running`` through the whole sequence
            (VLP); regions have none.
        rank: pieces of a concept share its rank (``concept``) or count on (``piece``).
        concepts: most concepts of a picture; 0: none, and no separator for them.
        specials: class token and separators take the words' route (``text``) or one of their own (``own``).
        images: rows of a table that tells an example's pictures apart, whose order is not seen otherwise; 0: none.
        eps: of every layer norm.
        attention: any registered attention; ``standard`` makes it the paper's ESABERT (Table 5).
    """

    paper = "DiMBERT, Liu et al., ACM TKDD 2021, arXiv:2210.16431; VLP, Zhou et al., AAAI 2020, for what it leaves open"
    capabilities = frozenset({"fuse", "generate"})
    readouts = frozenset({"pooler", "word_head"})

    def __init__(
        self,
        data_spec: DataSpec,
        *,
        attention: AttentionSpec = "disentangled",
        regions: Literal["paper", "vlp"] = "paper",
        appearance: Literal["fc7", "linear"] = "fc7",
        weighted: bool = False,
        segments: Literal["roles", "modes"] = "roles",
        position_ids: Literal["restart", "running"] = "restart",
        rank: Literal["concept", "piece"] = "concept",
        concepts: int = 20,
        specials: Literal["text", "own"] = "text",
        images: int = 0,
        eps: float = 1e-5,
        **options: Any,
    ) -> None:
        def embed(width: int, dropout: float) -> nn.Module:
            if regions == "vlp":
                return VLPRegions(data_spec, width, appearance=appearance, dropout=dropout)
            return PaperRegions(data_spec, width, appearance=appearance, weighted=weighted, eps=eps, dropout=dropout)

        choices = eps, concepts, segments == "modes", specials == "own", images
        super().__init__(data_spec, embed, *choices, attention=attention, **options)
        self.running, self.by_piece = position_ids == "running", rank == "piece"
        self.word_head = TiedWordHead(self.dim, data_spec.vocab_size, eps)
        self.initialise()

    def word_scores(self, hidden: Tensor) -> Tensor:
        return cast("Tensor", self.word_head(hidden, self.words.weight))  # (..., V)

    def start(self, image: EncoderOutput, text: Text | None = None) -> Decoding:
        rows, prefix = image.hidden.shape[0], 1 + image.hidden.shape[1]
        ids = torch.full((rows, 1), self.data_spec.cls_id, device=image.hidden.device)
        special = torch.ones_like(ids, dtype=torch.bool)
        layout = Layout.for_text(special, special, route=self.special_route) + image.layout
        x = torch.cat([self._in_role(self.words(ids), SENTENCE), image.hidden], 1)
        x = self._placed(x, layout, prefix, special[:, 0])  # (P, prefix, D)
        cache, before = KeyValueCache(), layout.valid.sum(1)
        self.stack(x, layout, AttentionMask(layout.valid), cache=cache)
        state = Decoding(cache, before, torch.zeros_like(before))
        if text is None or not (real := text.mask & ~text.special).any():  # (P, T): without specials and padding
            return state
        order = (~real).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(real.sum(1).max())]
        return self._append(state, text.ids.gather(1, order), real.gather(1, order))[0]

    def _append(self, state: Decoding, ids: Tensor, real: Tensor) -> tuple[Decoding, Tensor]:
        # Words (P, T) after those seen, and their states (P, T, D); the state handed in stays.
        count = state.words[:, None] + real.long().cumsum(1)  # (P, T): 1 for the first word
        layout = replace(Layout.for_text(real), index=count)
        place = state.before[:, None] + count - 1 if self.running else count
        x = self._normed(
            self._in_role(self.words(ids), SENTENCE), place, 0, torch.ones_like(state.before, dtype=torch.bool)
        )
        cache, seen = state.cache.copy(), cast("Layout", state.cache.layout).expand(real.shape[0])
        mask = AttentionMask(torch.cat([seen.valid, real], 1), causal=True)
        hidden, _ = self.stack(x, layout, mask, cache=cache)
        return replace(state, cache=cache, words=state.words + real.sum(1)), hidden

    def step(self, ids: Tensor, cache: Decoding) -> tuple[Tensor, Decoding]:
        # The word chosen last and a mask after it; the first ids (the class token) were seen at the start.
        mask = torch.full_like(ids, self.data_spec.mask_id)
        new = torch.stack([ids, mask], 1) if cache.begun else mask[:, None]
        grown, hidden = self._append(cache, new, torch.ones_like(new, dtype=torch.bool))
        grown.cache.truncate(grown.cache.length - 1)
        return self.word_scores(hidden[:, -1]), replace(grown, words=grown.words - 1, begun=True)
