"""Restricts the next word: forbidden words, repeats, top k and top p."""

from __future__ import annotations

import torch
from torch import Tensor

from vlcli.nn.generation.settings import Generation
from vlcli.nn.model import DataSpec


class Rules:
    """Words that may not come next."""

    def __init__(self, data_spec: DataSpec, settings: Generation, device: torch.device) -> None:
        self.settings, self.end = settings, data_spec.sep_id
        never = {data_spec.pad_id, data_spec.cls_id, data_spec.mask_id, *settings.bad_words} - {data_spec.sep_id}
        self.never = torch.tensor(sorted(never), device=device)

    def __call__(self, scores: Tensor, words: Tensor) -> Tensor:
        """Set scores (P, V) to minus infinity at words that may not follow ``words`` (P, T)."""
        banned = torch.zeros_like(scores, dtype=torch.bool)
        banned[:, self.never] = True
        if words.shape[1] < self.settings.min_length:
            banned[:, self.end] = True
        if self.settings.no_repeat_ngram and words.shape[1] >= self.settings.no_repeat_ngram:
            size = self.settings.no_repeat_ngram
            runs = words.unfold(1, size, 1)  # (P, T - size + 1, size)
            tail = words[:, words.shape[1] - size + 1 :]  # (P, size - 1)
            rows, numbers = (runs[..., :-1] == tail[:, None]).all(-1).nonzero(as_tuple=True)
            banned[rows, runs[rows, numbers, -1]] = True
        return scores.masked_fill(banned, -torch.inf)


def narrowed(scores: Tensor, settings: Generation) -> Tensor:
    """Divide scores (P, V) by the temperature, and set them to minus infinity outside top k and top p."""
    scores = scores / settings.temperature
    if settings.top_k:
        least = scores.topk(min(settings.top_k, scores.shape[-1])).values[:, -1:]
        scores = scores.masked_fill(scores < least, -torch.inf)
    if settings.top_p < 1:
        ordered, order = scores.detach().softmax(-1).sort(-1, descending=True)
        before = ordered.cumsum(-1) - ordered  # what likelier words hold: below top_p, the word is needed
        scores = scores.masked_fill(
            torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, before >= settings.top_p), -torch.inf
        )
    return scores
