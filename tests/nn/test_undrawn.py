"""Models on the meta device, with weights that are not drawn: names, shapes and types are those of the real ones."""

from __future__ import annotations

import pytest
import torch
from cells import DATA_SPEC, TINY
from torch import nn

from vlcli.nn import build_model
from vlcli.nn.fake import without_memory


@pytest.mark.parametrize("name", ["lxmert", "albef", "vlmo", "swin", "faster-rcnn"])
def test_a_model_has_the_weights_of_the_real_one_without_their_memory(name):
    def make():
        return build_model({"name": name, **TINY[name]}, DATA_SPEC)

    real, light = make().state_dict(keep_vars=True), without_memory(make).state_dict(keep_vars=True)
    assert list(real) == list(light)
    assert all(value.is_meta for value in light.values())
    for key, value in real.items():
        other = light[key]
        assert (value.shape, value.dtype, value.requires_grad) == (other.shape, other.dtype, other.requires_grad), key


def test_what_reads_values_is_built_in_earnest_and_drawn():
    def make():
        layer = nn.Linear(4, 4)
        assert layer.weight.std().item() > 0
        return layer

    torch.manual_seed(0)
    assert without_memory(make).weight.device.type == "cpu"


def test_tensors_that_are_not_on_the_meta_device_are_drawn_all_the_same():
    made = without_memory(lambda: nn.init.normal_(torch.zeros(100, device="cpu")))
    assert made.std() > 0.5
