"""The anchor loss: worked numbers, masks, what normalising changes and what not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from vlcli_ace_rpe.alignment import hinge, soft_maximum

from tests.plugins.albef.reference import DATA_SPEC, MODEL, batch
from vlcli.engine.training_module import build_training_module


@pytest.fixture(scope="module")
def golden(shared: Path) -> Any:
    return np.load(shared / "reference" / "vlmo_golden.npz")


def test_the_worked_example(golden: Any) -> None:
    scale, margin = float(golden["ace/lam"]), float(golden["ace/delta"])
    own = torch.from_numpy(np.atleast_1d(golden["ace/f_pos"]))
    for negatives, wanted in (("f_neg", "H"), ("f_neg_b", "H_b")):
        others = torch.from_numpy(golden[f"ace/{negatives}"])[None]
        found = hinge(own, others, torch.ones_like(others, dtype=torch.bool), scale, margin, False)
        assert found.item() == pytest.approx(float(golden[f"ace/{wanted}"]), abs=1e-12)
    alike = torch.from_numpy(golden["ace/S"]).reshape(1, -1)
    pair = soft_maximum(alike, scale, torch.ones_like(alike, dtype=torch.bool), False)
    assert pair.item() == pytest.approx(float(golden["ace/pair_lse"]), abs=1e-12)
    total = (2 * float(golden["ace/H"]) - pair.item()) / 2
    assert total == pytest.approx(float(golden["ace/L_ace"]), abs=1e-12)


def test_what_is_masked_does_not_count() -> None:
    values = torch.tensor([[0.1, 0.9, 0.3]])
    kept = torch.tensor([[True, False, True]])
    whole = torch.ones(1, 2, dtype=torch.bool)
    for normalised in (False, True):
        cut = soft_maximum(values[:, [0, 2]], 2.0, whole, normalised)
        torch.testing.assert_close(soft_maximum(values, 2.0, kept, normalised), cut)


def test_as_printed_the_hinge_never_rests_with_the_paper_s_queue() -> None:
    best = torch.ones(1)  # cosines of a perfect model: 1 with its pair, -1 with all of the queue
    others = -torch.ones(1, 65535)
    loss = [hinge(best, others, others < 0, scale, 0.05, False).item() for scale in (2.0, 10.0)]
    assert loss[0] > 0
    assert loss[1] == 0


def loss_of(**options: Any) -> tuple[float, torch.Tensor]:
    torch.manual_seed(0)
    objectives = [{"name": "anchor-alignment", "width": 12, "queue": 24, **options}, {"name": "contrast-matching"}]
    module = build_training_module(MODEL, objectives, DATA_SPEC, seed=3).double().train()
    result = module(batch())
    mean = result.losses["anchor-alignment"]
    module.objectives["anchor-alignment"](module.step(batch()), {})
    (grad,) = torch.autograd.grad(result.total, module.model.patch.weight)
    return float(mean.total / mean.count), grad


def test_it_trains_the_encoders_and_feeds_the_hard_negatives() -> None:
    printed, grad = loss_of()
    normalised, other = loss_of(normalised=True)
    assert printed != pytest.approx(normalised)
    assert float(grad.abs().sum()) > 0
    assert float(other.abs().sum()) > 0


def test_a_sentence_without_words_leaves_the_loss_finite() -> None:
    torch.manual_seed(0)
    module = build_training_module(MODEL, [{"name": "anchor-alignment", "width": 12, "queue": 24}], DATA_SPEC).train()
    given = batch(pixels=batch().clean.images.pixels.images.float())
    given.clean.text.special[1] = True
    result = module(given)
    result.total.backward()
    assert result.total.isfinite()
    assert all(part.grad.isfinite().all() for part in module.parameters() if part.grad is not None)
