"""DETR: transformers' predictions with padding, published counts, iRPE on the encoder, released names."""

from __future__ import annotations

import re

import torch
from vlcli_detr import DETR
from vlcli_detr.names import released_name

from vlcli.nn import DataSpec
from vlcli.nn.batch import Images, Pixels

SMALL = {"backbone": "resnet18", "hidden": 24, "heads": 3, "intermediate": 32, "encoder_layers": 2, "decoder_layers": 2}
SINE = "detr-sine"


def small(**options) -> DETR:
    torch.manual_seed(0)
    return DETR(DataSpec(), **SMALL, queries=5, classes=4, **options).eval()


def test_parameters_are_the_published_integers():
    counts = {}
    for name, position in {
        "sine": SINE,
        "product": [SINE, {"name": "irpe", "ratio": 2.0, "off_plane": "nothing"}],
        "bias": [SINE, {"name": "irpe", "ratio": 2.0, "off_plane": "nothing", "mode": "bias", "shared_heads": False}],
    }.items():
        with torch.device("meta"):
            counts[name] = sum(p.numel() for p in DETR(DataSpec(), position=position).parameters())
    assert counts["sine"] == 41_524_768
    assert counts["product"] - counts["sine"] == 15_552  # reference B1: 6 layers x 32 x 81
    assert counts["bias"] - counts["sine"] == 3_888


RENAMED = [
    (r"^input_proj\.", "model.input_projection."),
    (r"^query_embed\.", "model.query_position_embeddings."),
    (r"^encoder\.layers", "model.encoder.layers"),
    (r"^decoder\.(\d)", r"model.decoder.layers.\1"),
    (r"^decoder_norm\.", "model.decoder.layernorm."),
    (r"^class_embed\.", "class_labels_classifier."),
    (r"^bbox_embed\.0", "bbox_predictor.layers.0"),
    (r"^bbox_embed\.2", "bbox_predictor.layers.1"),
    (r"^bbox_embed\.4", "bbox_predictor.layers.2"),
    (r"self_attention\.norm", "self_attn_layer_norm"),
    (r"cross_attention\.norm", "encoder_attn_layer_norm"),
    (r"feed_forward\.norm", "final_layer_norm"),
    (r"feed_forward\.inner", "mlp.fc1"),
    (r"feed_forward\.outer", "mlp.fc2"),
    (r"attention\.dense", "attention.output"),
    (r"self_attention\.attention\.([qkvo])\w+", r"self_attn.\1_proj"),
    (r"cross_attention\.attention\.([qkvo])\w+", r"encoder_attn.\1_proj"),
]


def transformers_name(name: str) -> str:
    """Ours, as transformers calls it."""
    for ours, theirs in RENAMED:
        name = re.sub(ours, theirs, name)
    return name


def test_transformers_predictions():
    import transformers

    backbone = transformers.TimmBackboneConfig(backbone="resnet18", use_pretrained_backbone=False, out_indices=[4])
    config = transformers.DetrConfig(
        backbone_config=backbone, use_timm_backbone=False, d_model=24, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=32, decoder_ffn_dim=32, num_queries=5,
        num_labels=4,
    )  # fmt: skip
    other, ours = transformers.DetrForObjectDetection(config).eval(), small()
    theirs = other.state_dict()
    first = next(name for name in theirs if re.search(r"(^|\.)conv1\.weight$", name) and "layer" not in name)
    body = first.removesuffix("conv1.weight")
    with torch.no_grad():
        for name, value in ours.state_dict().items():
            public = body + name.removeprefix("body.") if name.startswith("body.") else transformers_name(name)
            value.copy_(theirs[public])
    pixels, mask = torch.randn(2, 3, 96, 128), torch.ones(2, 96, 128, dtype=torch.bool)
    mask[1, 64:], mask[1, :, 96:] = False, False
    found, wanted = ours(pixels, mask), other(pixel_values=pixels, pixel_mask=mask.long())
    assert torch.allclose(found.logits[-1], wanted.logits, atol=1e-4)
    assert torch.allclose(found.boxes[-1], wanted.pred_boxes, atol=1e-4)


def test_padding_changes_nothing():
    model = small(
        position=[
            SINE,
            {"name": "irpe", "ratio": 2.0, "off_plane": "nothing", "init": "xavier", "sides": ["key", "value"]},
        ]
    )
    pixels, mask = torch.zeros(1, 3, 128, 160), torch.zeros(1, 128, 160, dtype=torch.bool)
    pixels[:, :, :64, :96], mask[:, :64, :96] = torch.randn(1, 3, 64, 96), True
    # The backbone sees the padding at the border, so compare what the transformer does with one map.
    cells = model.input_proj(model.body(pixels))
    model.body, model.input_proj = torch.nn.Identity(), torch.nn.Conv2d(24, 24, 1)
    torch.nn.init.dirac_(model.input_proj.weight)
    torch.nn.init.zeros_(model.input_proj.bias)
    alone = model(cells[:, :, :2, :3])
    padded = model(cells, torch.nn.functional.interpolate(mask[:, None].float(), size=cells.shape[-2:])[:, 0].bool())
    assert torch.allclose(alone.boxes, padded.boxes, atol=1e-5)


def test_released_names_load_tables_and_all():
    model = small(position=[SINE, {"name": "irpe", "ratio": 2.0, "off_plane": "nothing", "init": "xavier"}])
    own, public, joint = model.state_dict(), {}, {}
    for name, value in own.items():
        theirs, third = released_name(name)
        if third is None:
            public[theirs] = value
        else:
            joint.setdefault(theirs, {})[third] = value
    public.update({name: torch.cat([parts[i] for i in range(3)]) for name, parts in joint.items()})
    expected = {
        "backbone.0.body.conv1.weight",
        "transformer.encoder.layers.0.self_attn.rpe_k.lookup_table_weight",
        "transformer.encoder.layers.1.self_attn.in_proj_weight",
        "transformer.decoder.layers.1.multihead_attn.out_proj.bias",
        "transformer.decoder.layers.1.norm3.weight",
        "transformer.decoder.norm.weight",
        "bbox_embed.layers.2.weight",
        "query_embed.weight",
    }
    assert expected <= public.keys()
    again = model.adapt(public, [])
    assert again.keys() == own.keys()
    assert all(torch.equal(again[name], own[name]) for name in own)


def test_training_gives_every_layer_and_backbone_groups():
    model = small().train()
    found = model(torch.randn(1, 3, 64, 64))
    assert found.logits.shape == (2, 1, 5, 5)
    (found.logits.square().sum() + found.boxes.sum()).backward()
    assert model.body.layer1[0].conv1.weight.grad is None
    assert model.body.layer2[0].conv1.weight.grad is not None
    assert model.parameter_groups() == [(r"^body\.", {"lr": 0.1})]
    pixels = Pixels(torch.randn(2, 3, 64, 64), torch.tensor([[64, 64]] * 2))
    states = model.eval().encode_image(Images(["a", "b"], pixels=pixels))
    assert states.extra["boxes"].shape == (2, 5, 4)
