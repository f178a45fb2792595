"""Ranks candidate sentences by their likelihood."""

from __future__ import annotations

import torch
from torch import Tensor

from vlcli.nn.batch import Text
from vlcli.nn.model import EncoderOutput, Model


@torch.no_grad()
def rank(
    model: Model, seen: EncoderOutput, candidates: Text, count: int, *, first_twice: bool = True, block: int = 512
) -> tuple[Tensor, Tensor]:
    """Return the likeliest candidates for each row, best first (ALBEF's answer ranking).

    The whole likelihood is computed of the ``count`` candidates whose first word is likeliest.

    Args:
        model: with a decoder.
        seen: B rows that the decoder attends to.
        candidates: N sentences, the class token first, the end last.
        first_twice: count the likelihood of the first word twice, as ALBEF's released code does.
        block: sentences per decoder pass.

    Returns:
        (B, count) indices of candidates, and their probabilities (a softmax over them).
    """
    count = min(count, len(candidates))
    opening = candidates.ids[:1, :1].expand(len(seen.hidden), 1)
    real = torch.ones_like(opening, dtype=torch.bool)
    start = model.decode(Text(opening, real, real, opening * 0), seen)
    chance = model.next_words(start[:, 0]).softmax(1).index_select(1, candidates.ids[:, 1])  # (B, N)
    chance, indices = chance.topk(count, 1)
    rows = torch.arange(len(indices), device=indices.device).repeat_interleave(count)
    pairs = zip(rows.split(block), indices.flatten().split(block), strict=True)
    likely = torch.cat([_likelihood(model, seen.select(r), candidates.select(p)) for r, p in pairs])
    likely = likely.reshape(indices.shape) + (chance.log() if first_twice else 0)
    best, order = likely.softmax(1).topk(count, 1)
    return indices.gather(1, order), best


def _likelihood(model: Model, seen: EncoderOutput, text: Text) -> Tensor:
    # (P,) log likelihood of whole sentences, row i about row i
    longest = int(text.mask.sum(1).max())
    ids, mask = text.ids[:, :longest], text.mask[:, :longest]
    hidden = model.decode(Text(ids, mask, text.special[:, :longest], text.words[:, :longest]), seen)
    real = mask[:, 1:]
    logs = model.next_words(hidden[:, :-1][real]).log_softmax(1).gather(1, ids[:, 1:][real][:, None])[:, 0]
    rows = real.nonzero()[:, 0]
    return logs.new_zeros(len(ids)).index_add(0, rows, logs)
