"""Leaving padding out changes nothing but the time."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_batches import SMALL, make_batch
from vlcli_lxmert import LXMERT

from vlcli import registry
from vlcli.nn import AttentionMask, AttentionShape, ForwardPasses, Layout, Packing, Recorder, Stack

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "text_layers": 2, "image_layers": 1, "cross_layers": 2, "dropout": 0.0}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=5))
def test_packing_there_and_back(rows):
    valid = torch.tensor(rows)
    packing = Packing.of(valid, worth=1.0)
    assert packing is not None
    x = torch.randn(len(rows), 4, 3)
    packed = packing.pack(x)
    assert packed.shape == (1, valid.sum(), 3)
    back = packing.unpack(packed)
    assert torch.equal(back[valid], x[valid])
    assert back[~valid].abs().sum() == 0
    layout = packing.pack_layout(Layout.for_text(valid))
    assert layout.valid.all()
    assert torch.equal(layout.index[0], torch.arange(4).expand_as(valid)[valid])


def test_full_batches_are_left_alone():
    assert Packing.of(torch.ones(2, 3).bool()) is None
    assert Packing.of(torch.zeros(2, 3, device="meta").bool()) is None


@pytest.mark.parametrize("attention", ["standard"])
@pytest.mark.parametrize("causal", [False, True])
def test_stack_gives_the_same_tokens_layers_and_attention(attention, causal):
    torch.manual_seed(0)
    stack = Stack.of(2, AttentionShape(16, 4), attention=attention).eval()
    valid = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]]).bool()
    x, layout = torch.randn(3, 5, 16), Layout.for_text(valid)
    found = []
    for packed in (False, True):
        stack.packed = packed
        record = Recorder()
        out, kept = stack(x, layout, AttentionMask(valid, causal=causal), keep=(1, 2), record=record, name="s")
        found.append((out, kept[1], record.attention["s.1"].transpose(1, 2)))
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left[valid], right[valid])


@pytest.mark.parametrize("checkpointing", [False, True])
def test_lxmert_trains_the_same(checkpointing):
    torch.manual_seed(0)
    model = LXMERT(SMALL, **SIZES).double()
    names = ("mlm", "matching", "masked-object")
    objectives = [registry.build("objectives", name, model, SMALL).double() for name in names]
    batch = make_batch(rows=5).map(lambda t: t.double() if t.is_floating_point() else t)
    assert Packing.of(batch.clean.text.mask) is not None
    assert Packing.of(batch.clean.images.regions.mask) is not None
    found = []
    for packed in (False, True):
        model.zero_grad()
        for stack in (model.language, model.objects, model.cross):
            stack.packed, stack.checkpointing = packed, packed and checkpointing
        step = ForwardPasses(model, batch)
        losses = [mean.value() for objective in objectives for mean in objective(step, {}).losses.values()]
        torch.stack(losses).sum().backward()
        found.append([*losses, *[p.grad.clone() for p in model.parameters()]])
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, atol=1e-9, rtol=1e-9)
