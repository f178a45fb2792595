"""Text assignment: what is drawn, and the loss against ALBEF's released code (as in test_albef_downstream)."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.plugins.albef.reference import DATA_SPEC, IDS, MODEL, batch, gradients, loaded
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.errors import ComponentError

WITH_TWO = {**MODEL, "images": 2}
LOSS, NORM = 1.3624670141380184, 5.684233288692704
"""Of the examples with the pictures 0 and 2, 0 and 2, 1 and 2, of which the first, none and the second are theirs."""


def drawing(neither: float = 1 / 3, rows: int = 3) -> tuple[TrainingModule, torch.Tensor]:
    torch.manual_seed(0)
    module = build_training_module(
        {**WITH_TWO, "init_std": 0.02}, [{"name": "text-assignment", "width": 8, "neither": neither}], DATA_SPEC
    ).double()
    return module.eval(), torch.randn(rows, 3, 48, 48, dtype=torch.float64)


def test_loss_and_gradients_are_the_released_code_s() -> None:
    spec = {**WITH_TWO, "text_layers": 6, "cross_layers": 6}
    module = loaded(spec, [{"name": "text-assignment", "width": 12}]).train()
    pairs = torch.tensor([[0, 2], [0, 2], [1, 2]]), torch.tensor([0, 2, 1])
    module.objectives["text-assignment"]._pairs = lambda *_: pairs
    result = module(batch())
    mean = result.losses["text-assignment"]
    assert float(mean.total / mean.count) == pytest.approx(LOSS, abs=1e-9)
    result.total.backward()
    assert float(np.sqrt(sum(norm**2 for norm in gradients(module).values()))) == pytest.approx(NORM, rel=1e-9)
    assert module.objectives["text-assignment"].image.weight.grad is None


def test_what_stands_beside_a_picture() -> None:
    module, pixels = drawing(rows=6)
    given = batch(IDS.repeat(2, 1), pixels, hidden={}, keys=["a", "b", "a", "c", "d", "e"])
    objective, kinds, beside = module.objectives["text-assignment"], [0, 0, 0], set[tuple[int, int]]()
    for turn in range(60):
        given.seeds = torch.arange(6) + 1000 * turn
        step = module.step(given)
        pairs, truth = objective._pairs(step, step.image(), torch.arange(6))
        again = objective._pairs(step, step.image(), torch.arange(6))
        assert torch.equal(pairs, again[0])
        assert torch.equal(truth, again[1])
        for row, ((left, right), kind) in enumerate(zip(pairs.tolist(), truth.tolist(), strict=True)):
            kinds[kind] += 1
            own = {0: left, 1: right}.get(kind)
            assert own in (row, None)
            others = [place for place in (left, right) if kind == 2 or place != row]
            assert left != right
            beside |= {(row, other) for other in others}
    assert all(abs(count / 360 - 1 / 3) < 0.1 for count in kinds)
    assert not beside & {(0, 2), (2, 0), *((row, row) for row in range(6))}  # one picture, in two examples
    assert {(1, other) for other in (0, 2, 3, 4, 5)} <= beside


def test_alike_pictures_come_oftener() -> None:
    module, pixels = drawing(neither=0.0)
    objective = module.objectives["text-assignment"]
    vectors = torch.tensor([[1.0, 0.0], [0.9, 0.4359], [-1.0, 0.1]], dtype=torch.float64)
    objective.image, objective.temperature = torch.nn.Identity(), 0.5
    given, counts = batch(pixels=pixels, hidden={}), [0, 0, 0]
    step = module.step(given)
    states = step.image()
    states.pooled = vectors
    for turn in range(400):
        given.seeds = torch.arange(3) + 777 * turn
        pairs = objective._pairs(step, states, torch.arange(3))[0]
        counts[next(place for place in pairs[0].tolist() if place != 0)] += 1
    likeness = torch.nn.functional.normalize(vectors, dim=1) @ torch.nn.functional.normalize(vectors[0], dim=0)
    wanted = torch.softmax(likeness[1:] / 0.5, 0)[0]
    assert counts[1] / 400 == pytest.approx(float(wanted), abs=0.06)


def test_small_batches() -> None:
    module, pixels = drawing(neither=1.0, rows=2)
    two = module(batch(IDS[:2], pixels, hidden={}))
    assert two.total.isfinite()
    step = module.step(batch(IDS[:2], pixels, hidden={}))
    truth = module.objectives["text-assignment"](step, {}).outputs["truth"]
    assert set(truth.tolist()) <= {0, 1}  # two others are not there
    one = module(batch(IDS[:1], pixels[:1], hidden={}))
    assert one.total.item() == 0
    one.total.backward()


def test_a_model_of_one_picture_is_refused() -> None:
    with pytest.raises(ComponentError, match="two pictures"):
        build_training_module(MODEL, [{"name": "text-assignment"}], DATA_SPEC)
