from __future__ import annotations

import pytest
import torch

from tests.engine.parts import DATA_SPEC, FakeData
from vlcli.engine.training_module import Part, build_training_module, follow
from vlcli.errors import ComponentError, RecipeError

torch.set_num_threads(1)


def batch():
    return FakeData().batch(torch.arange(6))


def test_an_entry_is_taken_apart():
    part = Part.of({"name": "engine-words", "as": "w", "weight": 2, "from_epoch": 1, "until_epoch": 3, "bad_at": 7})
    assert (part.name, part.spec) == ("w", {"name": "engine-words", "bad_at": 7})
    assert [part.active(epoch) for epoch in range(4)] == [False, True, True, False]


def test_total_is_the_weighted_sum_of_means():
    module = build_training_module("engine-tiny", [{"name": "engine-words", "weight": 2}, "engine-contrast"], DATA_SPEC)
    result = module(batch())
    means = {name: float(mean.value()) for name, mean in result.losses.items()}
    assert set(means) == {"engine-words", "engine-contrast"}
    assert result.total.item() == pytest.approx(2 * means["engine-words"] + means["engine-contrast"], rel=1e-6)
    assert "engine-words/accuracy" in result.metrics


def test_readers_run_after_what_they_read_whatever_the_order():
    module = build_training_module("engine-tiny", ["engine-reader", {"name": "engine-words", "as": "w"}], DATA_SPEC)
    assert module.order == ["w", "engine-reader"]
    assert module(batch()).total.isfinite()


def test_an_inactive_objective_that_is_read_runs_without_weight():
    words = {"name": "engine-words", "from_epoch": 5}
    module = build_training_module("engine-tiny", [words, "engine-reader"], DATA_SPEC)
    result = module(batch(), epoch=0)
    assert result.total.item() == pytest.approx(float(result.losses["engine-reader"].value()), rel=1e-6)
    assert module(batch(), epoch=5).total > result.total


@pytest.mark.parametrize(
    ("objectives", "text"),
    [
        (["engine-reader"], "not there"),
        (["engine-words", "engine-words"], "two objectives"),
        ([{"name": "engine-words", "as": "a/b"}], "as: NAME"),
        (["engine-fusing"], "needs a model that can: fuse"),
    ],
)
def test_faults_of_a_recipe_are_told(objectives, text):
    with pytest.raises(RecipeError) as caught:
        build_training_module("engine-tiny", objectives, DATA_SPEC)
    assert text in str(caught.value)


def test_an_unknown_component_is_told():
    with pytest.raises(ComponentError):
        build_training_module("engine-tinny", ["engine-words"], DATA_SPEC)


def test_weights_come_from_the_seed_and_heads_do_not_depend_on_their_order():
    first = build_training_module("engine-tiny", ["engine-words", "engine-contrast"], DATA_SPEC, seed=4).state_dict()
    other = build_training_module("engine-tiny", ["engine-contrast", "engine-words"], DATA_SPEC, seed=4).state_dict()
    assert all(torch.equal(first[name], other[name]) for name in first)
    changed = build_training_module("engine-tiny", ["engine-words", "engine-contrast"], DATA_SPEC, seed=5).state_dict()
    assert not torch.equal(first["model.words.weight"], changed["model.words.weight"])


def test_the_teacher_follows_and_is_not_trained():
    module = build_training_module("engine-tiny", ["engine-queue"], DATA_SPEC).train()
    before = module.teacher.words.weight.clone()
    with torch.no_grad():
        module.model.words.weight.add_(1.0)
    module(batch()).total.backward()
    assert torch.allclose(module.teacher.words.weight, before + 0.1, atol=1e-6)
    assert all(p.grad is None and not p.requires_grad for p in module.teacher.parameters())
    module(batch(), first=False)
    assert torch.allclose(module.teacher.words.weight, before + 0.1, atol=1e-6)


def test_following_keeps_the_share_it_is_told():
    old, new = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    wanted = 0.75 * old.weight.detach() + 0.25 * new.weight.detach()
    follow(old, new, 0.75)
    assert torch.allclose(old.weight, wanted)


def test_queues_move_after_the_step_only_in_training():
    module = build_training_module("engine-tiny", ["engine-queue"], DATA_SPEC)
    module.train()(batch())
    module.close_step()
    assert int(module.objectives["engine-queue"].place) == 6
    module.eval()(batch())
    module.close_step()
    assert int(module.objectives["engine-queue"].place) == 6


def test_predictions_come_from_those_that_predict():
    module = build_training_module("engine-tiny", ["engine-words", "engine-contrast"], DATA_SPEC).eval()
    assert set(module.predict(module.step(batch()))) == {"engine-words"}


def test_heads_of_another_number_of_pictures_predict_nothing():
    module = build_training_module("engine-tiny", ["engine-words"], DATA_SPEC).eval()
    pair = batch()
    for pictures, count, said in ((1, 1, {"engine-words"}), (1, 2, set()), (0, 2, {"engine-words"})):
        pair.clean.image_rows = torch.zeros(6, pictures, dtype=torch.long)
        module.objectives["engine-words"].images = count
        assert set(module.predict(module.step(pair))) == said
