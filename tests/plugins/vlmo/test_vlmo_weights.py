"""Weights in and out: the released layout, BEiT's in three layouts, other sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from vlcli_vlmo import VLMo, to_released

from tests.plugins.vlmo.golden import DATA_SPEC, TINY, images
from vlcli import registry
from vlcli.nn import DataSpec
from vlcli.nn.count import count_model

COUNTS = {"base": 175_430_496, "base_plus": 166_567_360, "large": 561_544_448}


@pytest.mark.parametrize("size", COUNTS)
def test_parameters_of_the_released_encoders(size: Any) -> None:
    with torch.device("meta"):
        model = VLMo(DataSpec(text_length=40), size=size)
    assert count_model(model)["encoder"] == COUNTS[size]


def test_keys_and_shapes_of_a_released_encoder(shared: Path) -> None:
    with torch.device("meta"):
        model = VLMo(DataSpec(text_length=40))
    ours = {name: str(tuple(value.shape)) for name, value in to_released(model.state_dict()).items()}
    lines = (shared / "reference" / "vlmo_base_patch16_224_keys.txt").read_text().splitlines()
    theirs = {key: shape for key, shape, _ in (line.split("\t") for line in lines)}
    heads = ("mlm_score", "itm_score", "itc_", "logit_")
    assert ours == {key: shape for key, shape in theirs.items() if not key.startswith(heads)}


@pytest.mark.parametrize("positions", ["relative", "absolute"])
def test_released_names_there_and_back(positions: Any) -> None:
    one, other = (VLMo(DATA_SPEC, **TINY, position_type=positions) for _ in range(2))
    report: list[str] = []
    released = {f"module.{name}": value for name, value in to_released(one.state_dict()).items()}
    released["module.relative_position_index"] = torch.zeros(10, 10)
    other.load_state_dict(other.adapt(released, report))
    assert all(torch.equal(value, other.state_dict()[name]) for name, value in one.state_dict().items())
    assert any("relative_position_index" in line and "not read" in line for line in report)


def test_a_third_type_row_and_shorter_text() -> None:
    one, other = VLMo(DATA_SPEC, **TINY), VLMo(DataSpec(vocab_size=37, text_length=4), **TINY, images=2)
    report: list[str] = []
    other.load_state_dict(other.adapt(dict(one.state_dict()), report))
    assert torch.equal(other.types.weight[2], one.types.weight[1])
    assert len(report) == 2


def beit_like(**options: Any) -> VLMo:
    model = VLMo(DATA_SPEC, **{**TINY, "fused_layers": 0}, **options).eval()
    with torch.no_grad():
        model.types.weight.zero_()
    return model


def loaded(model: VLMo, state: dict[str, torch.Tensor]) -> VLMo:
    report: list[str] = []
    missing, _ = model.load_state_dict(model.adapt(state, report), strict=False)
    rest = ("text", "types", "pooler", "idle_positions", "stack.layers")  # but not the table
    assert all(name.startswith(rest) for name in missing)
    assert not any("image" in name or "feed.norm" in name or "attention" in name for name in missing)
    assert any("BEiT" in line for line in report)
    return model


@pytest.mark.parametrize("options", [{}, {"layer_scale": None, "shared_norm": True}])
def test_an_image_alone_is_timm_s_beit(options: Any) -> None:
    beit = pytest.importorskip("timm.models.beit")
    sizes = {"img_size": 48, "patch_size": 16, "embed_dim": 24, "depth": 3, "num_heads": 4, "num_classes": 0}
    theirs = beit.Beit(
        **sizes, use_abs_pos_emb=False, use_rel_pos_bias=True, init_values=0.1, global_pool="token"
    ).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = loaded(beit_like(**options), theirs.state_dict())
    pixels = images().pixels.images.float()
    found = images()
    found.pixels.images = pixels
    torch.testing.assert_close(ours.encode_image(found).hidden, theirs.forward_features(pixels), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shared", [True, False])
def test_an_image_alone_is_transformers_beit_with_one_table_or_one_a_layer(shared: bool) -> None:
    import transformers

    config = transformers.BeitConfig(
        image_size=48, patch_size=16, hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=96,
        use_shared_relative_position_bias=shared, use_relative_position_bias=not shared,
        use_absolute_position_embeddings=False, layer_norm_eps=1e-6,
        layer_scale_init_value=0.1, use_mean_pooling=False, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = transformers.BeitModel(config, add_pooling_layer=False).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = loaded(beit_like(), theirs.state_dict())
    found = images()
    found.pixels.images = found.pixels.images.float()
    with torch.no_grad():
        wanted = theirs(found.pixels.images).last_hidden_state
        torch.testing.assert_close(ours.encode_image(found).hidden, wanted, rtol=1e-4, atol=1e-5)


def test_the_last_norm_of_a_classifier_stays_as_drawn() -> None:
    """BEiT's classifiers have ``fc_norm`` over the mean of the tokens and no norm behind the last block."""
    beit = pytest.importorskip("timm.models.beit")
    sizes = {"img_size": 48, "patch_size": 16, "embed_dim": 24, "depth": 3, "num_heads": 4, "num_classes": 5}
    theirs = beit.Beit(**sizes, use_abs_pos_emb=False, use_rel_pos_bias=True, init_values=0.1, global_pool="avg")
    ours = beit_like()
    report: list[str] = []
    made = ours.adapt(theirs.state_dict(), report)
    assert torch.equal(made["stack.norm.weight"], ours.stack.norm.weight)
    assert sum("last norm" in line for line in report) == 1


def test_a_classifier_of_the_hub_has_its_norm_under_the_pooler() -> None:
    """The weights from which the recipe ``vlmo`` starts: transformers' names, a norm of the mean."""
    from transformers import BeitConfig, BeitForImageClassification

    sizes = {"image_size": 48, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4}
    kinds = {"use_relative_position_bias": True, "use_mean_pooling": True, "layer_scale_init_value": 0.1}
    theirs = BeitForImageClassification(BeitConfig(**sizes, **kinds, intermediate_size=96))
    ours = beit_like()
    report: list[str] = []
    named = ours.adapt(dict(theirs.state_dict()), report)
    assert torch.equal(named["stack.norm.weight"], ours.stack.norm.weight)
    patches = theirs.beit.embeddings.patch_embeddings.projection.weight
    assert any(value.shape == patches.shape and torch.equal(value, patches) for value in named.values())
    assert sum("last norm" in line for line in report) == 1


def test_an_image_alone_is_timm_s_vit() -> None:
    """Table 5 starts from a plain vision transformer: absolute positions, no layer scale, a bias on keys."""
    vit = pytest.importorskip("timm.models.vision_transformer")
    sizes = {"img_size": 48, "patch_size": 16, "embed_dim": 24, "depth": 3, "num_heads": 4, "num_classes": 0}
    theirs = vit.VisionTransformer(**sizes).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    report: list[str] = []
    ours = beit_like(position_type="absolute", layer_scale=None, mixture=False)
    missing, unexpected = ours.load_state_dict(ours.adapt(dict(theirs.state_dict()), report), strict=False)
    assert not unexpected
    assert all(name.startswith(("text", "types", "pooler")) for name in missing)
    assert any("vision transformer" in line for line in report)
    found = images()
    found.pixels.images = found.pixels.images.float()
    wanted = theirs.forward_features(found.pixels.images)
    torch.testing.assert_close(ours.encode_image(found).hidden, wanted, rtol=1e-4, atol=1e-5)


def test_a_standard_transformer_has_one_feed_forward_for_all_tokens() -> None:
    model = VLMo(DATA_SPEC, **{**TINY, "fused_layers": 0}, mixture=False).eval()
    assert {name.split(".")[5] for name, _ in model.named_parameters() if ".experts." in name} == {"image"}
    from tests.plugins.vlmo.golden import text

    found = images()
    found.pixels.images = found.pixels.images.float()
    fused = model.fuse(model.embed_text(text()), model.embed_image(found))
    assert fused.text.hidden.shape == (3, 6, 24)
    assert model.encode_text(text()).pooled.shape == (3, 24)


@pytest.mark.parametrize(("start", "source"), [("image", "image"), ("text", "text")])
def test_experts_that_weights_lack_start_as_copies(start: Any, source: str) -> None:
    """Table 4, row 1: all experts are BEiT's; after the text stage the vision-language ones may be the text's."""
    first, report = VLMo(DATA_SPEC, **{**TINY, "fused_layers": 0}), []
    state = {name: value for name, value in first.state_dict().items() if start == "text" or ".text." not in name}
    model = VLMo(DATA_SPEC, **TINY, text_start="image", fused_start=start)
    missing, _ = model.load_state_dict(model.adapt(state, report), strict=False)
    assert not [name for name in missing if "experts" in name]
    for name, value in model.state_dict().items():
        if ".experts.fused." in name:
            assert torch.equal(value, first.state_dict()[name.replace("fused", source)])
        if ".experts.text." in name and start == "image":
            assert torch.equal(value, first.state_dict()[name.replace(".text.", ".image.")])
    assert any("fused experts: copies" in line for line in report)


@pytest.mark.parametrize("name", ["vlmo", "albef"])
def test_weights_of_a_grid_that_is_no_square_come_back_as_they_were(name: str) -> None:
    sizes = {"hidden": 24, "heads": 2, "image": "features", "grid": [2, 8], "image_position": "learned"}
    sizes |= {"layers": 2} if name == "vlmo" else {"image_layers": 1, "text_layers": 1, "cross_layers": 1}
    model = registry.build("models", {"name": name, **sizes}, DataSpec(vocab_size=50, region_dim=8, regions=16))
    state, report = model.state_dict(), []
    adapted = model.adapt(dict(state), report)
    assert report == []
    assert all(torch.equal(adapted[key], value) for key, value in state.items())
