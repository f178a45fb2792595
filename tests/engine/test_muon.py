"""Muon equals torch's, which takes one matrix after another, and AdamW for the parameters that are no matrices."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from tests.engine.parts import DATA_SPEC
from vlcli.engine import optimizer_state, optimizers
from vlcli.engine.optim import build_optimizer
from vlcli.engine.optimizers import orthogonal
from vlcli.engine.training_module import build_training_module
from vlcli.recipe.fields import OptimizerOptions
from vlcli.recipe.schema import Pretrain


def module():
    torch.manual_seed(0)
    made = build_training_module("engine-tiny", ["engine-words"], DATA_SPEC)
    made.model.wide, made.model.narrow = torch.nn.Linear(16, 40), torch.nn.Linear(40, 16)
    return made


def built(made, **options):
    return build_optimizer(made, OptimizerOptions(name="muon", lr=3e-2, weight_decay=0.1, **options))


def give_gradients(made, step):
    draw = torch.Generator().manual_seed(step)
    for parameter in made.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=draw) * 10.0 ** (step - 1)


def is_matrix(name):
    return name.startswith("model.") and name.endswith(("dense.weight", "wide.weight", "narrow.weight"))


@pytest.mark.parametrize("options", [{}, {"momentum": 0.8}])
def test_steps_are_those_of_torch_s_muon_and_of_adamw(monkeypatch, options):
    ours, theirs = module(), module()
    named = dict(theirs.named_parameters())
    matrices = [p for name, p in named.items() if is_matrix(name)]
    momentum = options.get("momentum", 0.95)
    others = [
        torch.optim.Muon(matrices, 3e-2, 0.1, momentum, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW([named["objectives.engine-words.transform.weight"]], 3e-2, weight_decay=0.1),
        torch.optim.AdamW([p for p in named.values() if p.ndim == 1], 3e-2, weight_decay=0.0),
        torch.optim.AdamW([named["model.words.weight"]], 0.5 * 3e-2, weight_decay=0.0),  # the model's proposal
    ]
    optimizer = built(ours, **options)
    assert {n for g in optimizer.param_groups if g["matrices"] for n in g["names"]} == set(filter(is_matrix, named))
    monkeypatch.setattr(torch.Tensor, "bfloat16", torch.Tensor.clone)  # torch's products then have float32
    monkeypatch.setattr(optimizers, "_type_of_products", lambda _: torch.float32)
    for step in range(4):
        for made, chosen in ((ours, [optimizer]), (theirs, others)):
            give_gradients(made, step)
            for one in chosen:
                one.step()
    for name, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter, named[name], rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.parametrize("number_type", [torch.float32, torch.bfloat16])
def test_rows_become_orthonormal_whatever_the_gradient_s_size(monkeypatch, number_type):
    monkeypatch.setattr(optimizers, "_type_of_products", lambda _: number_type)
    matrices = torch.randn(3, 20, 50, generator=torch.Generator().manual_seed(1))
    values = torch.linalg.svdvals(orthogonal(matrices))
    assert 0.6 < values.min() < values.max() < 1.3
    close = {"rtol": 1e-4, "atol": 1e-5} if number_type == torch.float32 else {"rtol": 0.0, "atol": 0.05}
    torch.testing.assert_close(orthogonal(matrices * 1e-4), orthogonal(matrices), **close)
    assert orthogonal(matrices).dtype == torch.float32
    assert not orthogonal(torch.zeros(1, 3, 4)).any()


def test_parameters_without_a_gradient_stay():
    made = module()
    optimizer, before = built(made), {name: p.detach().clone() for name, p in made.named_parameters()}
    give_gradients(made, 0)
    made.model.wide.weight.grad = made.model.blocks[0].norm.weight.grad = None
    optimizer.step()
    stayed = {name for name, p in made.named_parameters() if torch.equal(p, before[name])}
    assert stayed == {"model.wide.weight", "model.blocks.0.norm.weight"}


def test_a_saved_state_goes_on_to_the_same_weights(tmp_path):
    whole, first, second = module(), module(), module()
    optimizer, early, late = built(whole), built(first), built(second)
    for step in range(4):
        give_gradients(whole, step)
        optimizer.step()
    for step in range(2):
        give_gradients(first, step)
        early.step()
    tensors = optimizer_state.write_state(tmp_path, early)
    second.load_state_dict(first.state_dict())
    optimizer_state.load_state(late, optimizer_state.read_numbers(tmp_path, late), tensors)
    for step in range(2, 4):
        give_gradients(second, step)
        late.step()
    assert all(torch.equal(p, q) for p, q in zip(whole.parameters(), second.parameters(), strict=True))


@pytest.mark.parametrize(
    ("options", "said"), [({}, "`lr` beside `name: muon`"), ({"lr": 1e-3, "sharding": "full"}, "needs whole matrices")]
)
def test_a_rate_is_asked_for_and_shards_are_refused(options, said):
    sharding = options.pop("sharding", "none")
    with pytest.raises(ValidationError, match=said):
        Pretrain(
            kind="pretrain",
            data={"name": "d"},
            objectives=["mlm"],
            optimizer={"name": "muon", **options},
            sharding=sharding,
        )
