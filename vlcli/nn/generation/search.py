"""Beam search and sampling."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vlcli.nn.batch import Text
from vlcli.nn.generation.rules import Rules, narrowed
from vlcli.nn.generation.settings import Decoder, Generated, Generation
from vlcli.nn.model import DataSpec, EncoderOutput


def generate(
    model: Decoder,
    image: EncoderOutput,
    settings: Generation | None = None,
    *,
    text: Text | None = None,
    generator: torch.Generator | None = None,
) -> Generated:
    """Generate sentences of pictures; beam search and greedy decoding compute no gradient.

    Args:
        image: B rows as the model's ``start`` takes them (:meth:`vlcli.nn.ForwardPasses.pictures`).
        text: B beginnings to continue.
        generator: for sampling; None: torch's default.
    """
    settings = settings or Generation()
    rows = len(image.hidden)
    if settings.decoding == "sample":
        return sample(model, model.start(image, text), rows, settings, image.hidden.device, generator)
    beams = 1 if settings.decoding == "greedy" else settings.beams
    with torch.no_grad():
        return beam_search(model, model.start(image, text), rows, replace(settings, beams=beams), image.hidden.device)


def _exact(device: torch.device) -> torch.dtype:
    return torch.float32 if device.type == "mps" else torch.float64


class _Best:
    def __init__(self, rows: int, longest: int, pad: int, device: torch.device) -> None:
        self.score = torch.full((rows,), -torch.inf, device=device, dtype=_exact(device))
        self.ids = torch.full((rows, longest), pad, device=device)
        self.length = torch.zeros(rows, dtype=torch.long, device=device)

    def offer(self, rows: Tensor, words: Tensor, scores: Tensor) -> None:
        """Offer sentences ``words`` (A, k, T) of pictures ``rows``; a score of minus infinity: not finished."""
        score, beam = scores.max(1)
        better = (score > self.score[rows]).nonzero()[:, 0]
        won, length = rows[better], words.shape[2]
        self.score[won], self.length[won] = score[better], length
        self.ids[won, :length] = words[better, beam[better]]

    def result(self) -> Generated:
        """Return one sentence per picture, cut to the longest."""
        longest = max(1, int(self.length.max())) if len(self.length) else 1
        mask = torch.arange(longest, device=self.ids.device) < self.length[:, None]
        return Generated(self.ids[:, None, :longest], mask[:, None], self.score[:, None].float())


def beam_search(model: Decoder, cache: Any, rows: int, settings: Generation, device: torch.device) -> Generated:
    """VLP's beam search: finished sentences leave the beam, and the best of all sentences is returned.

    A picture whose open sentences can no longer overtake its best one leaves the batch: no word adds to a log
    probability.
    """
    data_spec, rules = model.data_spec, Rules(model.data_spec, settings, device)
    best = _Best(rows, settings.max_length, data_spec.pad_id, device)
    active = torch.arange(rows, device=device)
    total = torch.zeros(rows, 1, device=device, dtype=_exact(device))
    words = torch.zeros(rows, 1, 0, dtype=torch.long, device=device)
    last = torch.full((rows,), data_spec.cls_id, device=device)
    for length in range(1, settings.max_length + 1):
        scores, cache = model.step(last, cache)
        chances = rules(scores.float().log_softmax(-1), words.flatten(0, 1)).unflatten(0, total.shape)  # (A, k, V)
        kept = total.shape[1]
        total, words, parent = _best_words(total, chances, words, settings.beams)
        ended = words[..., -1] == data_spec.sep_id
        done = torch.ones_like(ended) if length == settings.max_length else ended
        best.offer(active, words, (total + settings.length_penalty * length).masked_fill(~done, -torch.inf))
        total = total.masked_fill(ended, -torch.inf)
        more = max(settings.length_penalty * (length + 1), settings.length_penalty * settings.max_length)
        hopeful = (total.max(1).values + more > best.score[active]).nonzero()[:, 0]
        if length == settings.max_length or not len(hopeful):
            break
        cache = cache.select((hopeful[:, None] * kept + parent[hopeful]).flatten(), parent.shape[1])
        active, total, words = active[hopeful], total[hopeful], words[hopeful]
        last = words[..., -1].flatten()
    return best.result()


def _best_words(total: Tensor, chances: Tensor, words: Tensor, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    # log probabilities (A, k'), words (A, k', T + 1), parents (A, k')
    likely, ids = chances.topk(min(beams, chances.shape[-1]))  # (A, k, m): no sentence has more than k heirs
    joint = (total[..., None] + likely).flatten(1)
    best, index = joint.topk(min(beams, joint.shape[1]))
    parent, word = index // likely.shape[-1], ids.flatten(1).gather(1, index)
    before = words.gather(1, parent[..., None].expand(-1, -1, words.shape[2]))
    return best, torch.cat([before, word[..., None]], -1), parent


def sample(
    model: Decoder,
    cache: Any,
    rows: int,
    settings: Generation,
    device: torch.device,
    generator: torch.Generator | None = None,
) -> Generated:
    """Draw ``samples`` sentences of every picture word by word."""
    data_spec, rules = model.data_spec, Rules(model.data_spec, settings, device)
    scores, cache = model.step(torch.full((rows,), data_spec.cls_id, device=device), cache)
    spread = torch.arange(rows, device=device).repeat_interleave(settings.samples)
    scores, cache = scores[spread], cache.select(spread, settings.samples)
    open_ = torch.ones(len(spread), dtype=torch.bool, device=device)
    words = torch.zeros(len(spread), 0, dtype=torch.long, device=device)
    chances: list[Tensor] = []
    while True:
        logs = narrowed(rules(scores.float(), words), settings).log_softmax(-1)  # (P, V)
        drawn = torch.multinomial(logs.detach().exp(), 1, generator=generator)  # (P, 1)
        chances.append(logs.gather(1, drawn)[:, 0].masked_fill(~open_, 0))
        last = drawn[:, 0].masked_fill(~open_, data_spec.pad_id)
        words = torch.cat([words, last[:, None]], 1)
        open_ = open_ & (last != data_spec.sep_id)
        if words.shape[1] == settings.max_length or not bool(open_.any()):
            return _drawn(words, torch.stack(chances, 1), rows, data_spec)
        scores, cache = model.step(last, cache)


def _drawn(ids: Tensor, chances: Tensor, rows: int, data_spec: DataSpec) -> Generated:
    end = (ids == data_spec.sep_id).long()
    mask = end.cumsum(1) == end  # up to the first end, which counts
    by_picture = [tensor.unflatten(0, (rows, -1)) for tensor in (ids, mask, chances)]
    return Generated(by_picture[0], by_picture[1], by_picture[2].sum(-1), by_picture[2])
