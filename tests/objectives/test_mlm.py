"""Masked language modelling: what is hidden, and what the loss is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_batches import SMALL, make_batch
from torch.nn import functional as F
from vlcli_lxmert import LXMERT

from vlcli import registry
from vlcli.data.sample import Sample, TextSample, generator
from vlcli.errors import ComponentError
from vlcli.nn import ForwardPasses, Model
from vlcli.objectives.mlm import MARK, MaskWords

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}


@st.composite
def sentences(draw):
    lengths = draw(st.lists(st.integers(1, 3), max_size=8))
    words = [number for number, length in enumerate(lengths) for _ in range(length)]
    ids = [SMALL.cls_id, *draw(st.lists(st.integers(5, 90), min_size=len(words), max_size=len(words))), SMALL.sep_id]
    return TextSample("k", "", ids, [True, *[False] * len(words), True], [-1, *words, -1])


def no_donor():
    raise AssertionError("masking words needs no other sample")


def hide(text, seed=0, **options):
    sample = Sample("s", text, [], {})
    shares = options.pop("shares", (0.8, 0.1))
    MaskWords(SMALL, options.pop("probability", 0.15), shares, **options)(
        sample, generator(seed, 0, "s", "mlm"), no_donor
    )
    return sample.text, sample.mask_labels.text[MARK]


@settings(max_examples=60, deadline=None)
@given(sentences(), st.integers(0, 99), st.booleans(), st.sampled_from(["bernoulli", "count"]), st.booleans())
def test_masks_mark_what_they_hide_and_leave_the_rest(text, seed, whole, rule, end):
    made, labels = hide(text, seed, probability=0.4, whole_word=whole, rule=rule, end=end)
    assert len(labels) == len(made.ids) == len(text.ids)
    last = len(text.ids) - 1
    for place, label in enumerate(labels):
        assert label in (-1, text.ids[place])
        if label == -1:
            assert made.ids[place] == text.ids[place]
        elif text.special[place]:
            assert end
            assert place == last
    if whole:
        for word in set(text.words) - {-1}:
            inside = [labels[i] >= 0 for i, w in enumerate(text.words) if w == word]
            assert all(inside) or not any(inside)


@settings(max_examples=40, deadline=None)
@given(sentences(), st.integers(0, 99), st.one_of(st.none(), st.integers(1, 3)))
def test_counting_rule_hides_the_rounded_share(text, seed, limit):
    _, labels = hide(text, seed, rule="count", limit=limit)
    pieces = len(text.ids) - 2
    wanted = 0 if not pieces else min(max(1, round(0.15 * pieces)), limit or pieces)
    assert sum(label >= 0 for label in labels) == wanted


def test_shares_of_mask_random_and_kept():
    text = TextSample("k", "", [2, *[50] * 4000, 3], [True, *[False] * 4000, True], [-1, *range(4000), -1])
    made, labels = hide(text)
    hidden = np.array(labels) >= 0
    ids = np.array(made.ids)[hidden]
    assert abs(hidden.mean() - 0.15) < 0.02
    assert abs((ids == SMALL.mask_id).mean() - 0.8) < 0.05
    assert abs((ids == 50).mean() - 0.1) < 0.04
    _, again = hide(text)
    assert again == labels


def test_loss_is_the_full_heads_at_hidden_places():
    torch.manual_seed(0)
    model = LXMERT(SMALL, **SIZES).eval()
    objective = registry.build("objectives", "mlm", model, SMALL)
    step = ForwardPasses(model, make_batch())
    outcome = objective(step, {})
    labels = step.view("corrupted").mask_labels[MARK]
    scores = objective.head(step.fused("corrupted").text.hidden, model.word_table().weight)
    wanted = F.cross_entropy(scores.flatten(0, 1), labels.masked_fill(labels < 0, -100).flatten())
    torch.testing.assert_close(outcome.losses["mlm"].value(), wanted)
    assert outcome.losses["mlm"].count == (labels >= 0).sum()


def test_examples_that_share_a_text_row():
    torch.manual_seed(0)
    model = LXMERT(SMALL, **SIZES).eval()
    objective = registry.build("objectives", "mlm", model, SMALL)
    batch = make_batch(rows=2)
    view = batch.views["corrupted"]
    view.aligned, view.text_rows, view.image_rows = False, torch.tensor([1, 0, 1]), torch.tensor([[0], [1], [1]])
    mean = objective(ForwardPasses(model, batch), {}).losses["mlm"]
    counts = (view.mask_labels[MARK] >= 0).sum(1)
    assert mean.count == counts[1] + counts[0] + counts[1]


def test_nothing_hidden_gives_zero_with_gradient():
    model = LXMERT(SMALL, **SIZES)
    objective = registry.build("objectives", "mlm", model, SMALL)
    batch = make_batch()
    batch.views["corrupted"].mask_labels[MARK].fill_(-1)
    loss = objective(ForwardPasses(model, batch), {}).losses["mlm"].value()
    loss.backward()
    assert loss == 0
    assert all(parameter.grad is not None for parameter in objective.parameters())


def test_text_alone_reads_unique_texts():
    model = LXMERT(SMALL, **SIZES).eval()
    objective = registry.build("objectives", {"name": "mlm", "on": "text"}, model, SMALL)
    step = ForwardPasses(model, make_batch())
    objective(step, {})
    assert [key[0] for key in step._done] == ["text"]
    assert objective(ForwardPasses(model, make_batch(rows=1)), {}).metrics["accuracy"].count > 0


class OnlyText(Model):
    capabilities = frozenset({"text"})
    dim = 8


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"mask_share": 0.9, "random_share": 0.2}, "Shares"),
        ({"probability": 1.5}, "0 to 1"),
        ({"on": "fused"}, "fuse"),
        ({"head": "nope"}, "head"),
    ],
)
def test_settings_that_cannot_be(options, words):
    with pytest.raises(ComponentError, match=words):
        registry.build("objectives", {"name": "mlm", **options}, OnlyText(SMALL), SMALL)


@settings(max_examples=60, deadline=None)
@given(sentences(), st.integers(0, 1000))
def test_counting_over_padding_hides_no_more_than_the_share_of_the_padded_length(text, seed):
    """The released rule of VLMo: 15 % of 40 places are 6, of which padding takes its part."""
    rng = generator(seed, 0, "s", "mlm")
    chosen = MaskWords(SMALL, 0.15, (1.0, 0.0), whole_word=True, rule="count", padded=40).choose(text, rng)
    assert len(chosen) <= 6
    assert all(not text.special[place] for place in chosen)


def test_counting_over_padding_hides_about_its_share():
    words = list(range(10))
    text = TextSample("k", "", [2, *range(5, 15), 3], [True, *[False] * 10, True], [-1, *words, -1])
    rule = MaskWords(SMALL, 0.15, (1.0, 0.0), whole_word=True, rule="count", padded=40)
    hidden = [len(rule.choose(text, generator(seed, 0, "s", "mlm"))) for seed in range(2000)]
    # Six of the 38 places that are no special token, ten of which are words.
    assert np.mean(hidden) == pytest.approx(6 * 10 / 38, abs=0.08)
    assert min(hidden) == 0
