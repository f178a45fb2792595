"""Matching: which sentences are exchanged, and how foils are made."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_batches import SMALL, make_batch
from torch.nn import functional as F
from vlcli_lxmert import LXMERT

from vlcli import registry
from vlcli.data.sample import ImageSample, Sample, TextSample, generator
from vlcli.nn import ForwardPasses
from vlcli.objectives.matching import MARK, SwapSentence, join_words, split_words

torch.set_num_threads(1)
WORDS = ("a", "red", "blue", "green", "circle", "square", "beside", "above")
VOCABULARY = {word: place + 10 for place, word in enumerate(WORDS)}


def sentence(raw):
    ids = [2, *[VOCABULARY[word] for word in raw.split()], 3]
    inner = len(ids) - 2
    return TextSample(raw, raw, ids, [True, *[False] * inner, True], [-1, *range(inner), -1])


def sample(raw, image):
    return Sample(f"{raw}/{image}", sentence(raw), [ImageSample(image, (8, 8))], {})


def swap(own, others, seed=0, probability=1.0, foils=0.0):
    drawn = itertools.cycle(others)
    SwapSentence(probability, foils, "corrupted")(own, generator(seed, 0, own.key, "matching"), lambda: next(drawn))
    return own


def test_half_are_exchanged_and_marked():
    own = [sample("a red circle", f"i{number}") for number in range(400)]
    for number, one in enumerate(own):
        swap(one, [sample("a blue square", "other")], seed=number, probability=0.5)
    matched = [one.mask_labels.example[MARK] for one in own]
    assert abs(sum(matched) / 400 - 0.5) < 0.08
    assert all((one.text.raw == "a red circle") == bool(flag) for one, flag in zip(own, matched, strict=True))


def test_same_picture_or_same_sentence_is_no_negative():
    own = swap(sample("a red circle", "i"), [sample("a blue circle", "i"), sample("a red circle", "j")])
    assert own.mask_labels.example[MARK] == 1
    assert own.text.raw == "a red circle"
    own = swap(sample("a red circle", "i"), [sample("a blue circle", "i"), sample("a green square", "k")])
    assert own.text.raw == "a green square"
    assert own.mask_labels.example[MARK] == 0


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 500))
def test_foils_exchange_one_word_in_its_context(seed):
    own = swap(sample("a red circle beside a square", "i"), [sample("a blue circle", "j")], seed, foils=1.0)
    words = split_words(own.text)
    before = split_words(sentence("a red circle beside a square"))
    changed = [place for place, (left, right) in enumerate(zip(words, before, strict=True)) if left != right]
    assert len(changed) == 1
    assert own.mask_labels.example[MARK] == 0
    assert (changed[0], words[changed[0]]) in [(1, (VOCABULARY["blue"],)), (5, (VOCABULARY["blue"],))]
    assert own.text.special == sentence("a red circle beside a square").special
    assert own.text.key != sentence("a red circle beside a square").key


def test_foil_without_a_context_swaps_two_words():
    own = swap(sample("red circle", "i"), [sample("above", "j")], foils=1.0)
    assert split_words(own.text) == [(VOCABULARY["circle"],), (VOCABULARY["red"],)]
    own = swap(sample("red red", "i"), [sample("above", "j")], foils=1.0)
    assert own.mask_labels.example[MARK] == 1


def test_words_of_several_pieces_never_lengthen_a_sentence():
    text = TextSample("k", "", [2, 10, 11, 12, 3], [True, False, False, False, True], [-1, 0, 0, 1, -1])
    assert split_words(text) == [(10, 11), (12,)]
    assert join_words(text, split_words(text)).ids == text.ids
    longer = join_words(text, [(10, 11), (20, 21, 22)])
    assert longer.ids == [2, 10, 11, 20, 3]
    assert longer.words == [-1, 0, 0, 1, -1]
    assert join_words(text, [(9,), (12,)]).ids == [2, 9, 12, 3]


def test_loss_and_prediction():
    torch.manual_seed(0)
    sizes = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
    model = LXMERT(SMALL, **sizes).eval()
    objective = registry.build("objectives", "matching", model, SMALL)
    step = ForwardPasses(model, make_batch(rows=4))
    outcome = objective(step, {})
    logits = objective.head(step.fused("corrupted").pooled)
    torch.testing.assert_close(
        outcome.losses["matching"].value(), F.cross_entropy(logits, step.view("corrupted").mask_labels[MARK])
    )
    found = objective.predict(step)
    torch.testing.assert_close(found["score"].sigmoid(), found["logits"].softmax(-1)[:, 1])
    assert objective(ForwardPasses(model, make_batch()), {}).metrics["accuracy"].count == 3


@pytest.mark.parametrize("missing", ["text"])
def test_examples_without_a_sentence_stay(missing):
    own = Sample("k", None, [ImageSample("i", (8, 8))], {})
    assert swap(own, [sample("a red circle", "j")]).mask_labels.example[MARK] == 1
