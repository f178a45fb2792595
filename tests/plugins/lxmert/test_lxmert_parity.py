"""LXMERT against transformers' port, with weights copied across and with the port's weights loaded."""

from __future__ import annotations

import pytest
import torch
import transformers
from tiny_batches import SMALL, make_batch
from vlcli_lxmert import LXMERT, MaskedObject, to_airsplay, to_transformers

from vlcli import registry
from vlcli.nn import ForwardPasses

SIZES = {"hidden": 24, "heads": 4, "intermediate": 40, "text_layers": 3, "image_layers": 2, "cross_layers": 2}


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.manual_seed(0)


def theirs_of(data_spec=SMALL):
    config = transformers.LxmertConfig(
        vocab_size=data_spec.vocab_size,
        hidden_size=24,
        num_attention_heads=4,
        intermediate_size=40,
        l_layers=3,
        r_layers=2,
        x_layers=2,
        visual_feat_dim=data_spec.region_dim,
        num_object_labels=data_spec.region_classes,
        num_attr_labels=data_spec.region_attributes,
        num_qa_labels=7,
        task_qa=False,
    )
    return transformers.LxmertForPreTraining(config).eval()


def ours_of(data_spec=SMALL, **options):
    model = LXMERT(data_spec, **SIZES, **options)
    objectives = {name: registry.build("objectives", name, model, data_spec) for name in ("mlm", "matching")}
    objectives["masked-object"] = MaskedObject(model, data_spec, factor=6.67)
    for module in [model, *objectives.values()]:
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval(), torch.nn.ModuleDict(objectives).eval()


def whole(model, objectives):
    own = {f"model.{name}": value for name, value in model.state_dict().items()}
    return {**own, **{f"objectives.{name}": value for name, value in objectives.state_dict().items()}}


def feed(batch, dtype):
    view = batch.views["corrupted"]
    text, regions = view.text, view.images.regions
    return {
        "input_ids": text.ids,
        "attention_mask": text.mask.to(dtype),
        "token_type_ids": torch.zeros_like(text.ids),
        "visual_feats": regions.features,
        "visual_pos": regions.boxes,
        "visual_attention_mask": regions.mask.to(dtype),
    }


@pytest.mark.parametrize(("dtype", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("seed", "packed"), [(0, True), (1, False), (2, True)])
def test_streams_and_heads_equal_the_port(dtype, close, seed, packed):
    theirs = theirs_of().to(dtype)
    model, objectives = ours_of(packed=packed)
    missing = theirs.load_state_dict(to_transformers(whole(model, objectives)), strict=False)
    assert not missing.unexpected_keys
    assert all(key.startswith("answer_head") or "decoder" in key for key in missing.missing_keys)
    model.to(dtype), objectives.to(dtype)
    batch = make_batch(seed=seed, rows=4).map(lambda t: t.to(dtype) if t.is_floating_point() else t)
    with torch.no_grad():
        wanted = theirs.lxmert(**feed(batch, dtype))
        heads = theirs(**feed(batch, dtype))
        regions = theirs.obj_predict_head(wanted.vision_output)
        fused = ForwardPasses(model, batch).fused("corrupted")
        words = objectives["mlm"].head(fused.text.hidden, model.word_table().weight)
        seen = objectives["masked-object"]
        shown = seen.transform(fused.image.hidden)
    view = batch.views["corrupted"]
    real, boxed = view.text.mask, view.images.regions.mask
    assert not real.all()
    assert not boxed.all()
    pairs = [
        (fused.text.hidden[real], wanted.language_output[real]),
        (fused.image.hidden[boxed], wanted.vision_output[boxed]),
        (fused.pooled, wanted.pooled_output),
        (words[real], heads.prediction_logits[real]),
        (objectives["matching"].logits(fused), heads.cross_relationship_score),
        *[
            (seen.decoders[ours](shown)[boxed], regions[key][boxed])
            for ours, key in [("label", "obj"), ("attribute", "attr"), ("feature", "feat")]
        ],
    ]
    for got, expected in pairs:
        torch.testing.assert_close(got, expected, atol=close, rtol=close)


def test_losses_and_gradients_equal_the_port():
    theirs = theirs_of().double()
    model, objectives = ours_of()
    theirs.load_state_dict(to_transformers(whole(model, objectives)), strict=False)
    model.double(), objectives.double()
    batch = make_batch(rows=4).map(lambda t: t.double() if t.is_floating_point() else t)
    view = batch.views["corrupted"]
    regions = view.images.regions
    regions.mask[:] = True  # the port averages over padding too
    hidden = view.mask_labels["masked_regions"]
    step = ForwardPasses(model, batch)
    losses = {name: objectives[name](step, {}).losses for name in objectives}
    total = sum(mean.value() for found in losses.values() for mean in found.values())
    labels = view.mask_labels["masked_words"].masked_fill(view.mask_labels["masked_words"] < 0, -100)
    wanted = theirs(
        **feed(batch, torch.float64),
        labels=labels,
        matched_label=view.mask_labels["matched"],
        obj_labels={
            "obj": (regions.classes, regions.class_scores),
            "attr": (regions.attributes, regions.attribute_scores),
            "feat": (regions.features, hidden.double()),
        },
    )
    torch.testing.assert_close(total.float(), wanted.loss, atol=1e-6, rtol=1e-6)  # the port sums in float32
    total.backward()
    wanted.loss.backward()
    pairs = [
        (model.text.words.weight.grad[1:], theirs.lxmert.embeddings.word_embeddings.weight.grad[1:]),
        (model.image.project.weight.grad, theirs.lxmert.encoder.visn_fc.visn_fc.weight.grad),
        (
            model.cross.layers[0].cross.attention.key.weight.grad,
            theirs.lxmert.encoder.x_layers[0].visual_attention.att.key.weight.grad,
        ),
    ]
    for got, expected in pairs:
        torch.testing.assert_close(got, expected, atol=1e-10, rtol=1e-8)


@pytest.mark.parametrize("prefix", ["", "module."])
@pytest.mark.parametrize("layout", ["transformers", "airsplay"])
def test_public_weights_load_completely(layout, prefix):
    theirs, (model, objectives) = theirs_of(), ours_of()
    state = {prefix + key: value for key, value in theirs.state_dict().items()}
    if layout == "airsplay":
        state = {
            key.replace("lxmert.", "bert.").replace("LayerNorm.weight", "LayerNorm.gamma"): value
            for key, value in state.items()
        }
    report: list[str] = []
    made = model.adapt(state, report)
    heads = {key: made.pop(key) for key in list(made) if key.startswith("objectives.")}
    left = {key for key in made if key not in model.state_dict()}
    assert all(key.removeprefix(prefix).startswith("cls.predictions.decoder") for key in left)
    model.load_state_dict({key: value for key, value in made.items() if key not in left})
    objectives.load_state_dict(
        {key.removeprefix("objectives."): v for key, v in heads.items() if "answering" not in key}
    )
    assert "public LXMERT" in report[0]
    back = to_airsplay(whole(model, objectives))
    for key, value in state.items():
        plain = key.removeprefix("module.").replace("lxmert.", "bert.").replace("gamma", "weight")
        if plain in back:
            assert torch.equal(back[plain], value)


def test_fine_tuned_layout_and_long_position_tables():
    model, _ = ours_of()
    prefix = "lxrt_encoder.model.module."
    state = {prefix + key: value for key, value in to_airsplay(model.state_dict()).items()}
    state |= {"logit_fc.0.weight": torch.zeros(3), "logit_fc.3.bias": torch.ones(2)}
    small = LXMERT(SMALL, **SIZES, text_position={"name": "learned", "length": 9})
    report: list[str] = []
    made = small.adapt(state, report)
    assert {"objectives.answering.head.inner.weight", "objectives.answering.head.outer.bias"} <= set(made)
    small.load_state_dict({key: value for key, value in made.items() if not key.startswith("objectives.")})
    assert torch.equal(small.text.positions[0].table.weight, model.text.positions[0].table.weight[:9])
    assert any("first 9 of 512 rows" in line for line in report)


def test_own_weights_pass_adapt_unchanged():
    model, _ = ours_of()
    report: list[str] = []
    state = model.state_dict()
    made = model.adapt(dict(state), report)
    assert made.keys() == state.keys()
    assert report == []
