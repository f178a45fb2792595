"""Ranking of given sentences by how likely a decoder says them."""

from __future__ import annotations

import torch
from torch import Tensor

from vlcli.nn.batch import Text
from vlcli.nn.model import EncoderOutput, Model


@torch.no_grad()
def rank(
    model: Model, seen: EncoderOutput, candidates: Text, count: int, *, first_twice: bool = True, block: int = 512
) -> tuple[Tensor, Tensor]:
    """The likeliest candidates for each row, best first (ALBEF's answer ranking).

    The ``count`` candidates whose first word is likeliest are said in full; their likelihoods, as a softmax over them,
    decide.

    Args:
        model: with a decoder.
        seen: B rows that are spoken of.
        candidates: N sentences, the class token first, the end last.
        count: how many are said in full; all where there are fewer.
        first_twice: the likelihood of the first word counts once more, as in ALBEF's released code.
        block: sentences said at a time.

    Returns:
        (B, count) places among the candidates and their probabilities.
    """
    count = min(count, len(candidates))
    opening = candidates.ids[:1, :1].expand(len(seen.hidden), 1)
    real = torch.ones_like(opening, dtype=torch.bool)
    start = model.decode(Text(opening, real, real, opening * 0), seen)
    chance = model.next_words(start[:, 0]).softmax(1).index_select(1, candidates.ids[:, 1])  # (B, N)
    chance, places = chance.topk(count, 1)
    rows = torch.arange(len(places), device=places.device).repeat_interleave(count)
    pairs = zip(rows.split(block), places.flatten().split(block), strict=True)
    likely = torch.cat([_likelihood(model, seen.select(r), candidates.select(p)) for r, p in pairs])
    likely = likely.reshape(places.shape) + (chance.log() if first_twice else 0)
    best, order = likely.softmax(1).topk(count, 1)
    return places.gather(1, order), best


def _likelihood(model: Model, seen: EncoderOutput, text: Text) -> Tensor:
    # (P,) log likelihood of whole sentences, row i about row i
    longest = int(text.mask.sum(1).max())
    ids, mask = text.ids[:, :longest], text.mask[:, :longest]
    hidden = model.decode(Text(ids, mask, text.special[:, :longest], text.words[:, :longest]), seen)
    places = mask[:, 1:]
    logs = model.next_words(hidden[:, :-1][places]).log_softmax(1).gather(1, ids[:, 1:][places][:, None])[:, 0]
    rows = places.nonzero()[:, 0]
    return logs.new_zeros(len(ids)).index_add(0, rows, logs)
