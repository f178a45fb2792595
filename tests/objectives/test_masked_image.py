"""Masked image modelling: what is hidden, what it is guessed as, and BEiT's own loss by transformers."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from tiny_batches import SMALL, make_text
from vlcli_deit import DeiT
from vlcli_vlmo import VLMo

from vlcli import registry
from vlcli.engine.training_module import build_training_module
from vlcli.engine.weights import WeightLoader
from vlcli.errors import ComponentError, DataError, RecipeError
from vlcli.nn import Batch, ForwardPasses, Images, Pixels, Regions, View
from vlcli.objectives.image_targets import DiscreteVAE, patches, read_tokenizer, shades
from vlcli.objectives.masked_image import MaskedImage, PatchMasks

torch.set_num_threads(1)
TINY = {"hidden": 16, "layers": 2, "heads": 2, "fused_layers": 0, "image_size": 32, "patch": 8, "drop_path": 0.0}


def batch(rows: int = 3, side: int = 32, words: bool = False) -> Batch:
    pixels = torch.rand(rows, 3, side, side, generator=torch.Generator().manual_seed(0)) * 2 - 1
    images = Images([f"i{row}" for row in range(rows)], pixels=Pixels(pixels, torch.full((rows, 2), side)))
    order = torch.arange(rows)
    text = make_text(SMALL, rows, 9) if words else None
    view = View(text, images, order if words else order * 0 - 1, order[:, None], aligned=words)
    return Batch({"clean": view}, {}, list(images.keys), order * 31 + 5)


def model(**options: object) -> VLMo:
    torch.manual_seed(0)
    return VLMo(SMALL, **{**TINY, **options}).eval()


@pytest.mark.parametrize("rule", ["blocks", "random"])
@pytest.mark.parametrize(("grid", "ratio"), [((14, 14), 0.4), ((4, 6), 0.6), ((2, 2), 0.3)])
def test_every_picture_loses_the_same_number(rule, grid, ratio):
    masks = PatchMasks(rule, ratio).draw(grid, range(80))
    assert masks.shape == (80, grid[0] * grid[1])
    assert len(set(masks.sum(1).tolist())) == 1
    assert abs(float(masks.float().mean()) - ratio) <= 1 / masks.shape[1]
    assert torch.equal(masks, PatchMasks(rule, ratio).draw(grid, range(80)))
    assert masks.any(0).all()  # no patch is always spared
    assert len({tuple(mask) for mask in masks.tolist()}) > 1


def test_blocks_hang_together_and_squares_are_units():
    def neighbours(masks):
        return (masks[:, :, 1:] & masks[:, :, :-1]).float().mean()

    blocks, single = (
        PatchMasks(rule, 0.4).draw((14, 14), range(40)).unflatten(1, (14, 14)) for rule in ("blocks", "random")
    )
    assert neighbours(blocks) > 1.7 * neighbours(single)
    squares = PatchMasks("random", 0.6, unit=2).draw((14, 14), range(5)).unflatten(1, (14, 14))
    assert torch.equal(squares[:, ::2, ::2].repeat_interleave(2, 1).repeat_interleave(2, 2), squares)
    assert squares[:, ::2, ::2].sum((1, 2)).tolist() == [30] * 5  # ceil(0.6 * 49)


def test_pixels_are_guessed_as_simmim_and_mae_have_it():
    step, net = ForwardPasses(model(), batch()), model()
    raw = MaskedImage(net, SMALL, target="pixels", loss="l1", mask="random", ratio=0.5)
    outcome = raw(step, {})
    images, pixels = raw.masked(step), step.view().images.pixels.images
    flags = images.hidden.reshape(3, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3)
    states = step.model.encode_image(images).hidden[:, 1:]
    drawn = raw.head(states).reshape(3, 4, 4, 8, 8, 3).permute(0, 5, 1, 3, 2, 4).reshape(3, 3, 32, 32)
    loss = ((drawn - pixels).abs() * flags).sum() / flags.sum() / 3  # SimMIM's formula
    torch.testing.assert_close(outcome.losses["masked-image"].value(), loss)
    normal = MaskedImage(net, SMALL, ratio=0.5)
    assert normal.target.width == 192
    cut = patches(pixels, (4, 4))
    wanted = (cut - cut.mean(-1, keepdim=True)) / (cut.var(-1, keepdim=True) + 1e-6) ** 0.5
    torch.testing.assert_close(normal.target(step.view().images), wanted)


def test_only_hidden_patches_are_replaced_and_the_clean_pass_is_untouched():
    step = ForwardPasses(model(), batch())
    objective = MaskedImage(step.model, SMALL)
    with torch.no_grad():
        objective.blank += 1
    clean, masked = step.model.embed_image(step.view().images), step.model.embed_image(objective.masked(step))
    flags = objective.masked(step).hidden
    assert torch.equal(masked.hidden[:, 1:][~flags], clean.hidden[:, 1:][~flags])
    torch.testing.assert_close(masked.hidden[:, 1:][flags], objective.blank[0].expand(int(flags.sum()), -1))
    assert step.view().images.hidden is None


def test_the_whole_module_trains_and_predicts():
    made = build_training_module(
        {"name": "vlmo", **TINY, "init_std": 0.14}, [{"name": "masked-image", "ratio": 0.5}], SMALL
    )
    same, losses = batch(), []
    optimizer = torch.optim.Adam(made.parameters(), 1e-2)
    for _ in range(40):
        result = made(same)  # the same batch again: nothing of an earlier step is left in it
        optimizer.zero_grad()
        result.total.backward()
        optimizer.step()
        losses.append(result.total.item())
    assert losses[-1] < 0.7 * losses[0]
    predicted = made.objectives["masked-image"].predict(made.eval().step(same))["loss"]
    assert predicted.shape == (3,)
    again = made.objectives["masked-image"](made.step(same), {}).losses["masked-image"].value()
    torch.testing.assert_close(predicted.mean(), again)


def test_fused_states_of_patches_guess_too():
    step = ForwardPasses(model(fused_layers=1), batch(words=True))
    objective = MaskedImage(step.model, SMALL, on="fused", target="pixels", loss="l1")
    assert objective(step, {}).losses["masked-image"].count == 3 * 6
    assert objective.predict(step)["loss"].shape == (3,)


def test_stored_features_are_guessed_where_the_model_reads_them():
    net = model(image="features", grid=(2, 3))
    features = torch.randn(2, 6, 16)
    regions = Regions(features, torch.zeros(2, 6, 4), torch.ones(2, 6, dtype=torch.bool), torch.full((2, 2), 9))
    rows = torch.arange(2)
    view = View(None, Images(["a", "b"], regions), rows - 5, rows[:, None])
    step = ForwardPasses(net, Batch({"clean": view}, {}, ["a", "b"], rows))
    objective = MaskedImage(net, SMALL)
    scores, truth = objective.guesses(step)
    assert scores.shape == truth.shape == (4, 16)
    flags = objective.masked(step).hidden
    torch.testing.assert_close(truth, torch.nn.functional.layer_norm(features, (16,))[flags])


def test_features_of_a_backbone(tmp_path):
    from vlcli.detection.backbone import RegionBackbone

    body = RegionBackbone(arch="tiny-conv")
    save_file(body.body.state_dict(), tmp_path / "eyes.safetensors")
    net = DeiT(SMALL, hidden=16, layers=1, heads=2, image_size=32, patch=8, classes=0)
    options = {"backbone": "tiny-conv", "backbone_weights": str(tmp_path / "eyes.safetensors")}
    objective, step = MaskedImage(net, SMALL, **options), ForwardPasses(net, batch())
    scores, truth = objective.guesses(step)
    assert scores.shape == truth.shape == (18, 128)
    pixels = 255 * shades(step.view().images.pixels.images, net.input_spec())
    wanted = torch.nn.functional.layer_norm(body.eval().feature_map(pixels).flatten(2).transpose(1, 2), (128,))
    torch.testing.assert_close(truth, wanted[objective.masked(step).hidden])
    assert not [name for name in objective.state_dict() if "network" in name or "body" in name]


def vae_file(path):
    torch.manual_seed(1)
    made = DiscreteVAE(8, 3, 2, 50)
    for value in made.parameters():
        torch.nn.init.normal_(value, std=0.3)
    save_file(made.state_dict(), path)
    return made.eval()


def test_tokens_of_a_discrete_vae(tmp_path):
    made = vae_file(tmp_path / "vae.safetensors")
    read = read_tokenizer(tmp_path / "vae.safetensors")
    pixels = torch.rand(2, 3, 16, 16)
    assert torch.equal(made(pixels, (4, 4)), read(pixels, (4, 4)))
    assert len(made(pixels, (4, 4)).unique()) > 3
    objective = MaskedImage(model(), SMALL, tokenizer=str(tmp_path / "vae.safetensors"), codes=50)
    step = ForwardPasses(model(), batch())
    outcome = objective(step, {})
    assert set(outcome.metrics) == {"accuracy"}
    with pytest.raises(DataError, match="another number"):
        MaskedImage(model(), SMALL, tokenizer=str(tmp_path / "vae.safetensors"))(step, {})


def test_tokens_of_a_codebook(tmp_path):
    """BEiT v2's: the nearest code, by distance, of each patch's normalised projection."""
    from timm.models.beit import Beit

    torch.manual_seed(0)
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 1, "num_classes": 0}
    encoder = Beit(**sizes, use_rel_pos_bias=False, init_values=None, global_pool="avg").eval()
    layers = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 6))
    for value in [*encoder.parameters(), *layers.parameters()]:
        torch.nn.init.normal_(value, std=0.3)
    codes = torch.nn.functional.normalize(torch.randn(20, 6), dim=-1)
    state = {f"encoder.{name}": value for name, value in encoder.state_dict().items()}
    state |= {f"encode_task_layer.{name}": value for name, value in layers.state_dict().items()}
    state |= {"quantize.embedding.weight": codes, "decoder.cls_token": torch.zeros(1)}
    save_file({name: value.contiguous() for name, value in state.items()}, tmp_path / "vq.safetensors")
    made, pixels = read_tokenizer(tmp_path / "vq.safetensors").eval(), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        tokens = layers(encoder.fc_norm(encoder.forward_features(2 * pixels - 1)[:, 1:]))
        wanted = torch.cdist(torch.nn.functional.normalize(tokens, dim=-1), codes[None]).argmin(-1)
        assert torch.equal(made(pixels, (4, 4)), wanted)
    assert len(wanted.unique()) > 3
    with pytest.raises(DataError, match="another grid"):
        made(pixels, (2, 2))


def test_beit_as_transformers_has_it(tmp_path):
    """Weights with mask token and head, the same mask: the same scores and the same loss."""
    import transformers

    config = transformers.BeitConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        use_shared_relative_position_bias=True, use_absolute_position_embeddings=False, layer_norm_eps=1e-6,
        layer_scale_init_value=0.1, use_mask_token=True, vocab_size=50, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    theirs = transformers.BeitForMaskedImageModeling(config).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    vae_file(tmp_path / "vae.safetensors")
    objective = {"name": "masked-image", "tokenizer": str(tmp_path / "vae.safetensors"), "codes": 50}
    ours = build_training_module({"name": "vlmo", **TINY}, [objective], SMALL).eval()
    with torch.no_grad():
        ours.model.types.weight.zero_()
    loader = WeightLoader(ours, ["text", "types", "pooler", "idle_positions", "experts.text"])
    loader.add(dict(theirs.state_dict()), "beit", ours=False)
    report = loader.finish()
    assert {"objectives.masked-image.blank", "objectives.masked-image.head.weight"} <= set(report.matched)
    step = ours.step(batch())
    part = ours.objectives["masked-image"]
    scores, truth = part.guesses(step)
    flags = part.masked(step).hidden
    with torch.no_grad():
        logits = theirs(step.view().images.pixels.images, bool_masked_pos=flags).logits
    torch.testing.assert_close(scores, logits[flags], rtol=1e-4, atol=1e-5)
    wanted = torch.nn.functional.cross_entropy(logits[flags], truth)
    torch.testing.assert_close(part(step, {}).losses["masked-image"].value(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "options", [{"loss": "cross-entropy"}, {"ratio": 1.0}, {"target": "tokens"}, {"target": "features"}]
)
def test_what_does_not_fit_is_refused(options):
    with pytest.raises(ComponentError):
        registry.build("objectives", {"name": "masked-image", **options}, model(), SMALL)


def test_a_model_that_cannot_hide_patches_is_refused():
    with pytest.raises(RecipeError, match="hide"):
        build_training_module({"name": "swin", "hidden": 8, "layers": [1], "heads": [1]}, ["masked-image"], SMALL)


def test_no_tokenizer(tmp_path):
    save_file({"a": torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(DataError, match="no visual tokenizer"):
        read_tokenizer(tmp_path / "x.safetensors")
