"""The bag of words against its equations written out, and the whitening that it takes from training images."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tiny_batches import SMALL, make_batch
from vlcli_lxmert import Pooled

from vlcli.engine.training_module import build_training_module
from vlcli.nn import ForwardPasses, Recorder, Whitening

torch.set_num_threads(1)
SIZES = {"hidden": 12, "components": 6}


@pytest.mark.parametrize("attention", [False, True])
def test_padding_changes_nothing(attention):
    torch.manual_seed(0)
    model = Pooled(SMALL, attention=attention, **SIZES).eval()
    batch = make_batch(rows=3)
    base = ForwardPasses(model, batch).fused().pooled
    batch.clean.images.regions.features[~batch.clean.images.regions.mask] = 1e4
    batch.clean.text.ids[~batch.clean.text.mask] = 9
    torch.testing.assert_close(ForwardPasses(model, batch).fused().pooled, base)
    assert base.shape == (3, 12)


@pytest.mark.parametrize("combine", ["multiply", "add"])
@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("bigrams", [0, 50])
def test_the_vector_of_a_pair_is_that_of_its_words_and_regions(combine, attention, bigrams):
    torch.manual_seed(0)
    model = Pooled(SMALL, combine=combine, attention=attention, bigrams=bigrams, **SIZES).eval()
    batch, record = make_batch(rows=2), Recorder()
    model.fit_regions(batch.clean.images.regions.features[batch.clean.images.regions.mask])
    fused = ForwardPasses(model, batch, record=record).fused()
    text, regions = batch.clean.text, batch.clean.images.regions
    for row in range(2):
        words = text.ids[row][text.mask[row] & ~text.special[row]].unique()
        question = model.words.weight[:, words].sum(1) + model.words.bias
        said = text.ids[row][text.mask[row]].tolist()
        for bucket in {(10_007 * one + two) % bigrams for one, two in pairwise(said)} if bigrams else ():
            question = question + model.words.weight[:, SMALL.vocab_size + bucket]
        seen = regions.features[row][regions.mask[row]]
        white = (seen - model.whitening.mean) @ model.whitening.matrix.T
        shares = torch.full((len(seen),), 1 / len(seen))
        if attention:
            bag = model.score.of_words.weight[:, words].sum(1) + model.score.of_words.bias
            shares = model.score.weight(torch.tanh(model.score.of_regions(white) + bag))[:, 0].softmax(0)
            torch.testing.assert_close(record.attention["top_down"][row, 0, 0, : len(seen)], shares)
        image = model.image(shares @ white) * model.scale
        expected = question * (1 + image) if combine == "multiply" else question + image
        torch.testing.assert_close(fused.pooled[row], expected)


@pytest.mark.parametrize("bigrams", [0, 50])
def test_an_order_of_words_changes_their_pairs_alone(bigrams):
    model = Pooled(SMALL, bigrams=bigrams, **SIZES).eval()
    batch = make_batch(rows=2)
    base = ForwardPasses(model, batch).fused().pooled
    text = batch.clean.text
    for row in range(2):
        places = (text.mask[row] & ~text.special[row]).nonzero()[:, 0]
        text.ids[row, places] = text.ids[row, places.flip(0)]
    equal = torch.allclose(ForwardPasses(model, batch).fused().pooled, base)
    assert equal == (bigrams == 0)


def test_whitened_features_have_mean_zero_and_unit_covariance():
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.normal(size=(500, 10)) @ rng.normal(size=(10, 10)) + 3).float()
    whitening = Whitening(10, 4)
    whitening.fit(rows)
    white = whitening(rows)
    assert white.shape == (500, 4)
    torch.testing.assert_close(white.mean(0), torch.zeros(4), atol=1e-4, rtol=0)
    torch.testing.assert_close(torch.cov(white.T), torch.eye(4), atol=1e-3, rtol=0)
    largest = np.linalg.svd(rows.numpy() - rows.numpy().mean(0))[2][:4]  # the same directions, up to their sign
    agree = np.abs(np.einsum("kd,kd->k", largest, whitening.matrix.numpy())) / whitening.matrix.norm(dim=1).numpy()
    np.testing.assert_allclose(agree, 1, atol=1e-3)


def test_features_without_variance_become_zero():
    whitening = Whitening(5, 5)
    whitening.fit(torch.ones(20, 5))
    assert torch.equal(whitening(torch.ones(3, 5)), torch.zeros(3, 5))


def test_it_learns_to_answer():
    torch.manual_seed(0)
    data_spec = replace(SMALL, answers=("yes", "no", "2"))
    module = build_training_module({"name": "pooled", **SIZES}, ["answering"], data_spec).train()
    batch = make_batch(data_spec, rows=3)
    batch.targets["answers"] = [{"yes": 1.0}, {"no": 0.9, "2": 0.3}, {"2": 1.0}]
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-2)
    for _ in range(150):
        optimizer.zero_grad()
        module(batch, index=0, epoch=0).total.backward()
        optimizer.step()
    module.eval()
    with torch.no_grad():
        step = ForwardPasses(module.model, batch)
        logits = next(iter(module.objectives.values())).predict(step)["logits"]
    assert logits.argmax(1).tolist() == [0, 1, 2]
