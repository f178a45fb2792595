"""The image side takes any registered position encoding, every block any registered attention."""

from __future__ import annotations

import pytest
import torch
from tiny_batches import SMALL, make_batch
from torch import nn
from vlcli_lxmert import LXMERT

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, ForwardPasses
from vlcli.nn.attention import StandardAttention

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
REFUSED = {"ace-rpe", "cpvt", "detr-sine", "learned", "vlmo-bias"}
"""Encodings of grids, of words, and of words against pictures: they would do nothing to boxes."""


@registry.component("attentions", "test-counted")
class Counted(StandardAttention):
    """Counts its calls."""

    calls = 0

    def project(self, *given):
        Counted.calls += 1
        return super().project(*given)


def pooled(model, batch):
    return ForwardPasses(model.eval(), batch).fused().pooled


@pytest.mark.parametrize("name", sorted(n for n in registry.names("positions") if not n.startswith("test-")))
def test_every_registered_position_beside_the_box(name):
    torch.manual_seed(0)
    batch = make_batch(rows=2)
    if name in REFUSED:
        with pytest.raises(ComponentError, match="would have no effect here"):
            LXMERT(SMALL, **SIZES, image_position=["box", name])
        return
    model = LXMERT(SMALL, **SIZES, image_position=["box", name])
    out = pooled(model, batch)
    assert torch.isfinite(out).all()
    out.sum().backward()


def test_positions_of_the_image_side_change_the_outcome():
    batch = make_batch(rows=2)
    outs = []
    for choice in (None, "box", {"name": "box", "numbers": 7}, "sinusoid"):
        torch.manual_seed(0)
        outs.append(pooled(LXMERT(SMALL, **SIZES, image_position=choice), batch))
    assert all(not torch.allclose(a, b) for i, a in enumerate(outs) for b in outs[:i])


def test_an_attention_of_ones_own_serves_every_block():
    Counted.calls = 0
    sizes = {**SIZES, "text_layers": 2, "cross_layers": 3}
    model = LXMERT(SMALL, **sizes, attention="test-counted")
    blocks = [m for m in model.modules() if isinstance(m, nn.Module) and type(m).__name__ == "AttentionBlock"]
    assert all(isinstance(block.attention, Counted) for block in blocks)
    pooled(model, make_batch(rows=2))
    assert Counted.calls == 2 + 1 + 3 * 4  # language, objects, and both directions and both sides of a cross layer


def test_every_parameter_of_a_model_with_pairwise_encodings_has_a_depth() -> None:
    sizes = {"hidden": 24, "heads": 3, "text_layers": 1, "image_layers": 2, "cross_layers": 1}
    model = registry.build("models", {"name": "lxmert", **sizes, "image_position": ["box", "irpe"]}, DataSpec())
    depths = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert depths["text.words.weight"] == 0
    assert depths["objects.layers.0.feed_forward.inner.weight"] == 1
    assert {depth for name, depth in depths.items() if ".position." in name} == {3}
