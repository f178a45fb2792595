from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engine.parts import DATA_SPEC
from vlcli.engine.ema import Ema
from vlcli.engine.optim import build_optimizer, freeze, parameter_groups
from vlcli.engine.optimizers import BertAdam
from vlcli.engine.schedule import factor
from vlcli.engine.training_module import build_training_module
from vlcli.errors import RecipeError
from vlcli.recipe.fields import EmaOptions, OptimizerOptions, ScheduleOptions

torch.set_num_threads(1)


def module():
    return build_training_module("engine-tiny", ["engine-words", "engine-queue"], DATA_SPEC)


def by_name(groups):
    return {name: (group["peak"], group["weight_decay"]) for group in groups for name in group["names"]}


def test_bert_adam_is_adam_without_correction_and_with_decay_on_all():
    torch.manual_seed(0)
    weight = torch.nn.Parameter(torch.randn(5, dtype=torch.float64))
    p, m, v = weight.detach().clone(), torch.zeros(5).double(), torch.zeros(5).double()
    optimizer = BertAdam([weight], lr=0.1, eps=1e-6, weight_decay=0.01)
    for step in range(4):
        grad = torch.sin(torch.arange(5.0).double() + step)
        weight.grad = grad.clone()
        optimizer.step()
        m, v = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2
        p = p - 0.1 * (m / (v.sqrt() + 1e-6) + 0.01 * p)
    assert torch.allclose(weight.detach(), p, atol=1e-12)


def test_groups_decay_layers_and_proposals():
    options = OptimizerOptions(lr=1.0, weight_decay=0.1, layer_decay=0.5, groups=[{"match": "transform", "lr": 3}])
    found = by_name(parameter_groups(module(), options))
    assert found["model.words.weight"] == (0.5 * 0.5**3, 0.0)  # the model's proposal, depth 0 of 2 layers
    assert found["model.blocks.0.dense.weight"] == (0.25, 0.1)
    assert found["model.blocks.1.dense.bias"] == (0.5, 0.0)
    assert found["model.blocks.1.norm.weight"] == (0.5, 0.0)
    assert found["objectives.engine-words.transform.weight"] == (3.0, 0.1)
    assert not any(name.startswith("teacher") for name in found)


def test_tied_weights_are_trained_once():
    names = [name for group in parameter_groups(module(), OptimizerOptions()) for name in group["names"]]
    assert len(names) == len(set(names))
    assert "objectives.engine-words.table" not in names


def test_recipe_groups_win_over_proposals_and_may_set_decay():
    options = OptimizerOptions(lr=1.0, groups=[{"match": "words.weight", "lr": 2, "decay": 0.3}])
    assert by_name(parameter_groups(module(), options))["model.words.weight"] == (2.0, 0.3)


def test_bert_adam_decays_norms_and_biases_unless_told():
    found = by_name(parameter_groups(module(), OptimizerOptions(name="bert-adam")))
    assert {decay for name, (_, decay) in found.items() if not name.startswith("model.words")} == {0.01}
    told = by_name(parameter_groups(module(), OptimizerOptions(name="bert-adam", no_decay=["bias$"])))
    assert told["model.blocks.0.dense.bias"][1] == 0.0


def test_a_pattern_that_matches_nothing_and_a_broken_one_are_told():
    for pattern, text in (("no_such", "matches no parameter"), ("(", "regular expression")):
        with pytest.raises(RecipeError, match="1 problem") as caught:
            parameter_groups(module(), OptimizerOptions(groups=[{"match": pattern}]))
        assert text in str(caught.value)


def test_freezing_counts_and_refuses_to_train_nothing():
    made = module()
    counts = freeze(made, [r"^model\.blocks", "^objectives"], [r"blocks\.0"])
    trained = {name for name, p in made.named_parameters() if p.requires_grad}
    assert trained == {n for n, _ in made.named_parameters() if n.startswith(("model.blocks.1", "objectives"))}
    assert counts["trained"] == sum(p.numel() for p in made.parameters() if p.requires_grad)
    freeze(made, [], [])
    with pytest.raises(RecipeError, match="1 problem"):
        build_optimizer(made, OptimizerOptions())


@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "bert-adam", "muon"])
def test_every_optimizer_lowers_a_loss(name):
    made = module()
    optimizer = build_optimizer(made, OptimizerOptions(name=name, lr=1e-2))
    before = made.model.words.weight.square().mean()
    for _ in range(5):
        optimizer.zero_grad()
        made.model.words.weight.square().mean().backward()
        optimizer.step()
    assert made.model.words.weight.square().mean() < before


@settings(max_examples=60, deadline=None)
@given(
    total=st.integers(2, 500),
    warmup=st.one_of(st.floats(0, 0.99), st.integers(1, 100).map(float)),
    name=st.sampled_from(["linear", "cosine", "constant", "polynomial"]),
    end=st.floats(0, 1),
)
def test_the_factor_rises_then_falls_within_bounds(total, warmup, name, end):
    options = ScheduleOptions(name=name, warmup=warmup, end=end, power=2.0)
    values = [factor(index, total, options) for index in range(total)]
    assert all(0 <= value <= 1 + 1e-9 for value in values)
    top = values.index(max(values))
    assert all(a <= b + 1e-9 for a, b in zip(values[:top], values[1:], strict=False))  # noqa: RUF007
    assert all(a >= b - 1e-9 for a, b in zip(values[top:-1], values[top + 1 :], strict=True))


def test_a_step_schedule_drops_at_shares_of_the_run():
    options = ScheduleOptions(name="step", warmup=0.0, drops=[0.5, 0.9], factor=0.1)
    values = [factor(index, 10, options) for index in range(10)]
    assert values == pytest.approx([1.0] * 5 + [0.1] * 4 + [0.01])
    assert factor(0, 10, options.model_copy(update={"warmup": 4.0})) == 0.25


def test_the_schedule_of_bert_adam_is_the_published_one():
    options, total, warm = ScheduleOptions(warmup=0.1), 100, 0.1
    for index in range(total):
        x = index / total
        wanted = x / warm if x < warm else max((x - 1) / (warm - 1), 0)
        assert factor(index, total, options, count_after=True) == pytest.approx(wanted, abs=1e-12)


def test_the_average_follows_with_a_warm_up_and_steps_aside():
    made = module()
    ema, start = Ema(made, EmaOptions(decay=0.9)), made.model.words.weight.detach().clone()
    with torch.no_grad():
        made.model.words.weight.add_(11.0)
    ema.update(made)
    with ema.applied(made):
        assert torch.allclose(made.model.words.weight, start + 11 * (1 - 2 / 11), atol=1e-5)
    assert torch.allclose(made.model.words.weight, start + 11.0)
