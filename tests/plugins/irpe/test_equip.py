"""Foreign models equipped in two lines: timm's ViT, transformers' ViT and DETR."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import vlcli_deit
import vlcli_irpe
from torch import nn

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec

SIDES = ["query", "key", "value"]


def small_timm(**options):
    return timm.create_model(
        "vit_tiny_patch16_224", depth=2, embed_dim=24, num_heads=3, num_classes=5, **options
    ).eval()


def randomised(model: nn.Module) -> nn.Module:
    torch.manual_seed(3)
    for name, parameter in model.named_parameters():
        if "lookup_table" in name:
            nn.init.normal_(parameter)
    return model


def test_timm_vit_starts_unchanged_and_learns():
    torch.manual_seed(0)
    plain = small_timm(img_size=64)
    equipped = vlcli_irpe.equip(copy.deepcopy(plain), method="product", sides=SIDES)
    pixels = torch.randn(2, 3, 64, 64)
    assert torch.allclose(plain(pixels), equipped(pixels), atol=1e-5)  # tables start at zero
    tables = {name: p for name, p in equipped.named_parameters() if "lookup_table" in name}
    assert sorted(tables)[:3] == [f"blocks.0.attn.rpe_{letter}.lookup_table_weight" for letter in "kqv"]
    randomised(equipped)
    assert not torch.allclose(plain(pixels), equipped(pixels), atol=1e-3)
    equipped(pixels).sum().backward()
    assert all(p.grad.abs().sum() > 0 for p in tables.values())


def test_equipped_timm_model_is_our_deit():
    torch.manual_seed(0)
    theirs = randomised(vlcli_irpe.equip(small_timm(img_size=48), method="cross", sides=SIDES))
    position = {"name": "irpe", "method": "cross", "sides": SIDES}
    sizes = {"hidden": 24, "heads": 3, "layers": 2, "image_size": 48, "classes": 5}
    ours = vlcli_deit.DeiT(DataSpec(), **sizes, position=position).eval()
    ours.load_state_dict(ours.adapt(theirs.state_dict(), []))
    pixels = torch.randn(2, 3, 48, 48)
    assert torch.allclose(ours(pixels), theirs(pixels), atol=1e-5)


def test_other_sizes_copies_and_registers():
    model = randomised(vlcli_irpe.equip(small_timm(dynamic_img_size=True, reg_tokens=2)))
    twin = copy.deepcopy(model)
    for size in ((64, 96), (96, 64)):
        pixels = torch.randn(1, 3, *size)
        assert torch.allclose(model(pixels), twin(pixels))
    with torch.no_grad():
        twin.blocks[0].attn.rpe_k.lookup_table_weight.zero_()
    assert not torch.allclose(model(pixels), twin(pixels))


def test_any_pairwise_encoding_can_be_added():
    model = vlcli_irpe.equip(small_timm(img_size=64), "rope-2d", frequencies="mixed")
    assert model(torch.randn(1, 3, 64, 64)).shape == (1, 5)
    assert any(name.startswith("relative_position.") for name, _ in model.named_parameters())


def test_transformers_vit():
    import transformers

    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=48, image_size=64, patch_size=16
    )
    torch.manual_seed(0)
    model = transformers.ViTModel(config).eval()
    pixels = torch.randn(2, 3, 64, 64)
    plain = model(pixels).last_hidden_state
    vlcli_irpe.equip(model, sides=SIDES)
    assert torch.allclose(model(pixels).last_hidden_state, plain, atol=1e-5)
    changed = randomised(model)(pixels).last_hidden_state
    assert not torch.allclose(changed, plain, atol=1e-3)
    assert sum("lookup_table" in name for name, _ in model.named_parameters()) == 6


def small_detr():
    import transformers

    backbone = transformers.ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", out_features=["stage2"]
    )
    config = transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, d_model=24,
        encoder_layers=2, decoder_layers=1, encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=32,
        decoder_ffn_dim=32, num_queries=5, num_labels=4,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.DetrForObjectDetection(config).eval()


def test_transformers_detr_with_padding():
    model = small_detr()
    pixels, mask = torch.randn(2, 3, 64, 96), torch.ones(2, 64, 96, dtype=torch.long)
    mask[1, 40:], pixels[1, :, 40:] = 0, 0
    for layer in model.model.encoder.layers:
        nn.init.normal_(layer.self_attn.q_proj.weight, std=0.5)
    plain = model(pixel_values=pixels, pixel_mask=mask).encoder_last_hidden_state
    vlcli_irpe.equip(model, ratio=2.0, off_plane="nothing", sides=["key"])
    tables = [name for name, _ in model.named_parameters() if "lookup_table" in name]
    assert len(tables) == 2
    assert all(".encoder." in name for name in tables)
    again = model(pixel_values=pixels, pixel_mask=mask)
    assert torch.allclose(again.encoder_last_hidden_state, plain, atol=1e-5)
    both = randomised(model)(pixel_values=pixels, pixel_mask=mask)
    assert not torch.allclose(both.encoder_last_hidden_state, plain, atol=1e-2)
    pixels[1, :, 48:] = 7.0  # padding is not looked at, whatever stands there and whatever its bucket
    noisy = model(pixel_values=pixels, pixel_mask=mask)
    assert torch.isfinite(noisy.logits).all()
    assert torch.allclose(noisy.logits[0], both.logits[0], atol=1e-5)


def test_models_that_cannot_be_equipped_say_why():
    with pytest.raises(ComponentError, match="cannot be equipped") as caught:
        vlcli_irpe.equip(timm.create_model("swin_tiny_patch4_window7_224", depths=(1, 1, 1, 1)))
    assert "WindowAttention" in caught.value.got
    with pytest.raises(ComponentError, match="cannot be equipped"):
        vlcli_irpe.equip(nn.Linear(2, 2))
    with pytest.raises(ComponentError, match="already equipped"):
        vlcli_irpe.equip(vlcli_irpe.equip(small_timm(img_size=32)))
    with pytest.raises(ComponentError):
        vlcli_irpe.equip(small_timm(img_size=32), "sinusoid")


def test_the_guide_s_examples_run(monkeypatch):
    """docs/irpe.md equips three foreign models; only the downloads are replaced by small configurations."""
    import transformers

    text = (Path(__file__).parents[3] / "docs" / "irpe.md").read_text(encoding="utf-8")
    examples = [block for block in re.findall(r"```python\n(.*?)```", text, re.S) if "vlcli_irpe.equip" in block]
    assert len(examples) == 3
    config = transformers.ViTConfig(hidden_size=24, num_hidden_layers=1, num_attention_heads=3, intermediate_size=48)
    detr = small_detr()
    monkeypatch.setattr(transformers.ViTModel, "from_pretrained", lambda name: transformers.ViTModel(config))
    monkeypatch.setattr(transformers.DetrForObjectDetection, "from_pretrained", lambda name: detr)
    for example in examples:
        made: dict[str, Any] = {"vlcli_irpe": vlcli_irpe}
        exec(example, made)
        assert any("lookup_table" in name for name, _ in made["model"].named_parameters())
        with torch.no_grad():
            assert made["model"](torch.randn(1, 3, 224, 224)) is not None
