"""Masked object prediction, as released and as published."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny_batches import SMALL, make_batch
from torch.nn import functional as F
from vlcli_lxmert import LXMERT, MaskedObject
from vlcli_lxmert.masked_object import MARK

from vlcli import registry
from vlcli.data.sample import ImageSample, Sample, generator
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, DataError
from vlcli.nn import ForwardPasses

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}


@pytest.fixture
def model():
    torch.manual_seed(0)
    return LXMERT(SMALL, **SIZES).eval()


def corrupt(objective, count=4000, seed=0):
    own = np.ones((count, 2), np.float32)
    other = np.full((5, 2), 7, np.float32)
    sample = Sample("s", None, [ImageSample("i", (8, 8), own)], {})
    donor = Sample("d", None, [ImageSample("j", (8, 8), other)], {})
    objective.corruption()(sample, generator(seed, 0, "s", "masked-object"), lambda: donor)
    assert (own == 1).all()
    return sample.images[0].features[:, 0], sample.mask_labels.regions[MARK]


@pytest.mark.parametrize(("mode", "shares"), [("as_released", (0.8, 0.1, 0.1)), ("as_published", (1.0, 0.0, 0.0))])
def test_hidden_features(model, mode, shares):
    features, hidden = corrupt(MaskedObject(model, SMALL, mode=mode))
    assert abs(hidden.mean() - 0.15) < 0.02
    assert (features[~hidden] == 1).all()
    found = [(features[hidden] == value).mean() for value in (0, 7, 1)]
    assert np.abs(np.subtract(found, shares)).max() < 0.05


def naive(objective, step):
    """Every head on every region, written out."""
    view = step.view("corrupted")
    regions, hidden = step.batch.clean.images.regions, view.mask_labels[MARK] & view.images.regions.mask
    states = objective.transform(step.fused("corrupted").image.hidden)
    real = regions.mask.float()
    losses = {}
    for name, truth, score in [
        ("label", regions.classes, regions.class_scores),
        ("attribute", regions.attributes, regions.attribute_scores),
    ]:
        loss = F.cross_entropy(objective.decoders[name](states).transpose(1, 2), truth, reduction="none")
        if objective.released:
            losses[name] = (loss * score * real).sum() / real.sum() / 0.15
        else:
            losses[name] = loss[hidden].mean()
    guess = objective.decoders["feature"](states)
    if objective.released:
        loss = F.smooth_l1_loss(guess, regions.features, reduction="none").mean(-1)
        losses["feature"] = (loss * hidden).sum() / real.sum() / 0.15
    else:
        losses["feature"] = (guess - regions.features).square().mean(-1)[hidden].mean()
    return losses


@pytest.mark.parametrize("mode", ["as_released", "as_published"])
def test_losses_are_the_written_out_ones(model, mode):
    objective = MaskedObject(model, SMALL, mode=mode)
    step = ForwardPasses(model, make_batch(rows=4))
    outcome = objective(step, {})
    wanted = naive(objective, step)
    assert outcome.losses.keys() == wanted.keys()
    for name, loss in wanted.items():
        torch.testing.assert_close(outcome.losses[name].value(), loss)


def test_rows_of_views_may_differ(model):
    objective = MaskedObject(model, SMALL)
    batch = make_batch(rows=3)
    straight = objective(ForwardPasses(model, batch), {}).losses
    order = torch.tensor([2, 0, 1])
    clean = batch.views["clean"]
    batch.views["clean"] = replace(
        clean, images=clean.images.select(order), image_rows=order.argsort()[:, None], aligned=False
    )
    turned = objective(ForwardPasses(model, batch), {}).losses
    for name, mean in straight.items():
        torch.testing.assert_close(mean.value(), turned[name].value())


def test_unknown_labels_weigh_nothing(model):
    objective = MaskedObject(model, SMALL, targets=("label",))
    batch = make_batch()
    batch.clean.images.regions.classes.fill_(-1)
    outcome = objective(ForwardPasses(model, batch), {})
    assert outcome.losses["label"].value() == 0
    assert outcome.metrics["label_accuracy"].count == 0


def test_features_alone_need_no_labels(model):
    objective = registry.build("objectives", {"name": "masked-object", "targets": ["feature"]}, model, SMALL)
    batch = make_batch()
    batch.clean.images.regions.classes = None
    assert objective(ForwardPasses(model, batch), {}).losses.keys() == {"feature"}
    with pytest.raises(DataError, match="label"):
        MaskedObject(model, SMALL)(ForwardPasses(model, batch), {})


def test_a_store_without_labels_is_named_before_training(model):
    data_spec = replace(SMALL, region_attributes=0)
    with pytest.raises(ComponentError, match="nothing to predict") as caught:
        MaskedObject(model, data_spec, targets=("label", "attribute", "feature"))
    assert "attribute" in str(caught.value)
    assert set(MaskedObject(model, data_spec).decoders) == {"label", "feature"}
    assert set(MaskedObject(model, data_spec, targets=("label", "feature")).decoders) == {"label", "feature"}


def test_the_three_objectives_share_one_forward():
    module, passes = build_training_module({"name": "lxmert", **SIZES}, ["mlm", "matching", "masked-object"], SMALL), []
    module.model.cross.register_forward_hook(lambda *_: passes.append(1))
    assert {name.split("/")[0] for name in module(make_batch()).losses} == {"mlm", "matching", "masked-object"}
    assert len(passes) == 1
