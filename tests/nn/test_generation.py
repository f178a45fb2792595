"""Beams against every sentence there is, rules against transformers, what is cached against what is computed anew."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from vlcli.errors import ComponentError, DataError
from vlcli.nn import DataSpec, EncoderOutput, ForwardPasses, Layout, Text
from vlcli.nn.generation import Generation, Recomputed, generate
from vlcli.nn.generation.search import Rules, narrowed

DATA_SPEC = DataSpec(vocab_size=7, pad_id=0, unk_id=1, cls_id=2, sep_id=3, mask_id=4)
SPOKEN = (1, 3, 5, 6)


@dataclass
class Said:
    """The cache of a model that remembers which picture and which words."""

    row: Tensor
    ids: Tensor

    def select(self, rows: Tensor, per: int = 1) -> Said:
        assert bool((self.row[rows].unflatten(0, (-1, per)) == self.row[rows[::per]][:, None]).all())
        return Said(self.row[rows], self.ids[rows])


class Table:
    """Scores by hand: each word depends on the picture, the place and the two words before."""

    data_spec = DATA_SPEC

    def __init__(self, pictures: int, seed: int) -> None:
        rng = torch.Generator().manual_seed(seed)
        self.table = 2 * torch.randn(pictures, 9, 7, 7, 7, generator=rng)
        self.steps = 0

    def start(self, image: EncoderOutput, text: object = None) -> Said:
        rows = torch.arange(len(image.hidden))
        return Said(rows, torch.zeros(len(rows), 0, dtype=torch.long))

    def step(self, ids: Tensor, cache: Said) -> tuple[Tensor, Said]:
        self.steps += len(ids)
        said = torch.cat([cache.ids, ids[:, None]], 1)
        before = said[:, -2] if said.shape[1] > 1 else torch.zeros_like(ids)
        return self.table[cache.row, said.shape[1] - 1, before, ids], Said(cache.row, said)


def pictures(rows: int) -> EncoderOutput:
    return EncoderOutput(torch.zeros(rows, 1, 2), Layout.for_text(torch.ones(1, 1, dtype=torch.bool)))


def chance(model: Table, row: int, words: tuple[int, ...]) -> float:
    """Log probability of a sentence, word by word."""
    total, said = 0.0, (0, DATA_SPEC.cls_id)
    for place, word in enumerate(words):
        total += float(model.table[row, place, said[-2], said[-1]].log_softmax(-1)[word])
        said = (*said, word)
    return total


def sentences(longest: int, shortest: int = 0) -> list[tuple[int, ...]]:
    """Every sentence: it ends once, or is as long as it may be."""
    inner = [word for word in SPOKEN if word != DATA_SPEC.sep_id]
    ended = [(*w, 3) for n in range(shortest, longest) for w in itertools.product(inner, repeat=n)]
    return ended + list(itertools.product(inner, repeat=longest))


def spoken(found: object, row: int) -> tuple[int, ...]:
    return tuple(found.ids[row, 0][found.mask[row, 0]].tolist())  # type: ignore[attr-defined]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.7, -0.4]), st.integers(0, 2))
def test_a_beam_as_wide_as_all_sentences_finds_the_best(seed: int, penalty: float, shortest: int) -> None:
    model = Table(3, seed)
    found = generate(
        model, pictures(3), Generation(beams=200, max_length=4, min_length=shortest, length_penalty=penalty)
    )
    for row in range(3):
        scored = {w: chance(model, row, w) + penalty * len(w) for w in sentences(4, shortest)}
        best = max(scored, key=scored.__getitem__)
        assert spoken(found, row) == best
        assert float(found.scores[row, 0]) == pytest.approx(scored[best], abs=1e-4)


def by_hand(model: Table, row: int, beams: int, longest: int, penalty: float) -> tuple[tuple[int, ...], float]:
    """VLP's search on one picture with lists: finished sentences take a place in their own frame only."""
    open_: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[tuple[float, tuple[int, ...]]] = []
    for length in range(1, longest + 1):
        grown = sorted(((chance(model, row, (*w, x)), (*w, x)) for _, w in open_ for x in SPOKEN), reverse=True)[:beams]
        finished += [(s + penalty * length, w) for s, w in grown if w[-1] == DATA_SPEC.sep_id or length == longest]
        open_ = [(s, w) for s, w in grown if w[-1] != DATA_SPEC.sep_id]
        if not open_:
            break
    score, words = max(finished)
    return words, score


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 5), st.sampled_from([0.0, 0.5, -0.3]))
def test_the_search_is_vlps(seed: int, beams: int, penalty: float) -> None:
    model = Table(4, seed)
    found = generate(model, pictures(4), Generation(beams=beams, max_length=7, length_penalty=penalty))
    for row in range(4):
        words, score = by_hand(model, row, beams, 7, penalty)
        assert spoken(found, row) == words
        assert float(found.scores[row, 0]) == pytest.approx(score, abs=1e-4)


def test_greedy_takes_the_likeliest_word() -> None:
    model = Table(5, 1)
    found = generate(model, pictures(5), Generation(decoding="greedy", beams=9, max_length=6))
    assert [spoken(found, row) for row in range(5)] == [by_hand(model, row, 1, 6, 0.0)[0] for row in range(5)]


def test_pictures_that_are_done_cost_nothing_more() -> None:
    model = Table(6, 3)
    model.table[:5, 1:, ..., DATA_SPEC.sep_id] += 50  # all but the last end at once
    model.table[..., 0, :, :, DATA_SPEC.sep_id] -= 50
    model.table[5, ..., DATA_SPEC.sep_id] -= 50
    generate(model, pictures(6), Generation(beams=2, max_length=8))
    assert model.steps <= 6 + 6 * 2 + 6 * 2


def test_no_run_of_words_comes_twice() -> None:
    import transformers.generation.logits_process as processors

    rng = torch.Generator().manual_seed(0)
    words = torch.randint(5, 9, (40, 9), generator=rng)
    scores = torch.randn(40, 30, generator=rng)
    data_spec = replace(DATA_SPEC, vocab_size=30)
    for size in (1, 2, 3):
        ours = Rules(data_spec, Generation(no_repeat_ngram=size), scores.device)(scores, words)
        theirs = processors.NoRepeatNGramLogitsProcessor(size)(words, scores.clone())
        theirs[:, [data_spec.pad_id, data_spec.cls_id, data_spec.mask_id]] = -torch.inf
        assert torch.equal(ours, theirs)


def test_what_a_sample_is_drawn_from() -> None:
    import transformers.generation.logits_process as processors

    scores = torch.randn(20, 50, generator=torch.Generator().manual_seed(1))
    ids = torch.zeros(20, 1, dtype=torch.long)
    for temperature, top_k, top_p in ((0.7, 0, 1.0), (1.0, 5, 1.0), (1.0, 0, 0.6), (1.3, 12, 0.8)):
        ours = narrowed(scores, Generation("sample", temperature=temperature, top_k=top_k, top_p=top_p))
        theirs = processors.TemperatureLogitsWarper(temperature)(ids, scores)
        if top_k:
            theirs = processors.TopKLogitsWarper(top_k)(ids, theirs)
        if top_p < 1:
            theirs = processors.TopPLogitsWarper(top_p)(ids, theirs)
        torch.testing.assert_close(ours, theirs)


def test_samples_follow_the_probabilities_and_carry_their_gradient() -> None:
    model = Table(2, 7)
    model.table.requires_grad_()
    drawn = Generation("sample", max_length=3, samples=4000)
    found = generate(model, pictures(2), drawn, generator=torch.Generator().manual_seed(0))
    again = generate(model, pictures(2), drawn, generator=torch.Generator().manual_seed(0))
    assert torch.equal(found.ids, again.ids)
    assert found.ids.shape[:2] == (2, 4000)
    assert found.word_scores is not None
    assert found.word_scores.requires_grad
    model.table = model.table.detach()
    for row in range(2):
        likely = max(SPOKEN, key=lambda word, row=row: chance(model, row, (word,)))
        allowed = model.table[row, 0, 0, DATA_SPEC.cls_id][list(SPOKEN)].softmax(-1)[SPOKEN.index(likely)]
        share = float((found.ids[row, :, 0] == likely).float().mean())
        assert share == pytest.approx(float(allowed), abs=0.04)
    assert not found.ids[~found.mask].any()  # padding is id 0 here
    after_end = (found.ids == DATA_SPEC.sep_id).long().cumsum(-1) - (found.ids == DATA_SPEC.sep_id).long()
    assert not (after_end.bool() & found.mask).any()


def test_what_cannot_be_is_refused() -> None:
    for wrong in ({"beams": 0}, {"min_length": 20}, {"temperature": 0.0}, {"top_p": 1.5}, {"samples": 0}):
        with pytest.raises(ComponentError, match="out of range"):
            Generation(**wrong)


def dimbert(**options: object) -> object:
    plugin = pytest.importorskip("vlcli_dimbert")
    from tiny_batches import SMALL

    torch.manual_seed(0)
    return plugin.DiMBERT(SMALL, hidden=32, heads=4, layers=3, concepts=0, init_std=0.15, **options).eval()


@pytest.mark.parametrize("options", [{}, {"attention": "standard", "segments": "modes", "position_ids": "running"}])
@pytest.mark.parametrize(
    "asked",
    [
        Generation(beams=5, max_length=20, no_repeat_ngram=1),
        Generation("greedy", max_length=20, no_repeat_ngram=2),
        Generation(beams=3, max_length=20, min_length=6, no_repeat_ngram=1),
    ],
)
def test_cached_equals_recomputed(options: dict[str, object], asked: Generation) -> None:
    from tiny_batches import make_batch

    model = dimbert(**options)
    image = ForwardPasses(model, make_batch(rows=6), training=False).pictures()
    with torch.no_grad():
        cached, anew = generate(model, image, asked), generate(Recomputed(model), image, asked)
    assert torch.equal(cached.ids, anew.ids)
    torch.testing.assert_close(cached.scores, anew.scores, atol=1e-5, rtol=0)
    assert len({round(score, 3) for score in cached.scores[:, 0].tolist()}) > 3  # pictures matter


def test_texts_go_on_together_if_they_are_equally_long():
    ids = torch.tensor([[2, 5, 6, 3], [2, 6, 3, 0], [2, 3, 0, 0]])
    words = ["a", "b", "c"]
    text = Text(ids, ids != 0, (ids == 2) | (ids == 3), torch.zeros_like(ids), keys=words, raw=words)
    assert text.select(torch.tensor([0, 0])).beginnings().tolist() == [[5, 6], [5, 6]]
    assert text.select(torch.tensor([2])).beginnings() is None
    with pytest.raises(DataError, match="equally long"):
        Recomputed(Table(2, 0)).start(pictures(2), text.select(torch.tensor([0, 1])))
