"""Fusion layers on two towers: objectives, encodings in every slot, recorded attention."""

from __future__ import annotations

import pytest
import torch

from tests.plugins.two_tower import tiny
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses, Recorder
from vlcli.nn.slots import build_model

LAYER = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
MODEL = {
    "name": "two-tower-fused",
    "image": {"model_type": "vit", "image_size": 32, "patch_size": 8, **LAYER},
    "text": {"model_type": "bert", **LAYER},
    "hidden": 24,
    "heads": 2,
    "cross_layers": 2,
}
SPEC = DataSpec(vocab_size=30, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=12, answers=("yes", "no"))


def fused(**options):
    torch.manual_seed(0)
    model = build_model({**MODEL, **options}, SPEC).eval()
    with torch.no_grad():  # tables that begin at zero would do nothing
        for name, parameter in model.named_parameters():
            if "position" in name or name.startswith(("joint", "cross.of_")):
                parameter.add_(torch.randn_like(parameter))
    record = Recorder()
    with torch.no_grad():
        return model, ForwardPasses(model, tiny.batch(), training=False, record=record).fused(), record


def test_objectives_of_pairs_train_on_it():
    names = ["contrast", "contrast-matching", "sigmoid-contrast", "matching", "mlm"]
    module = build_training_module(MODEL, names[:4], SPEC)
    found = module(tiny.batch())
    assert set(found.losses) >= {"contrast", "contrast-matching", "sigmoid-contrast"}
    found.total.backward()
    assert all(bool(p.grad.isfinite().all()) for p in module.parameters() if p.grad is not None)
    build_training_module(MODEL, ["mlm"], SPEC)


@pytest.mark.parametrize(
    ("fusion", "options"),
    [
        ("co-attention", {"cross_position": "ace-rpe"}),
        ("co-attention", {"joint_image_position": "irpe"}),
        ("co-attention", {"joint_image_position": "learned", "joint_text_position": "learned"}),
        ("merged", {"position": "irpe"}),
        ("merged", {"position": "ace-rpe"}),
        ("merged", {"attention": "disentangled"}),
    ],
)
def test_encodings_and_attentions_of_papers_act_in_the_fusion_layers(fusion, options):
    plain, other = fused(fusion=fusion)[1], fused(fusion=fusion, **options)[1]
    assert other.text.hidden.shape == plain.text.hidden.shape == (3, 7, 24)
    assert other.image.hidden.shape == (3, 17, 24)
    assert other.pooled.shape == (3, 24)
    assert not torch.allclose(other.pooled, plain.pooled, atol=1e-6)


@pytest.mark.parametrize(
    ("fusion", "options"),
    [("merged", {"cross_position": "ace-rpe"}), ("co-attention", {"position": "irpe"}), ("co-attention", {"heads": 5})],
)
def test_what_would_do_nothing_is_refused(fusion, options):
    with pytest.raises(ComponentError):
        fused(fusion=fusion, **options)


def test_attention_of_words_to_cells_is_recorded():
    record = fused()[2]
    assert record.attention["cross.1.text_to_image"].shape == (3, 2, 7, 17)
    assert set(fused(fusion="merged")[2].attention) == {"fused.0", "fused.1"}
