"""Generates without a cache: every word runs the whole sequence again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vlcli.nn.batch import Text
from vlcli.nn.model import EncoderOutput, Model


def next_scores(model: Model, image: EncoderOutput, ids: Tensor) -> Tensor:
    """Return the logits (P, V) of the next word from one pass over picture, words and a mask.

    Args:
        model: with ``fuse`` and ``word_scores`` and causal texts.
        image: P rows as ``fuse`` takes them.
        ids: (P, T) words so far, the class token first.
    """
    whole = torch.cat([ids, ids.new_full((len(ids), 1), model.data_spec.mask_id)], 1)  # (P, T + 1)
    real = torch.ones_like(whole, dtype=torch.bool)
    special = torch.zeros_like(real)
    special[:, 0] = True
    places = torch.arange(-1, whole.shape[1] - 1, device=ids.device).expand(len(ids), -1)
    text = Text(whole, real, special, places, causal=real[:, 0])
    states = model.embed_text(text) if model.fuse_takes == "embeddings" else model.encode_text(text)
    return model.word_scores(model.fuse(states, image).text.hidden[:, -1])


@dataclass
class _Seen:
    image: EncoderOutput
    ids: Tensor

    def select(self, rows: Tensor, per: int = 1) -> _Seen:
        """Select rows, repeats allowed; ``per`` neighbours belong to one picture."""
        return _Seen(self.image.select(rows), self.ids[rows])


class Recomputed:
    """A :class:`Decoder` whose cache holds only pictures and words."""

    def __init__(self, model: Model) -> None:
        self.model, self.data_spec = model, model.data_spec

    def start(self, image: EncoderOutput, text: Text | None = None) -> _Seen:
        """Start with no words, or with ``text``, whose rows have one length."""
        empty = torch.zeros(len(image.hidden), 0, dtype=torch.long, device=image.hidden.device)
        if text is None:
            return _Seen(image, empty)
        first = empty.new_full((len(empty), 1), self.data_spec.cls_id)
        said = text.ids[text.mask & ~text.special].unflatten(0, (len(text.ids), -1))
        return _Seen(image, torch.cat([first, said], 1))

    def step(self, ids: Tensor, cache: _Seen) -> tuple[Tensor, _Seen]:
        """Append the word, and run the full sequence."""
        begun = cache.ids.shape[1] and bool((ids == self.data_spec.cls_id).all())
        seen = cache if begun else _Seen(cache.image, torch.cat([cache.ids, ids[:, None]], 1))
        return next_scores(self.model, seen.image, seen.ids), seen
