"""The three losses of a pre-training step, and their gradients, against the released code's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vlcli_vlmo.weights import released_name, to_released

from tests.plugins.vlmo.golden import DATA_SPEC, TINY, images, text, value
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.nn import Batch, View
from vlcli.objectives.mlm import MARK

OBJECTIVES = [
    {"name": "mlm", "weight": 0.25, "probability": 0.15, "whole_word": True},
    {"name": "contrast"},
    {"name": "contrast-matching", "sampler": "best", "same": "allowed"},
]


@pytest.fixture(scope="module")
def golden(shared: Path) -> Any:
    return np.load(shared / "reference" / "vlmo_golden.npz")


def filled(packed: bool) -> TrainingModule:
    module = build_training_module({"name": "vlmo", **TINY, "packed": packed}, OBJECTIVES, DATA_SPEC).double()
    theirs = to_released(dict(module.state_dict().items()))
    named = {k: value(k, tuple(v.shape)) for k, v in theirs.items() if v.is_floating_point()}
    adapted = module.model.adapt(named, [])
    state = {n if n.startswith("objectives.") else f"model.{n}": v for n, v in adapted.items()}
    for name in ("matching", "hard-matching"):  # one released head, whichever objective has it
        state = {n.replace(f"objectives.{name}.", "objectives.contrast-matching."): v for n, v in state.items()}
    missing, _ = module.load_state_dict(state, strict=False)
    assert not missing, missing
    return module


def batch() -> Batch:
    plain, pictures, rows = text(), images(), torch.arange(3)
    clean = View(plain, pictures, rows, rows[:, None], aligned=True)
    hidden = text()
    labels = torch.full((3, 6), -1)
    for place in ((0, 2), (1, 1), (1, 2), (2, 1)):
        labels[place] = hidden.ids[place]
        hidden.ids[place] = 33 if place == (2, 1) else 4
    corrupted = View(hidden, pictures, rows, rows[:, None], aligned=True, mask_labels={MARK: labels})
    return Batch({"clean": clean, "corrupted": corrupted}, {}, ["a", "b", "c"], torch.arange(3))


@pytest.mark.parametrize("packed", [False, True])
def test_losses_and_gradients_are_the_released_code_s(golden: Any, packed: bool) -> None:
    module = filled(packed).train()
    result = module(batch())
    found = {name: float(mean.total / mean.count) for name, mean in result.losses.items()}
    wanted = {
        name: float(golden[f"vlmo/rel/loss/{key}_loss"])
        for name, key in (("contrast", "itc"), ("contrast-matching", "itm"))
    }
    assert found["contrast"] == pytest.approx(wanted["contrast"], abs=1e-10)
    assert found["contrast-matching"] == pytest.approx(wanted["contrast-matching"], abs=1e-10)
    assert 0.25 * found["mlm"] == pytest.approx(float(golden["vlmo/rel/loss/mlm_loss"]), abs=1e-10)
    assert float(result.total) == pytest.approx(float(golden["vlmo/rel/loss/total"]), abs=1e-10)
    result.total.backward()
    compare_gradients(module, golden)


def compare_gradients(module: TrainingModule, golden: Any) -> None:
    norms = dict(zip(golden["vlmo/rel/grad/keys"].tolist(), golden["vlmo/rel/grad/norms"].tolist(), strict=True))
    squares: dict[str, float] = {}
    for name, parameter in module.named_parameters():
        theirs, _ = released_name(name.removeprefix("model."))
        assert theirs, name
        grad = 0.0 if parameter.grad is None else float(parameter.grad.square().sum())
        squares[theirs] = squares.get(theirs, 0.0) + grad
    assert set(squares) == set(norms)
    for name, norm in norms.items():
        assert squares[name] ** 0.5 == pytest.approx(norm, rel=1e-8, abs=1e-10), name


def test_scores_and_negatives(golden: Any) -> None:
    module = filled(False).eval()
    step = module.step(batch())
    contrast = module.objectives["contrast"](step, {})
    np.testing.assert_allclose(
        contrast.outputs["image_to_text"].numpy(), golden["vlmo/rel/loss/itc_i2t_logits"], atol=1e-10
    )
    matching = module.objectives["contrast-matching"](step, {"contrast": contrast})
    assert matching.outputs["pictures"].tolist() == golden["vlmo/rel/loss/neg_image_idx"].tolist()
    assert matching.outputs["sentences"].tolist() == golden["vlmo/rel/loss/neg_text_idx"].tolist()
    found = matching.outputs["logits"].detach().numpy()
    np.testing.assert_allclose(found, golden["vlmo/rel/loss/itm_logits"], atol=1e-9)
