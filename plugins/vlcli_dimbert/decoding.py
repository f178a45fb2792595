"""Incremental decoding of a single-stream model: the prefix is seen once, each word costs two tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vlcli.nn import TEXT, AttentionMask, DataSpec, EncoderOutput, KeyValueCache, Layout, Text, TiedWordHead
from vlcli_dimbert.stream import SENTENCE, Core, SingleStream


@dataclass
class Decoding:
    """What incremental decoding has seen: P rows.

    Attributes:
        cache: keys and values of everything but the mask that was asked about.
        before: (P,) real tokens before the sentence's words, the class token included.
        words: (P,) words so far.
        begun: whether the class token's own step is done.
    """

    cache: KeyValueCache
    before: Tensor
    words: Tensor
    begun: bool = False

    def select(self, rows: Tensor, per: int = 1) -> Decoding:
        """The given rows, repeats allowed; ``per`` neighbours come of one picture."""
        return Decoding(self.cache.select(rows, per), self.before[rows], self.words[rows], self.begun)

    def __len__(self) -> int:
        return len(self.before)


class Generating(SingleStream):
    """A single stream with a word head, which decodes word by word.

    Args:
        data_spec: vocabulary, feature sizes, the concepts' word pieces.
        regions: embeds regions.
        core: sizes and choices.
    """

    capabilities = frozenset({"fuse", "generate"})
    readouts = frozenset({"pooler", "word_head"})

    def __init__(self, data_spec: DataSpec, regions: nn.Module, core: Core) -> None:
        super().__init__(data_spec, regions, core)
        self.word_head = TiedWordHead(core.hidden, data_spec.vocab_size, core.eps)

    def word_scores(self, hidden: Tensor) -> Tensor:
        out: Tensor = self.word_head(hidden, self.words.weight)
        return out

    def start(self, image: EncoderOutput, text: Text | None = None) -> Decoding:
        rows, prefix = image.hidden.shape[0], 1 + image.hidden.shape[1]
        first, layout = self._words(torch.full((rows, 1), self.data_spec.cls_id, device=image.hidden.device))
        layout = replace(layout, special=torch.ones_like(layout.special))
        layout = self._special(layout) + image.layout
        causal = torch.ones(rows, dtype=torch.bool, device=first.device)
        x = self._placed(torch.cat([first, image.hidden], 1), layout, prefix, causal)
        made = KeyValueCache()
        self.stack(x, layout, AttentionMask(layout.valid), cache=made)
        before = layout.valid.sum(1)
        state = Decoding(made, before, torch.zeros_like(before))
        return state if text is None else self._continued(state, text)

    def _special(self, layout: Layout) -> Layout:
        return layout if self.special_route == TEXT else layout.with_route(self.special_route)

    def _words(self, ids: Tensor) -> tuple[Tensor, Layout]:
        x = self.words(ids) if self.core.by_mode else self.words(ids) + self.segments.weight[SENTENCE]
        return x, Layout.for_text(torch.ones_like(ids, dtype=torch.bool))

    def _continued(self, state: Decoding, text: Text) -> Decoding:
        real = text.mask & ~text.special
        if not bool(real.any()):
            return state
        order = (~real).to(torch.uint8).argsort(dim=1, stable=True)[:, : int(real.sum(1).max())]
        return self._append(state, text.ids.gather(1, order), real.gather(1, order))[0]

    def _append(self, state: Decoding, ids: Tensor, real: Tensor) -> tuple[Decoding, Tensor]:
        x, layout = self._words(ids)
        count = state.words[:, None] + real.long().cumsum(1)  # (P, T): 1 for the first word
        layout = replace(layout, valid=real, index=count)
        place = state.before[:, None] + count - 1 if self.core.running else count
        x = self._normed(x, place, 0, torch.ones_like(state.before, dtype=torch.bool))
        seen = state.cache.layout
        assert seen is not None
        cache = state.cache.copy()
        mask = AttentionMask(torch.cat([seen.expand(real.shape[0]).valid, real], 1), causal=True)
        hidden, _ = self.stack(x, layout, mask, cache=cache)
        return Decoding(cache, state.before, state.words + real.sum(1), state.begun), hidden

    def step(self, ids: Tensor, cache: Decoding) -> tuple[Tensor, Decoding]:
        mask = torch.full_like(ids, self.data_spec.mask_id)
        new = torch.stack([ids, mask], 1) if cache.begun else mask[:, None]
        grown, hidden = self._append(cache, new, torch.ones_like(new, dtype=torch.bool))
        grown.cache.truncate(grown.cache.length - 1)
        made = replace(grown, words=grown.words - 1, begun=True)
        return self.word_scores(hidden[:, -1]), made
