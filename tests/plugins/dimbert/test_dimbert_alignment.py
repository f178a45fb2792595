"""Word-region alignment of UNITER: plans against a linear programme, padding, and what the loss counts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog
from tiny_concepts import WORDY
from vlcli_dimbert.alignment import transport

from tests.plugins.dimbert.test_dimbert_objectives import SIZES, corrupted
from vlcli.engine.training_module import build_training_module
from vlcli.objectives import MATCHED

torch.set_num_threads(1)
PARTS = ["matching", {"name": "masked-object", "mode": "as_published", "targets": ["label", "feature"]}]


def least(cost: np.ndarray) -> float:
    """The least cost of carrying 1/T of each word to 1/R of each region, by the simplex method."""
    words, regions = cost.shape
    of_words = np.kron(np.eye(words), np.ones(regions))
    of_regions = np.kron(np.ones(words), np.eye(regions))
    masses = np.r_[np.full(words, 1 / words), np.full(regions, 1 / regions)]
    return float(linprog(cost.ravel(), A_eq=np.r_[of_words, of_regions], b_eq=masses).fun)


def masks(*sizes: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(
        torch.arange(max(one[side] for one in sizes)) < torch.tensor([one[side] for one in sizes])[:, None]
        for side in (0, 1)
    )


@pytest.mark.parametrize("seed", range(4))
def test_the_plan_is_that_of_the_linear_programme(seed):
    rng = np.random.default_rng(seed)
    sizes = [tuple(rng.integers(1, 9, 2)) for _ in range(5)]
    words, regions = masks(*sizes)
    cost = torch.tensor(rng.random((5, words.shape[1], regions.shape[1])) * 2)
    plan = transport(cost, words, regions, steps=4000)
    for number, (count, boxes) in enumerate(sizes):
        part = plan[number, :count, :boxes]
        assert torch.allclose(part.sum(1), torch.full((count,), 1 / count, dtype=part.dtype), atol=1e-6)
        assert torch.allclose(part.sum(0), torch.full((boxes,), 1 / boxes, dtype=part.dtype), atol=1e-6)
        assert plan[number].sum().item() == pytest.approx(1)
        reached = (cost[number, :count, :boxes] * part).sum().item()
        assert reached == pytest.approx(least(cost[number, :count, :boxes].numpy()), abs=1e-4)


def test_fifty_steps_in_float32_are_near_and_padding_changes_nothing():
    words, regions = masks((7, 36), (20, 10))
    cost = torch.rand(2, 20, 36, generator=torch.Generator().manual_seed(0)) * 2
    plan = transport(cost, words, regions)
    alone = transport(cost[:1, :7], words[:1, :7], regions[:1])
    assert torch.allclose(plan[:1, :7], alone, atol=1e-7)
    assert not plan[0, 7:].any()
    for number, (count, boxes) in enumerate([(7, 36), (20, 10)]):
        exact = least(cost[number, :count, :boxes].double().numpy())
        reached = (cost[number] * plan[number]).sum().item()
        assert exact - 1e-4 < reached < exact + 0.02


@pytest.mark.parametrize(("mode", "sign"), [("as_published", 0.0), ("as_released", -1.0)])
def test_the_loss_counts_matched_pairs_and_as_released_the_others_against_them(mode, sign):
    objectives = [*PARTS, {"name": "word-region-alignment", "mode": mode}]
    module = build_training_module({**SIZES, "name": "uniter"}, objectives, WORDY).eval()
    batch = corrupted(module, range(12))
    result = module(batch)
    fused = module.model.fuse(
        module.model.embed_text(batch.views["corrupted"].text),
        module.model.embed_image(batch.views["corrupted"].images),
    )
    matched = batch.views["corrupted"].mask_labels[MATCHED].bool()
    total, count = 0.0, 0
    for row in range(12):
        words = fused.text.hidden[row][fused.text.layout.valid[row]]
        regions = fused.image.hidden[row][fused.image.layout.valid[row]]
        cost = (1 - torch.nn.functional.cosine_similarity(words[:, None], regions[None], dim=-1))[None]
        valid = torch.ones(1, cost.shape[1], dtype=torch.bool), torch.ones(1, cost.shape[2], dtype=torch.bool)
        distance = (cost * transport(cost, *valid)).sum()
        total += distance * (1.0 if matched[row] else sign)
        count += 1 if sign or matched[row] else 0
    assert 0 < matched.sum() < 12
    loss = result.losses["word-region-alignment"]
    assert loss.value().item() == pytest.approx((total / count).item(), abs=1e-5)


def test_a_picture_without_regions_leaves_gradients_finite():
    words, regions = masks((3, 4), (2, 0))
    cost = torch.rand(2, 3, 4, requires_grad=True)
    plan = transport(cost, words, regions)
    (cost * plan).sum((1, 2)).masked_fill(~regions.any(1), 0).sum().backward()
    assert not plan[1].any()
    assert cost.grad.isfinite().all()
