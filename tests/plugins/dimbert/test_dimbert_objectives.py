"""Language modelling in both modes, and the objectives of Table 4: what is hidden, and what is asked."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_concepts import WORDY
from vlcli_dimbert import UNITER, DiMBERT

from vlcli import registry
from vlcli.data.collate import Item, collate
from vlcli.data.sample import ImageSample, Sample, TextSample, generator
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, RecipeError

torch.set_num_threads(1)
SIZES = {"name": "dimbert", "hidden": 16, "heads": 2, "layers": 2, "dropout": 0.0, "init_std": 0.3}


def make_sample(number: int, words: int = 6, regions: int = 4) -> Sample:
    rng = np.random.default_rng(number)
    ids = [2, *rng.integers(5, 97, words).tolist(), 3]
    special = [True, *[False] * words, True]
    text = TextSample(f"t{number}", "", ids, special, [-1, *range(words), -1])
    corners = np.sort(rng.random((regions, 2, 2), np.float32), 1).reshape(regions, 4)
    fields = {
        "classes": rng.integers(0, 11, regions).astype(np.int64),
        "class_scores": rng.random(regions, np.float32),
        "class_probs": rng.dirichlet(np.ones(11), regions).astype(np.float32),
    }
    concepts = {"ids": rng.permutation(3).astype(np.int32), "scores": np.sort(rng.random(3, np.float32))[::-1]}
    image = ImageSample(
        f"i{number}", (48, 64), rng.random((regions, 16), np.float32), corners, fields, concepts=concepts
    )
    return Sample(f"e{number}", text, [image], {})


def corrupted(module, numbers, epoch: int = 0):
    """A batch of samples as the loader makes it, with the corruptions of a training module's objectives."""
    phases = ("sentence", "tokens", "regions", "pixels")
    acts = [act for objective in module.objectives.values() if (act := objective.corruption()) is not None]
    items = []
    for number in numbers:
        clean = make_sample(number, words=3 + number % 5)
        view = clean.fork()
        for act in sorted(acts, key=lambda one: phases.index(one.phase)):
            rng = generator(7, epoch, clean.key, act.name)
            act(view, rng, lambda n=number: make_sample(n + 1000))
        items.append(Item({"clean": clean, "corrupted": view}, number))
    return collate(items, pad_id=0)


def learn(*objectives, model=None):
    return build_training_module({**SIZES, **(model or {})}, list(objectives), WORDY)


def test_counts_of_hidden_words_are_vlps():
    module = learn({"name": "s2slm"})
    act = module.objectives["s2slm"].corruption()
    for words, wanted in ((1, 1), (3, 1), (10, 2), (17, 3), (19, 3), (60, 3)):  # round(0.15 * 10) is 2: to even
        sample = make_sample(0, words)
        act(sample, np.random.default_rng(0), sample.fork)
        hidden = np.array(sample.mask_labels.text["masked_words"])
        assert (hidden >= 0).sum() == wanted
        assert hidden[0] == -1
        assert sample.text.causal
    ends = 0
    for number in range(200):
        sample = make_sample(number, 6)
        act(sample, np.random.default_rng(number), sample.fork)
        ends += sample.mask_labels.text["masked_words"][-1] == 3
    assert 15 < ends < 45  # one of seven candidates is the end


def test_modes_and_replacements_keep_their_shares():
    module = learn({"name": "blm-s2slm", "rule": "bernoulli", "probability": 0.5})
    batch = corrupted(module, range(600))
    view = batch.views["corrupted"]
    assert torch.equal(view.text.causal, view.mask_labels["causal"].bool())
    assert 0.70 < view.text.causal.float().mean() < 0.80
    mark = view.mask_labels["masked_words"]
    hidden, shown = mark[mark >= 0], view.text.ids[mark >= 0]
    assert abs((shown == WORDY.mask_id).float().mean() - 0.8) < 0.03
    assert abs((shown == hidden).float().mean() - 0.1) < 0.03
    assert batch.clean.text.causal is None


@pytest.mark.parametrize(("name", "causal"), [("blm", False), ("s2slm", True)])
def test_one_mode_alone(name, causal):
    view = corrupted(learn(name), range(20)).views["corrupted"]
    assert bool(view.mask_labels["causal"].all()) == causal
    assert (view.text.causal is not None) == causal


def test_loss_is_the_mean_over_hidden_words_of_both_modes():
    module = learn("blm-s2slm").eval()
    batch = corrupted(module, range(12))
    result = module(batch)
    view, model = batch.views["corrupted"], module.model
    terms = {0: [], 1: []}
    for row in range(12):
        one = torch.tensor([row])
        fused = model.fuse(model.embed_text(view.text.select(one)), model.embed_image(view.images.select(one)))
        for place in (view.mask_labels["masked_words"][row] >= 0).nonzero()[:, 0].tolist():
            scores = model.word_scores(fused.text.hidden[0, place])
            loss = F.cross_entropy(scores[None], view.mask_labels["masked_words"][row, place][None])
            terms[int(view.mask_labels["causal"][row])].append(loss)
    both = [*terms[0], *terms[1]]
    torch.testing.assert_close(result.total, torch.stack(both).mean(), rtol=1e-5, atol=1e-5)
    for name, number in (("blm", 0), ("s2slm", 1)):
        mean = result.metrics[f"blm-s2slm/{name}"]
        assert mean.count == len(terms[number])
        torch.testing.assert_close(mean.value().float(), torch.stack(terms[number]).mean(), rtol=1e-5, atol=1e-5)


def test_worst_examples_are_dropped_in_training_alone():
    module = learn({"name": "s2slm", "drop_worst": 0.5})
    batch = corrupted(module, range(10))
    dropped = module(batch).losses["s2slm"]
    whole = module.eval()(batch).losses["s2slm"]
    assert dropped.count < whole.count
    assert dropped.value() < whole.value()


def test_relation_asks_bidirectional_rows_alone():
    module = learn("blm-s2slm", "image-sentence").eval()
    batch = corrupted(module, range(80))
    view = batch.views["corrupted"]
    causal, matched = view.mask_labels["causal"].bool(), view.mask_labels["matched"].bool()
    assert 0.1 < (~causal).float().mean() < 0.4
    assert matched[causal].all()
    assert 0 < matched[~causal].float().mean() < 1
    own = batch.clean.text.ids[batch.clean.text_rows]
    assert (
        view.mask_labels["masked_words"][~matched] < 0
    ).all()  # words of another picture's sentence are not asked for
    assert (view.text.ids[~matched][:, :4] != own[~matched][:, :4]).any(1).all()
    result = module(batch)
    assert result.losses["image-sentence"].count == (~causal).sum()
    logits = module.objectives["image-sentence"].logits(module.step(batch).fused("corrupted"))
    wanted = F.cross_entropy(logits[~causal], matched[~causal].long())
    torch.testing.assert_close(result.losses["image-sentence"].value().float(), wanted, rtol=1e-5, atol=1e-5)


def test_hidden_regions_show_neither_feature_nor_class():
    module = learn({"name": "masked-roi", "probability": 0.5}).eval()
    batch = corrupted(module, range(10))
    view, clean = batch.views["corrupted"], batch.clean.images.regions
    hidden = view.mask_labels["masked_roi"].bool()
    seen = view.images.regions
    assert 8 < hidden.sum() < 32
    assert seen.features[hidden].abs().max() == seen.class_probs[hidden].abs().max() == 0
    assert (seen.classes[hidden] == -1).all()
    assert torch.equal(seen.boxes, clean.boxes)
    assert torch.equal(seen.features[~hidden], clean.features[~hidden])
    result = module(batch)
    scores = module.objectives["masked-roi"].head(module.step(batch).fused("corrupted").image.hidden)
    wanted = F.cross_entropy(scores[hidden], clean.classes[hidden])
    torch.testing.assert_close(result.total, wanted)


def test_hidden_concepts_are_asked_for_piece_by_piece():
    module = learn({"name": "masked-concept", "probability": 0.5}).eval()
    batch = corrupted(module, range(40))
    view, model = batch.views["corrupted"], module.model
    concepts, mark = view.images.concepts, view.mask_labels["masked_concepts"][:, :3]
    clean = batch.clean.images.concepts
    assert torch.equal((mark - 1)[mark > 0], clean.ids[mark > 0])
    assert not concepts.hidden[mark == 0].any()
    assert 0.65 < concepts.hidden[mark > 0].float().mean() < 0.95
    shown, slot, part = model.concepts(concepts)
    masked = concepts.hidden.gather(1, slot)
    assert (shown[masked] == WORDY.mask_id).all()
    terms, fused = [], module.step(batch).fused("corrupted").image.extra["concepts"]
    for row in range(40):
        for place in range(shown.shape[1]):
            was = int(mark[row, slot[row, place]]) - 1
            if was >= 0:
                piece = WORDY.concept_pieces[was][part[row, place]]
                scores = model.word_scores(fused[row, place])
                terms.append(F.cross_entropy(scores[None], torch.tensor([piece])))
    assert len(terms) > 30
    torch.testing.assert_close(module(batch).total, torch.stack(terms).mean(), rtol=1e-5, atol=1e-5)


def test_everything_at_once_trains():
    names = ["blm-s2slm", "image-sentence", "masked-roi", "masked-concept"]
    module = learn(*names)
    result = module(corrupted(module, range(24)))
    assert set(result.losses) == set(names)
    result.total.backward()
    without = [n for n, p in module.named_parameters() if p.grad is None]
    assert without == []


def test_what_does_not_fit_is_refused():
    with pytest.raises(ComponentError, match="no visual concepts"):
        learn("masked-concept", model={"concepts": 0})
    with pytest.raises(ComponentError, match="share"):
        learn({"name": "blm-s2slm", "bidirectional": 1.5})
    with pytest.raises(RecipeError, match="generate"):
        build_training_module({"name": "uniter", "hidden": 16, "heads": 2, "layers": 1}, ["s2slm"], WORDY)
    assert registry.load("models", "uniter") is UNITER
    assert registry.load("models", "dimbert") is DiMBERT
