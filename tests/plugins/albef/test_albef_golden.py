"""ALBEF's pre-training step against numbers of its released code (reference/vlmo_golden.md, section 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.plugins.albef.reference import IDS, MODEL, batch, close, gradients, loaded
from vlcli.engine.training_module import TrainingModule

LOSSES = {"distilled-mlm": "mlm", "momentum-contrast": "ita", "contrast-matching": "itm"}
UNSOFTENED = {"mlm": 3.584906497125509, "ita": 14.002324624762132, "itm": 0.7601790062169838}
"""At alpha 0, by ALBEF's code on the same weights and inputs."""


def objectives(alpha: float) -> list[dict[str, Any]]:
    return [
        {"name": "distilled-mlm", "distill": alpha},
        {"name": "momentum-contrast", "width": 12, "queue": 24, "distill": alpha},
        {"name": "contrast-matching", "pool": "own", "same": "allowed", "sampler": "best"},
    ]


def filled(alpha: float) -> TrainingModule:
    """The golden weights, and the momentum copies' own."""
    return loaded(MODEL, objectives(alpha), bert=True)


@pytest.fixture(scope="module")
def golden(shared: Path) -> Any:
    return np.load(shared / "reference" / "vlmo_golden.npz")


def test_encoders_and_fusion(golden: Any) -> None:
    module = filled(0.4).eval()
    step = module.step(batch())
    close(step.image().hidden, golden["albef/pretrain/image_embeds"])
    real = (IDS != 0).numpy()
    close(step.text().hidden[real], golden["albef/pretrain/text_embeds"][real])
    close(step.fused().text.hidden[real], golden["albef/pretrain/fusion_out"][real])
    logits = module.objectives["contrast-matching"].predict(step)["logits"]
    close(logits, golden["albef/pretrain/itm_logits_pos"])


def test_losses_gradients_queue_and_momentum(golden: Any) -> None:
    module = filled(0.4).train()
    result = module(batch())
    found = {name: float(mean.total / mean.count) for name, mean in result.losses.items()}
    for ours, theirs in LOSSES.items():
        assert found[ours] == pytest.approx(float(golden[f"albef/pretrain/alpha0.4/loss_{theirs}"]), abs=1e-9)
    result.total.backward()
    norms = gradients(module)
    keys, theirs = (golden[f"albef/pretrain/alpha0.4/grad/{name}"].tolist() for name in ("keys", "norms"))
    assert set(norms) == set(keys)
    for name, norm in zip(keys, theirs, strict=True):
        assert norms[name] == pytest.approx(norm, rel=1e-7, abs=1e-9), name
    module.close_step()
    contrast = module.objectives["momentum-contrast"]
    assert contrast.place.tolist() == golden["albef/pretrain/queue_ptr_after"].tolist()
    close(contrast.image_queue, golden["albef/pretrain/image_queue_after"])
    close(contrast.text_queue, golden["albef/pretrain/text_queue_after"])
    name = "visual_encoder_m.blocks.0.mlp.fc1.weight"
    close(module.teacher.image.layers[0].feed_forward.inner.weight, golden[f"albef/pretrain/momentum_key_after/{name}"])


def test_losses_without_distillation() -> None:
    module = filled(0.0).train()
    result = module(batch())
    for ours, theirs in LOSSES.items():
        mean = result.losses[ours]
        assert float(mean.total / mean.count) == pytest.approx(UNSOFTENED[theirs], abs=1e-9)
    result.total.backward()
    norm = float(np.sqrt(sum(norm**2 for norm in gradients(module).values())))
    assert norm == pytest.approx(178.83648790425838, rel=1e-9)
