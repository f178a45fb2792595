"""Disentangled attention: what each set projects, and that equal sets are one set."""

from __future__ import annotations

from contextlib import ExitStack
from unittest.mock import patch

import pytest
import torch
from tiny_batches import SMALL, make_batch
from tiny_concepts import WORDY, causal_text, double, make_scene
from torch import nn
from vlcli_dimbert import UNITER, VLBERT, DiMBERT, DisentangledAttention, ViLBERT
from vlcli_lxmert import LXMERT
from vlcli_vlmo import VLMo

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import CONCEPT, IMAGE, TEXT, AttentionContext, AttentionShape, DataSpec, ForwardPasses, Layout
from vlcli.nn.attention import Attention
from vlcli.nn.layout import cut_runs, merged

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "layers": 2, "dropout": 0.0}
BERT = DataSpec(vocab_size=28996)


def weigh(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def on_meta(build) -> nn.Module:
    """Shapes alone: drawing weights without memory takes longer than with it."""
    with ExitStack() as stack:
        for name in ("normal_", "uniform_", "kaiming_uniform_", "ones_", "zeros_"):
            stack.enter_context(patch.object(nn.init, name, lambda tensor, *_, **__: tensor))
        stack.enter_context(torch.device("meta"))
        return build()


def mixed_layout(rows: int = 3) -> Layout:
    real = torch.ones(rows, 4, dtype=torch.bool)
    words, boxes = (
        Layout.for_text(real),
        Layout.for_boxes(torch.rand(rows, 3, 4), torch.ones(rows, 3, dtype=torch.bool)),
    )
    return words + boxes + Layout.for_text(real[:, :2], route=CONCEPT)


def by_hand(attention: DisentangledAttention, x: torch.Tensor, layout: Layout) -> torch.Tensor:
    """Every token by itself, with the weights of its set; softmax over all keys; shared output."""
    made = {}
    for kind in ("query", "key", "value"):
        sets = [getattr(attention, kind), *(other[kind] for other in attention.others)]
        rows = [
            torch.stack([sets[attention.sets[route]](token) for token, route in zip(row, routes, strict=True)])
            for row, routes in zip(x, layout.expand(len(x)).route.tolist(), strict=True)
        ]
        made[kind] = torch.stack(rows).unflatten(-1, (attention.heads, -1)).transpose(1, 2)
    scores = made["query"] @ made["key"].transpose(-1, -2) * attention.shape.head_dim**-0.5
    context = scores.softmax(-1) @ made["value"]
    return attention.dense(context.transpose(1, 2).flatten(2))


@pytest.mark.parametrize("sets", [(0, 1, 0, 0), (0, 1, 2), (0, 0, 0), (1, 0, 1)])
@pytest.mark.parametrize("known", [True, False])
def test_each_token_is_projected_by_its_set(sets, known):
    torch.manual_seed(0)
    attention = DisentangledAttention(AttentionShape(8, 2), sets=sets).double().eval()
    layout = mixed_layout()
    if not known:
        layout.runs = None
    x = torch.randn(3, 9, 8, dtype=torch.double)
    torch.testing.assert_close(
        attention(x, context=AttentionContext(x_layout=layout)), by_hand(attention, x, layout), rtol=0, atol=1e-12
    )


def test_rows_may_mix_modalities_in_their_own_way():
    torch.manual_seed(0)
    attention = DisentangledAttention(AttentionShape(8, 2)).double().eval()
    layout = mixed_layout(2)
    layout.route, layout.runs = torch.randint(0, 3, (2, 9)), None
    x = torch.randn(2, 9, 8, dtype=torch.double)
    torch.testing.assert_close(
        attention(x, context=AttentionContext(x_layout=layout)), by_hand(attention, x, layout), rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("known", [True, False])
def test_without_a_token_of_it_a_set_has_no_gradient(known):
    attention = DisentangledAttention(AttentionShape(8, 2))
    layout = Layout.for_text(torch.ones(2, 5, dtype=torch.bool))
    if not known:
        layout.runs = None
    attention(torch.randn(2, 5, 8), context=AttentionContext(x_layout=layout)).square().sum().backward()
    assert all(p.grad is None or p.grad.abs().max() == 0 for p in attention.others.parameters())
    assert attention.query.weight.grad.abs().max() > 0


def test_crossing_modalities_take_their_own_sets():
    torch.manual_seed(0)
    attention = DisentangledAttention(AttentionShape(8, 2, cross=True)).double().eval()
    words, boxes = torch.randn(2, 4, 8, dtype=torch.double), torch.randn(2, 3, 8, dtype=torch.double)
    of_words = Layout.for_text(torch.ones(2, 4, dtype=torch.bool))
    of_boxes = Layout.for_boxes(torch.rand(2, 3, 4), torch.ones(2, 3, dtype=torch.bool))
    found = attention(words, boxes, context=AttentionContext(x_layout=of_words, y_layout=of_boxes))
    split = attention.split
    other = attention.others[0]
    q, k, v = split(attention.query(words)), split(other["key"](boxes)), split(other["value"](boxes))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    torch.testing.assert_close(found, attention.dense(wanted))


def test_a_route_without_a_set_is_refused():
    attention = DisentangledAttention(AttentionShape(8, 2), sets=(0, 1))
    layout = Layout.for_text(torch.ones(1, 2, dtype=torch.bool), route=CONCEPT)
    with pytest.raises(ComponentError, match="no set"):
        attention(torch.randn(1, 2, 8), context=AttentionContext(x_layout=layout))
    with pytest.raises(ComponentError, match="have a gap"):
        DisentangledAttention(AttentionShape(8, 2), sets=(0, 2))


def copy_first_set(model: nn.Module) -> None:
    """Make every further set equal to the first."""
    for module in model.modules():
        if isinstance(module, DisentangledAttention):
            for other in module.others:
                for name in ("query", "key", "value"):
                    other[name].load_state_dict(getattr(module, name).state_dict())


def pair_of(build) -> tuple[nn.Module, nn.Module]:
    """A model with DiM whose sets are equal, and the same model without it."""
    torch.manual_seed(0)
    dim, shared = build("disentangled").double().eval(), build("standard").double().eval()
    for module in dim.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            nn.init.normal_(module.weight, std=0.3)
    copy_first_set(dim)
    plain = {name: value for name, value in dim.state_dict().items() if ".others." not in name}
    shared.load_state_dict(plain)
    return dim, shared


@pytest.mark.parametrize("packed", [True, False])
def test_equal_sets_are_shared_attention_in_dimbert(packed):
    options = {**SIZES, "packed": packed}
    dim, shared = pair_of(lambda attention: DiMBERT(WORDY, attention=attention, **options))
    text, images = causal_text(causal=[True, False, True]), double(make_scene())
    found, wanted = (m.fuse(m.embed_text(text), m.embed_image(images)) for m in (dim, shared))
    real = text.mask
    torch.testing.assert_close(found.text.hidden[real], wanted.text.hidden[real], rtol=0, atol=1e-12)
    torch.testing.assert_close(found.pooled, wanted.pooled, rtol=0, atol=1e-12)


def others(model: type, **options) -> object:
    return lambda attention: model(SMALL, attention=attention, **options)


LX = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 2, "dropout": 0.0}
VL = {"hidden": 16, "heads": 2, "layers": 2, "fused_layers": 1, "image": "features", "grid": (2, 3), "drop_path": 0.0}


def vlmo(attention: str) -> VLMo:
    return VLMo(SMALL, attention={"name": attention, "bias": "query_value"}, **VL)


@pytest.mark.parametrize(
    "build",
    [
        others(UNITER, **SIZES),
        others(VLBERT, **SIZES),
        others(LXMERT, **LX),
        lambda attention: LXMERT(SMALL, cross_attention=attention, **LX),
        vlmo,
    ],
    ids=["uniter", "vl-bert", "lxmert", "lxmert-cross", "vlmo"],
)
def test_equal_sets_are_shared_attention_in_every_model(build):
    dim, shared = pair_of(build)
    batch = make_batch().map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
    found, wanted = (ForwardPasses(model, batch, training=False).fused("clean") for model in (dim, shared))
    torch.testing.assert_close(found.pooled, wanted.pooled, rtol=0, atol=1e-12)
    for module in dim.modules():
        for other in getattr(module, "others", []):
            nn.init.normal_(other["key"].weight)  # and it is used
    moved = ForwardPasses(dim, batch, training=False).fused("clean")
    assert (moved.pooled - wanted.pooled).abs().max() > 1e-6


def test_vilbert_sees_the_other_stream_or_both():
    torch.manual_seed(0)
    sizes = {"hidden": 16, "heads": 2, "text_layers": 3, "cross_layers": 2, "dropout": 0.0, "init_std": 0.3}
    crossed = ViLBERT(SMALL, **sizes).eval()
    joint = ViLBERT(SMALL, cross_attention="joint", **sizes).eval()
    joint.load_state_dict(crossed.state_dict())  # the two sorts have the same parameters
    batch = make_batch()
    from vlcli.nn import Recorder

    record, both = Recorder(), Recorder()
    one = ForwardPasses(crossed, batch, training=False, record=record).fused("clean")
    two = ForwardPasses(joint, batch, training=False, record=both).fused("clean")
    weights, words = record.attention["co.1"], batch.clean.text.ids.shape[1]
    assert weights[:, :, :words, :words].abs().max() == 0
    assert weights[:, :, words:, words:].abs().max() == 0
    assert both.attention["co.1"][:, :, :words, :words].abs().max() > 0
    assert (one.pooled - two.pooled).abs().max() > 1e-4
    assert one.image.hidden.shape == (3, 6, 16)


def test_parameters_that_it_adds():
    def added(build) -> int:
        return weigh(on_meta(lambda: build("disentangled"))) - weigh(on_meta(lambda: build("standard")))

    assert added(lambda attention: DiMBERT(BERT, attention=attention)) == 21_261_312
    assert added(lambda attention: UNITER(BERT, attention=attention, layers=1)) == 21_261_312 // 12
    assert added(lambda attention: VLBERT(BERT, attention=attention, layers=1)) == 21_261_312 // 12
    few = {"text_layers": 1, "image_layers": 1}
    assert added(lambda attention: LXMERT(DataSpec(), cross_attention=attention, **few)) == 8_858_880


def test_parameters_of_vlps_layout():
    options = {"attention": "standard", "regions": "vlp", "segments": "modes", "position_ids": "running", "concepts": 0}
    data_spec = DataSpec(vocab_size=28996, region_classes=1601)
    assert weigh(on_meta(lambda: DiMBERT(data_spec, **options))) == 115_939_396


def test_further_sets_start_as_copies_where_asked():
    attention = registry.build(
        "attentions", {"name": "disentangled", "sets": [0, 1, 2], "initial": "copied"}, AttentionShape(8, 2)
    )
    loaded = {"query.weight", "query.bias", "key.weight", "key.bias", "value.weight", "value.bias", "dense.weight"}
    made = attention.inherit(loaded | {"others.0.key.bias"})
    assert len(made) == 11
    assert torch.equal(attention.others[1]["value"].weight, attention.value.weight)
    assert Attention(AttentionShape(8, 2)).inherit(loaded) == []
    assert DisentangledAttention(AttentionShape(8, 2)).inherit(loaded) == []


def test_runs_are_cut_and_joined():
    layout = mixed_layout(1)
    assert layout.runs == ((TEXT, 4), (IMAGE, 3), (CONCEPT, 2))
    assert layout.cut(2, 8).runs == ((TEXT, 2), (IMAGE, 3), (CONCEPT, 1))
    assert layout.columns(IMAGE) == [(4, 7)]
    assert merged([(0, 1), (0, 2), (1, 1)]) == ((0, 3), (1, 1))
    assert cut_runs(((0, 3),), 1, 1) == ()
    layout.runs = None
    assert layout.columns(IMAGE) == [(4, 7)]
    assert (layout + layout).runs is None


def test_outputs_of_their_own():
    """VLMo's Table 7: the output projection is a modality's own too, and starts as a copy where asked."""
    torch.manual_seed(0)
    made = DisentangledAttention(AttentionShape(8, 2), sets=(0, 1), outputs="own", initial="copied")
    shared = DisentangledAttention(AttentionShape(8, 2), sets=(0, 1))
    made.load_state_dict(shared.state_dict(), strict=False)
    assert made.inherit(set(shared.state_dict())) == ["others.0.dense.weight", "others.0.dense.bias"]
    layout = Layout.for_text(torch.ones(2, 3, dtype=torch.bool)) + Layout.for_grid(2, 2)
    x = torch.randn(2, 7, 8)
    torch.testing.assert_close(
        made(x, context=AttentionContext(x_layout=layout)), shared(x, context=AttentionContext(x_layout=layout))
    )
    with torch.no_grad():
        made.others[0]["dense"].weight.zero_()
        made.others[0]["dense"].bias.zero_()
    out = made(x, context=AttentionContext(x_layout=layout))
    assert bool((out[:, 3:] == 0).all())
    torch.testing.assert_close(out[:, :3], shared(x, context=AttentionContext(x_layout=layout))[:, :3])
