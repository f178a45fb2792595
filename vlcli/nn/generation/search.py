"""Generates by beam search or sampling, with or without a cache, and ranks given sentences by likelihood."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vlcli.nn.batch import Text
from vlcli.nn.generation.settings import Decoder, Generated, Generation
from vlcli.nn.model import DataSpec, EncoderOutput, Model


@torch.no_grad()
def rank(
    model: Model, seen: EncoderOutput, candidates: Text, count: int, *, first_twice: bool = True, block: int = 512
) -> tuple[Tensor, Tensor]:
    """Return (B, count) indices of the likeliest candidates, best first, and their softmax (ALBEF's answer ranking).

    The whole likelihood is computed of the ``count`` candidates whose first word is likeliest.

    Args:
        model: with a decoder.
        seen: B rows that the decoder attends to.
        candidates: N sentences, the class token first, the end last.
        first_twice: count the likelihood of the first word twice, as ALBEF's released code does.
        block: sentences per decoder pass.
    """
    count = min(count, len(candidates))
    opening = candidates.ids[:1, :1].expand(len(seen.hidden), 1)
    real = torch.ones_like(opening, dtype=torch.bool)
    start = model.decode(Text(opening, real, real, opening * 0), seen)
    chance = model.next_words(start[:, 0]).softmax(1).index_select(1, candidates.ids[:, 1])  # (B, N)
    chance, indices = chance.topk(count, 1)
    rows = torch.arange(len(indices), device=indices.device).repeat_interleave(count, 0)
    pairs = zip(rows.split(block), indices.flatten().split(block), strict=True)
    likely = torch.cat([_likelihood(model, seen.select(r), candidates.select(p)) for r, p in pairs])
    likely = likely.reshape(indices.shape) + (chance.log() if first_twice else 0)
    best, order = likely.softmax(1).topk(count, 1)
    return indices.gather(1, order), best


def _likelihood(model: Model, seen: EncoderOutput, text: Text) -> Tensor:
    # (P,) log likelihood of whole sentences, row i about row i
    longest = int(text.mask.sum(1).max())
    ids, mask, special, words = (each[:, :longest] for each in (text.ids, text.mask, text.special, text.words))
    hidden, real = model.decode(Text(ids, mask, special, words), seen), mask[:, 1:]
    logs = model.next_words(hidden[:, :-1][real]).log_softmax(1).gather(1, ids[:, 1:][real][:, None])[:, 0]
    return logs.new_zeros(len(ids)).index_add(0, real.nonzero()[:, 0], logs)


def next_scores(model: Model, image: EncoderOutput, ids: Tensor) -> Tensor:
    """Return the logits (P, V) of the word after ``ids`` (P, T) from one pass over picture, words and a mask.

    The model has ``fuse``, ``word_scores`` and causal texts; ``ids`` begin with the class token.
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
        return _Seen(self.image.select(rows), self.ids[rows])


class Recomputed:
    """A :class:`Decoder` whose cache holds only pictures and words."""

    def __init__(self, model: Model) -> None:
        self.model, self.data_spec = model, model.data_spec

    def start(self, image: EncoderOutput, text: Text | None = None) -> _Seen:
        """Start with no words, or with ``text``, whose rows have one length."""
        rows, device = len(image.hidden), image.hidden.device
        if text is None or (words := text.beginnings()) is None:
            return _Seen(image, torch.zeros(rows, 0, dtype=torch.long, device=device))
        first = torch.full((rows, 1), self.data_spec.cls_id, device=device)
        return _Seen(image, torch.cat([first, words], 1))

    def step(self, ids: Tensor, cache: _Seen) -> tuple[Tensor, _Seen]:
        begun = cache.ids.shape[1] and bool((ids == self.data_spec.cls_id).all())
        seen = cache if begun else _Seen(cache.image, torch.cat([cache.ids, ids[:, None]], 1))
        return next_scores(self.model, seen.image, seen.ids), seen


class Rules:
    """Sets the scores of forbidden next words to minus infinity."""

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
        size = self.settings.no_repeat_ngram
        if size and words.shape[1] >= size:
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
        beyond = torch.zeros_like(scores, dtype=torch.bool).scatter(1, order, before >= settings.top_p)
        scores = scores.masked_fill(beyond, -torch.inf)
    return scores


def generate(
    model: Decoder,
    image: EncoderOutput,
    settings: Generation | None = None,
    *,
    text: Text | None = None,
    generator: torch.Generator | None = None,
) -> Generated:
    """Generate sentences of pictures; beam search and greedy decoding compute no gradient.

    ``image`` holds B rows as the model's ``start`` takes them (:meth:`vlcli.nn.ForwardPasses.pictures`), ``text`` B
    beginnings to continue. Samples are drawn from ``generator``; None: torch's default.
    """
    settings = settings or Generation()
    if settings.decoding == "sample":
        return sample(model, image, text, settings, generator)
    with torch.no_grad():
        return beam_search(model, image, text, settings, 1 if settings.decoding == "greedy" else settings.beams)


def beam_search(model: Decoder, image: EncoderOutput, text: Text | None, settings: Generation, beams: int) -> Generated:
    """Return the best sentence of each picture by VLP's beam search: finished sentences leave the beam.

    A picture whose open sentences can no longer overtake its best one leaves the batch: no word adds to a log
    probability.
    """
    rows, device, data_spec = len(image.hidden), image.hidden.device, model.data_spec
    rules, cache = Rules(data_spec, settings, device), model.start(image, text)
    total = torch.zeros(rows, 1, device=device, dtype=torch.float32 if device.type == "mps" else torch.float64)
    best = torch.full_like(total[:, 0], -torch.inf)  # of each picture's finished sentences: score, words, length
    ids = torch.full((rows, settings.max_length), data_spec.pad_id, device=device)
    lengths = torch.zeros(rows, dtype=torch.long, device=device)
    active = torch.arange(rows, device=device)
    words = torch.zeros(rows, 1, 0, dtype=torch.long, device=device)
    last = torch.full((rows,), data_spec.cls_id, device=device)
    for length in range(1, settings.max_length + 1):
        scores, cache = model.step(last, cache)
        chances = rules(scores.float().log_softmax(-1), words.flatten(0, 1)).unflatten(0, total.shape)  # (A, k, V)
        kept = total.shape[1]
        total, words, parent = _best_words(total, chances, words, beams)
        ended = words[..., -1] == data_spec.sep_id
        done = torch.ones_like(ended) if length == settings.max_length else ended
        score, beam = (total + settings.length_penalty * length).masked_fill(~done, -torch.inf).max(1)
        better = (score > best[active]).nonzero()[:, 0]
        won = active[better]
        best[won], lengths[won] = score[better], length
        ids[won, :length] = words[better, beam[better]]
        total = total.masked_fill(ended, -torch.inf)
        more = max(settings.length_penalty * (length + 1), settings.length_penalty * settings.max_length)
        hopeful = (total.max(1).values + more > best[active]).nonzero()[:, 0]
        if length == settings.max_length or not len(hopeful):
            break
        cache = cache.select((hopeful[:, None] * kept + parent[hopeful]).flatten(), parent.shape[1])
        active, total, words = active[hopeful], total[hopeful], words[hopeful]
        last = words[..., -1].flatten()
    longest = max([1, *lengths.tolist()])
    mask = torch.arange(longest, device=device) < lengths[:, None]
    return Generated(ids[:, None, :longest], mask[:, None], best[:, None].float())


def _best_words(total: Tensor, chances: Tensor, words: Tensor, beams: int) -> tuple[Tensor, Tensor, Tensor]:
    # log probabilities (A, k'), words (A, k', T + 1), parents (A, k')
    likely, ids = chances.topk(min(beams, chances.shape[-1]))  # (A, k, m): no sentence has more than k heirs
    joint = (total[..., None] + likely).flatten(1)
    best, index = joint.topk(min(beams, joint.shape[1]))
    parent, word = index // likely.shape[-1], ids.flatten(1).gather(1, index)
    before = words.gather(1, parent[..., None].expand(-1, -1, words.shape[2]))
    return best, torch.cat([before, word[..., None]], -1), parent


def sample(
    model: Decoder, image: EncoderOutput, text: Text | None, settings: Generation, generator: torch.Generator | None
) -> Generated:
    """Draw ``samples`` sentences of every picture word by word."""
    rows, device, data_spec = len(image.hidden), image.hidden.device, model.data_spec
    rules, last = Rules(data_spec, settings, device), torch.full((rows,), data_spec.cls_id, device=device)
    scores, cache = model.step(last, model.start(image, text))
    spread = torch.arange(rows, device=device).repeat_interleave(settings.samples, 0)
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
            break
        scores, cache = model.step(last, cache)
    end = (words == data_spec.sep_id).long()
    mask = end.cumsum(1) == end  # up to the first end, which counts
    by_picture = [torch.unflatten(each, 0, (rows, -1)) for each in (words, mask, torch.stack(chances, 1))]
    return Generated(by_picture[0], by_picture[1], by_picture[2].sum(-1), by_picture[2])
