"""Contrast of bags of words and mean features: what its vectors depend on, and that it learns under noise."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from tiny_batches import SMALL, make_batch

from vlcli import registry
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, DataError, RecipeError
from vlcli.nn import ForwardPasses
from vlcli.nn.slots import build_model

torch.set_num_threads(1)
MODEL = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}


def made(**options):
    torch.manual_seed(0)
    objective = registry.build("objectives", {"name": "bag-contrast", **options}, build_model(MODEL, SMALL), SMALL)
    return objective.eval()


def passes(batch):
    return ForwardPasses(build_model(MODEL, SMALL), batch)


def test_a_sentence_is_its_bag_of_words_and_a_picture_the_mean_of_its_regions() -> None:
    objective, batch = made(), make_batch(rows=3, regions=6)
    before = [objective.embed(passes(batch), side) for side in ("text", "image")]
    text, regions = batch.clean.text, batch.clean.images.regions
    text.ids[0, 1:-1] = text.ids[0, 1:-1].flip(0)  # another order of the words between [CLS] and [SEP]
    text.ids[text.special | ~text.mask] = 9  # special tokens and padding do not count
    regions.features[0] = regions.features[0].flip(0) * 3  # another order, another length
    regions.features[~regions.mask] = 100.0
    after = [objective.embed(passes(batch), side) for side in ("text", "image")]
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one.norm(dim=1), torch.ones(3))


def test_rare_words_weigh_more() -> None:
    objective = made()
    tokenizer = SimpleNamespace(encode=lambda text, key, length: SimpleNamespace(ids=[int(i) for i in text.split()]))
    examples = [SimpleNamespace(text=text) for text in ("5 6", "5 7 7", "5 6 8", None)]
    objective.setup([SimpleNamespace(examples=lambda: examples)], tokenizer, None)
    expected = ((1 + 3) / (1 + torch.tensor([3.0, 2.0, 1.0, 1.0, 0.0]))).log() + 1
    torch.testing.assert_close(objective.rarity[5:10], expected)


def test_noise_is_added_in_training_alone() -> None:
    objective, batch = made(noise=[0.5, 0.5]), make_batch()
    quiet = objective.embed(passes(batch), "image")
    assert torch.equal(quiet, objective.embed(passes(batch), "image"))
    assert not torch.allclose(quiet, objective.train().embed(passes(batch), "image"))
    silent = made(noise=[0, 0]).train()
    assert torch.equal(silent.embed(passes(batch), "text"), silent.embed(passes(batch), "text"))


def test_it_learns_its_pairs_and_matching_reads_its_scores() -> None:
    batch = make_batch(rows=8, regions=6)
    module = build_training_module(MODEL, ["bag-contrast", "contrast-matching"], SMALL, seed=1)
    optimizer = torch.optim.AdamW(module.objectives["bag-contrast"].parameters(), lr=1e-2)
    losses = []
    for _ in range(60):
        result = module(batch)
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
        losses.append(float(result.losses["bag-contrast"].value()))
    assert losses[-1] < 0.2 * losses[0]
    assert result.losses["contrast-matching"].value().isfinite()
    scores = module.eval().objectives["bag-contrast"].predict(module.step(batch))
    best = (scores["text_embedding"] @ scores["image_embedding"].T).argmax(1)
    assert best.tolist() == list(range(8))


def test_wrong_noise_and_missing_features_are_refused() -> None:
    with pytest.raises(ComponentError, match=r"bag-contrast\.noise"):
        made(noise=[1.0, -1.0])
    batch = make_batch()
    batch.clean.images.regions = None
    with pytest.raises(DataError, match="no region features"):
        made().embed(passes(batch), "image")


def test_a_model_of_pixels_is_refused_before_anything_is_read() -> None:
    model = {"name": "vlmo", "hidden": 16, "layers": 1, "heads": 2, "fused_layers": 1, "image_size": 32}
    with pytest.raises(RecipeError, match="regions"):
        build_training_module(model, ["bag-contrast"], SMALL, seed=1)


def test_a_picture_may_be_the_mean_and_the_maximum_of_its_regions() -> None:
    objective, batch = made(pooling=["mean", "max"]), make_batch(rows=3, regions=6)
    regions = batch.clean.images.regions
    regions.features[~regions.mask] = 100.0  # padding does not count
    pooled = objective.pooled(batch.clean.images)
    mean, most = pooled.split(regions.features.shape[2], 1)
    real = regions.features[0][regions.mask[0]]
    for part, expected in ((mean, real.mean(0)), (most, real.amax(0))):
        torch.testing.assert_close(part.norm(dim=1), torch.full((3,), 0.5**0.5))
        torch.testing.assert_close(part[0], expected / expected.norm() * 0.5**0.5)


def test_members_are_trained_each_alone_and_their_cosines_averaged() -> None:
    step, width = passes(make_batch(rows=6, regions=6)), 8
    both = made(members=2, width=width, noise=[0, 0], init_std=0.5)
    (loss,) = both(step, {}).losses.values()
    loss.value().backward()
    vectors = both.predict(step)
    cosines = vectors["text_embedding"] @ vectors["image_embedding"].T
    total = torch.zeros_like(cosines)
    for number in range(2):
        one, chosen = made(width=width, noise=[0, 0]), slice(number * width, (number + 1) * width)
        for name in ("text", "image"):
            for part in ("weight", "bias"):
                getattr(getattr(one, name), part).data.copy_(getattr(getattr(both, name), part)[chosen])
        (alone,) = one(step, {}).losses.values()
        alone.value().backward()
        torch.testing.assert_close(one.text.weight.grad / 2, both.text.weight.grad[chosen])
        found = one.predict(step)
        total += found["text_embedding"] @ found["image_embedding"].T / 2
    torch.testing.assert_close(cosines, total)


def test_members_have_noise_of_their_own() -> None:
    objective, batch = made(members=2, width=8).train(), make_batch()
    for name in ("text", "image"):
        layer = getattr(objective, name)
        layer.weight.data[8:] = layer.weight.data[:8]
    first, second = objective.embed(passes(batch), "image").split(8, 1)
    assert not torch.allclose(first, second)
    first, second = objective.eval().embed(passes(batch), "image").split(8, 1)
    torch.testing.assert_close(first, second)


@pytest.mark.parametrize("wrong", [{"members": 0}, {"pooling": []}, {"pooling": ["max", "max"]}])
def test_members_and_pooling_that_cannot_be_are_refused(wrong) -> None:
    with pytest.raises(ComponentError, match=r"Linear encoders|members"):
        made(**wrong)
