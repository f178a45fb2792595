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
    objective = registry.objectives.build({"name": "bag-contrast", **options}, build_model(MODEL, SMALL), SMALL)
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
    with pytest.raises(ComponentError, match="Noise"):
        made(noise=[1.0, -1.0])
    batch = make_batch()
    batch.clean.images.regions = None
    with pytest.raises(DataError, match="no region features"):
        made().embed(passes(batch), "image")


def test_a_model_of_pixels_is_refused_before_anything_is_read() -> None:
    model = {"name": "vlmo", "hidden": 16, "layers": 1, "heads": 2, "fused_layers": 1, "image_size": 32}
    with pytest.raises(RecipeError, match="regions"):
        build_training_module(model, ["bag-contrast"], SMALL, seed=1)
