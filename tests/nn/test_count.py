"""Exact counts against the published ones."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from vlcli_lxmert import LXMERT

from vlcli import registry
from vlcli.nn import DataSpec, InputSpec, Model, build_head
from vlcli.nn.count import count_model, head_macs, macs_of
from vlcli.nn.fake import fake_batch


@pytest.fixture(scope="module")
def lxmert():
    with torch.device("meta"):
        return LXMERT(DataSpec())


def counted(model, **heads):
    return count_model(model, objectives=heads)


def test_lxmert_backbone_and_parts(lxmert):
    found = counted(lxmert)
    assert found["total"] == found["backbone"] == 207_936_768
    assert found["parts"]["text"] == 23_837_184
    assert found["parts"]["image"] == 1_580_544
    assert found["parts"]["language"] == 9 * 7_087_872
    assert found["parts"]["cross"] == 5 * 16_539_648
    assert found["parts"]["pooler"] == 590_592


def test_lxmert_pretraining_and_fine_tuning_heads(lxmert):
    with torch.device("meta"):
        names = ("mlm", "matching", "masked-object")
        objectives = {name: registry.build("objectives", name, lxmert, DataSpec()) for name in names}
        answers = build_head(lxmert, "answer", 768, 9500)
        heads = {n: build_head(lxmert, "answer", 768, n) for n in (3129, 1842)}
        pair = build_head(lxmert, "pair", 2 * 768, 2)
    assert counted(lxmert, **objectives, answers=answers)["total"] == 228_051_752
    assert counted(lxmert, vqa=heads[3129])["total"] == 213_930_297
    assert counted(lxmert, gqa=heads[1842])["total"] == 211_952_178
    assert counted(lxmert, nlvr2=pair)["total"] == 210_303_746


def test_lxmert_multiply_accumulates_are_the_arithmetic(lxmert):
    macs = counted(lxmert)["macs"]
    d, t, r = 768, 20, 36

    def layer(n: int, m: int) -> int:  # projections and the two products
        return 2 * n * d * d + 2 * m * d * d + 2 * n * m * d

    feed = 8 * d * d
    assert macs["text"] == 9 * (layer(t, t) + t * feed)
    assert macs["image"] == r * (2048 + 4) * d + 5 * (layer(r, r) + r * feed)
    cross = layer(t, r) + layer(r, t) + layer(t, t) + layer(r, r) + (t + r) * feed
    assert macs["fuse"] == 5 * cross + d * d
    assert count_model(lxmert, images=2)["macs"]["fuse"] == 2 * macs["fuse"]


def test_deit_small_by_the_same_counter():
    timm = pytest.importorskip("timm")
    with torch.device("meta"):
        model = timm.create_model("deit_small_patch16_224").eval()
        picture = torch.empty(1, 3, 224, 224)
    assert macs_of(lambda: model(picture))[0] == 4_598_882_304
    assert sum(p.numel() for p in model.parameters()) == 22_050_664


def test_a_real_model_is_left_as_it_was_and_ties_count_once():
    data_spec = DataSpec(vocab_size=50, region_dim=8, regions=3, text_length=5)
    model = LXMERT(data_spec, hidden=8, heads=2, text_layers=1, image_layers=1, cross_layers=1)
    model.language.layers[0].feed_forward.inner = model.objects.layers[0].feed_forward.inner
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = counted(model.train())
    assert found["total"] == sum(p.numel() for p in model.parameters())
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@pytest.mark.parametrize("name", registry.names("heads"))
def test_every_head_gives_its_outputs(name, lxmert):
    head = build_head(lxmert, "label", 12, 7, name)
    table = nn.Embedding(7, 12).weight
    x = torch.randn(3, 12)
    assert (head(x, table) if name.endswith("mlm") else head(x)).shape == (3, 7)


def test_only_sizes_in_tied_are_counted():
    head = nn.Sequential(nn.Linear(3, 5), nn.Identity())
    head[1].tied = True  # another library's flag
    assert head_macs(head) == 15


def test_fake_batches_feed_every_need():
    data_spec = DataSpec(regions=4, region_dim=6, text_length=7)
    needs = InputSpec(text=True, regions=True, pixels=True, concepts=True, boxes=True, size=(32, 48))
    view = fake_batch(needs, data_spec, rows=2, images=3).clean
    assert view.image_rows.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert view.images.pixels.images.shape == (6, 3, 32, 48)
    assert view.images.pixels.boxes.shape == (6, 4, 4)
    assert view.images.regions.features.shape == (6, 4, 6)
    assert view.images.concepts.ids.shape[0] == 6
    assert view.text.special.sum() == 4
    assert issubclass(LXMERT, Model)
