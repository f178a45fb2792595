"""Every attention in every model: it acts, or the build is refused with a reason."""

from __future__ import annotations

import pytest
import torch
from cells import difference, make_batch, models, outputs, summed, tiny

from vlcli import registry
from vlcli.errors import ComponentError

ATTENTIONS = sorted(entry.name for entry in registry.entries("attentions") if entry.distribution == "vlcli")
SLOTS = [
    (model, name)
    for model in models()
    for name, parameter in registry.parameters(registry.load("models", model)).items()
    if parameter.kind == "attentions"
]


def spoken(model, batch):
    """All outputs, the decoder's too."""
    found = outputs(model, batch)
    if "decode" in model.capabilities:
        found["decoded"] = model.decode(batch.clean.text, model.encode_image(batch.clean.images))
    return found


@pytest.mark.parametrize(("model", "slot"), SLOTS)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_acts(model, slot, attention):
    """Each parameter that has a gradient changes the outputs, and each block has such parameters."""
    made = tiny(model, **{slot: attention})
    blocks = {n: m for n, m in made.named_modules() if getattr(m, "spec_in_recipe", {}).get("name") == attention}
    assert blocks
    batch = make_batch(made)
    before = spoken(made, batch)
    parameters = {name: list(block.parameters()) for name, block in blocks.items()}
    flat = [parameter for block in parameters.values() for parameter in block]
    gradients = torch.autograd.grad(summed(before), flat, allow_unused=True)
    moved = {id(p) for p, g in zip(flat, gradients, strict=True) if g is not None and g.abs().max() > 1e-9}
    for name, block in parameters.items():
        assert any(id(parameter) in moved for parameter in block), f"{name} has no gradient"
    rng = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in flat:
            parameter.add_(torch.randn(parameter.shape, generator=rng, dtype=parameter.dtype))
        assert difference(before, spoken(made, batch)) > 1e-6


def test_an_attention_that_no_layer_has_is_refused():
    sizes = {"fused_layers": 0, "attention": "disentangled", "lower_attention": "standard"}
    with pytest.raises(ComponentError, match="No layer of the model VLMo has the attention that 'attention' names"):
        tiny("vlmo", **sizes)
