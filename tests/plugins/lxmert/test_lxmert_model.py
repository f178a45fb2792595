"""LXMERT's options, depths, records and errors."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny_batches import SMALL, make_batch
from torch import nn
from vlcli_lxmert import LXMERT

from tests.spawned import as_in_a_worker
from vlcli import registry
from vlcli.engine.training_module import build_training_module
from vlcli.errors import ComponentError, DataError
from vlcli.nn import ForwardPasses, Images, PairwisePosition, Recorder

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "text_layers": 3, "image_layers": 1, "cross_layers": 2}


@registry.component("positions", "test-zero-start")
class ZeroStart(PairwisePosition):
    """Has a linear layer that starts at zero, as iRPE's tables do."""

    def __init__(self, shape):
        super().__init__(shape)
        self.inner = nn.Linear(2, 2)
        nn.init.zeros_(self.inner.weight)


def test_recorded_attention_has_the_documented_names():
    model = LXMERT(SMALL, **SIZES).eval()
    record = Recorder()
    ForwardPasses(model, make_batch(), record=record).fused("clean")
    wanted = {f"language.{n}" for n in range(3)} | {"objects.0"}
    wanted |= {f"cross.{n}.{part}" for n in range(2) for part in ("text_to_image", "image_to_text", "text", "image")}
    assert set(record.attention) == wanted
    assert record.attention["cross.1.text_to_image"].shape == (3, 2, 9, 6)
    assert record.attention["cross.1.image_to_text"].shape == (3, 2, 6, 9)


def test_hidden_layers_by_choice():
    model = LXMERT(SMALL, **SIZES).eval()
    model.output_hidden_states = (0, 2, 3)
    states = ForwardPasses(model, make_batch()).text("clean")
    assert set(states.layers) == {0, 2, 3}
    real = states.layout.valid
    torch.testing.assert_close(states.layers[3][real], states.hidden[real])


def test_frozen_rows_get_no_gradient():
    for frozen in (True, False):
        torch.manual_seed(0)
        model = LXMERT(SMALL, **SIZES, frozen_padding=frozen)
        ForwardPasses(model, make_batch()).fused("clean").pooled.sum().backward()
        tables = (model.text.positions[0].table, model.text.segments)
        assert all((table.weight.grad[0].abs().sum() == 0) == frozen for table in tables)
        assert all(table.weight[0].abs().sum() > 0 for table in tables)  # drawn, then kept


def test_depths_for_layer_wise_decay():
    model = LXMERT(SMALL, **SIZES)
    depth = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert None not in depth.values()
    assert depth["text.words.weight"] == depth["image.project.weight"] == 0
    assert depth["language.layers.0.self_attention.norm.weight"] == 1
    assert (
        depth["language.layers.2.feed_forward.inner.weight"] == depth["objects.layers.0.feed_forward.inner.weight"] == 3
    )
    assert depth["cross.layers.1.cross.attention.key.weight"] == 5
    assert depth["pooler.dense.weight"] == 6


def test_initialisation_spares_pairwise_encodings():
    model = LXMERT(SMALL, **SIZES, image_position=["box", "test-zero-start"], init_std=0.02)
    assert model.objects.position.inner.weight.abs().sum() == 0
    assert 0.01 < model.language.layers[0].feed_forward.inner.weight.std() < 0.03


def test_padded_regions_and_words_change_nothing():
    torch.manual_seed(0)
    model = LXMERT(SMALL, **SIZES).eval()
    batch = make_batch(rows=2)
    base = ForwardPasses(model, batch).fused("clean").pooled
    view = batch.clean
    view.images.regions.features[~view.images.regions.mask] = 1e4
    view.text.ids[~view.text.mask] = 9
    torch.testing.assert_close(ForwardPasses(model, batch).fused("clean").pooled, base)


def test_faults_are_named():
    with pytest.raises(DataError, match="region features"):
        LXMERT(SMALL, **SIZES).encode_image(Images(["i"]))
    with pytest.raises(ComponentError, match="multiple"):
        registry.build("models", {"name": "lxmert", "hidden": 100, "heads": 12}, SMALL)
    problems = registry.check("models", {"name": "lxmert", "image_position": [{"name": "box", "nubmers": 7}]})
    assert "numbers" in problems[0].hint


def test_models_copy_and_corruptions_travel_to_workers():
    model = LXMERT(SMALL, **SIZES)
    twin = copy.deepcopy(model)
    assert twin.state_dict().keys() == model.state_dict().keys()
    for name in ("mlm", "matching", "masked-object"):
        corruption = registry.build("objectives", name, model, SMALL).corruption()
        assert as_in_a_worker(corruption).__dict__ == corruption.__dict__


ATTENTIONS = ["standard", {"name": "disentangled", "outputs": "own"}]


@pytest.mark.parametrize("rows", ["text", "pooled"])
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("across", [None, {"name": "ace-rpe", "groups": 4}])
def test_tokens_that_nobody_reads_are_left_out_without_a_change(rows, packed, attention, across):
    torch.manual_seed(0)
    sizes = {"hidden": 16, "heads": 4, "text_layers": 1, "image_layers": 1, "cross_layers": 2, "dropout": 0.0}
    model = LXMERT(SMALL, **sizes, packed=packed, attention=attention, cross_position=across).double()
    batch = make_batch(rows=4)
    batch.clean.images.regions.features = batch.clean.images.regions.features.double()
    found = []
    for read in ("all", rows):
        model.zero_grad()
        fused = ForwardPasses(model, batch).fused(rows=read)
        words = fused.text.hidden[:, :1] if rows == "pooled" else fused.text.hidden
        (fused.pooled.square().sum() + words.pow(3).sum()).backward()
        found.append((fused, words, [None if p.grad is None else p.grad.clone() for p in model.parameters()]))
    (whole, words, gradients), (part, fewer, again) = found
    torch.testing.assert_close(part.pooled, whole.pooled, rtol=0, atol=1e-12)
    torch.testing.assert_close(fewer, words, rtol=0, atol=1e-12)
    for wanted, got in zip(gradients, again, strict=True):
        assert (wanted is None) == (got is None)
        if wanted is not None:
            torch.testing.assert_close(got, wanted, rtol=0, atol=1e-11)
    assert part.text.hidden.shape[1] == len(part.text.layout) == (9 if rows == "text" else 1)
    assert part.image.hidden.shape[1] == len(part.image.layout) == 0


@pytest.mark.parametrize(("names", "shape"), [(["matching"], 1), (["mlm", "matching"], 9), (["matching", "mlm"], 9)])
def test_objectives_that_share_a_view_share_its_pass(monkeypatch, names, shape):
    entries = [{"name": name, "view": "corrupted"} for name in names]
    sizes = {
        "name": "lxmert",
        "hidden": 16,
        "heads": 4,
        "text_layers": 1,
        "image_layers": 1,
        "cross_layers": 1,
        "dropout": 0.0,
    }
    module, passes, fuse = build_training_module(sizes, entries, SMALL), [], LXMERT.fuse
    monkeypatch.setattr(LXMERT, "fuse", lambda *given, **more: passes.append(fuse(*given, **more)) or passes[-1])
    module(make_batch(rows=4))
    assert [fused.text.hidden.shape[1] for fused in passes] == [shape]
