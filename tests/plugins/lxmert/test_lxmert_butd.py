"""BUTD against its equations written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from tiny_batches import SMALL, make_batch
from vlcli_lxmert import BUTD

from vlcli.engine.training_module import build_training_module
from vlcli.errors import DataError
from vlcli.nn import ForwardPasses, Images, Recorder

torch.set_num_threads(1)
SIZES = {"hidden": 12, "words": 8, "text_hidden": 16, "text_heads": 2, "text_layers": 2}


@pytest.mark.parametrize("encoder", ["gru", "lstm", "bert"])
def test_padding_changes_nothing(encoder):
    torch.manual_seed(0)
    model = BUTD(SMALL, encoder=encoder, **SIZES).eval()
    batch = make_batch(rows=3)
    base = ForwardPasses(model, batch).fused().pooled
    view = batch.clean
    view.images.regions.features[~view.images.regions.mask] = 1e4
    view.text.ids[~view.text.mask] = 9
    torch.testing.assert_close(ForwardPasses(model, batch).fused().pooled, base)
    assert base.shape == (3, 12)


def test_attention_and_product_are_those_of_the_paper():
    torch.manual_seed(0)
    model = BUTD(SMALL, encoder="gru", normalise=False, **SIZES).eval()
    batch = make_batch(rows=2)
    record = Recorder()
    fused = ForwardPasses(model, batch, record=record).fused()
    gate = lambda part, x: torch.tanh(part.value(x)) * torch.sigmoid(part.gate(x))  # noqa: E731
    text, regions = batch.clean.text, batch.clean.images.regions
    for row in range(2):
        words = model.recurrent.words(text.ids[row : row + 1, : int(text.mask[row].sum())])
        question = model.recurrent.cell(words)[1][0, 0]
        seen = regions.features[row][regions.mask[row]]
        scores = torch.stack([model.score(gate(model.attend, torch.cat([v, question])))[0] for v in seen])
        weights = scores.softmax(0)
        product = gate(model.of_question, question) * gate(model.of_regions, weights @ seen)
        torch.testing.assert_close(fused.pooled[row], product)
        torch.testing.assert_close(record.attention["top_down"][row, 0, 0, : len(seen)], weights)


@pytest.mark.parametrize("encoder", ["lstm", "bert"])
def test_it_learns_to_answer(encoder):
    torch.manual_seed(0)
    data_spec = replace(SMALL, answers=("yes", "no", "2"))
    spec = {"name": "butd", "encoder": encoder, "dropout": 0.0, "init_std": 0.1, **SIZES}
    module = build_training_module(spec, ["answering"], data_spec).train()
    batch = make_batch(data_spec, rows=3)
    batch.targets["answers"] = [{"yes": 1.0}, {"no": 0.9, "2": 0.3}, {"2": 1.0}]
    optimizer = torch.optim.AdamW(module.parameters(), lr=3e-2)
    losses = []
    for _ in range(40):
        loss = module(batch).total
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        module.close_step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]
    assert module.eval().predict(module.step(batch))["answering"]["logits"].argmax(1).tolist() == [0, 1, 2]


def test_without_regions_the_fault_is_named():
    with pytest.raises(DataError, match="region features"):
        BUTD(SMALL, **SIZES).encode_image(Images(["i"]))


def test_a_picture_without_regions_has_a_finite_vector():
    torch.manual_seed(0)
    model, batch, record = BUTD(SMALL, encoder="gru", **SIZES), make_batch(rows=2), Recorder()
    batch.clean.images.regions.mask[1] = False
    fused = ForwardPasses(model, batch, record=record).fused()
    fused.pooled.sum().backward()
    assert not record.attention["top_down"][1].any()
    assert all(part.grad.isfinite().all() for part in model.parameters())
