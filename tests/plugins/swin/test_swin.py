"""Swin with any encoding: timm's scores, counts, and iRPE inside windows."""

from __future__ import annotations

import pytest
import timm
import torch
from vlcli_swin import Swin
from vlcli_swin.model import Windows

from vlcli.errors import ComponentError
from vlcli.nn import DataSpec, Recorder
from vlcli.nn.batch import Images, Pixels
from vlcli.nn.count import count_model, macs_of

QKV = {"name": "irpe", "sides": ["query", "key", "value"], "off_plane": "nothing"}
SMALL = {"hidden": 24, "layers": [2, 2], "heads": [3, 6], "classes": 5}


def theirs(size: int, window: int = 7) -> torch.nn.Module:
    torch.manual_seed(0)
    sizes = {"embed_dim": 24, "depths": (2, 2), "num_heads": (3, 6), "num_classes": 5}
    model = timm.create_model("swin_tiny_patch4_window7_224", img_size=size, window_size=window, **sizes).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return model


def test_counts_are_the_published_and_timm_s():
    with torch.device("meta"):
        ours, other = Swin(DataSpec()), timm.create_model("swin_tiny_patch4_window7_224")
    assert count_model(ours)["total"] == 28_288_354
    pixels = torch.zeros(1, 3, 224, 224, device="meta")
    assert macs_of(lambda: ours(pixels))[0] == macs_of(lambda: other(pixels))[0] == count_model(ours)["macs"]["total"]


@pytest.mark.parametrize(("size", "window"), [(112, 7), (56, 7), (64, 4)])
def test_timm_weights_give_timm_s_scores(size, window):
    """Shifted windows, and maps no larger than a window."""
    other = theirs(size, window)
    ours = Swin(DataSpec(), **SMALL, image_size=size, window=window).eval()
    report: list[str] = []
    missing = ours.load_state_dict(ours.adapt(other.state_dict(), report), strict=False)
    assert not missing.missing_keys
    assert not missing.unexpected_keys
    pixels = torch.randn(2, 3, size, size)
    assert torch.allclose(ours(pixels), other(pixels), atol=1e-4)


def test_irpe_inside_windows_learns_and_counts():
    model = Swin(DataSpec(), **SMALL, image_size=112, position=QKV, drop_path=0.0)
    scores = model(torch.randn(2, 3, 112, 112))
    scores.square().sum().backward()
    tables = {name: p for name, p in model.named_parameters() if "lookup_table" in name}
    assert len(tables) == 3 * 4
    # Keys and queries get a gradient only once values differ by place; values do from the start.
    assert all(p.grad.abs().sum() > 0 for name, p in tables.items() if "rpe_v" in name)
    with torch.device("meta"):
        whole = Swin(DataSpec(), position=QKV)
    bias = sum(depth * heads * 169 for depth, heads in zip((2, 2, 6, 2), (3, 6, 12, 24), strict=True))
    assert count_model(whole)["total"] == 28_288_354 - bias + 12 * 3 * 32 * 49


def test_pixels_give_states_and_records():
    model, record = Swin(DataSpec(), **SMALL, image_size=56).eval(), Recorder()
    pixels = Pixels(torch.randn(2, 3, 56, 56), torch.tensor([[56, 56]] * 2))
    states = model.encode_image(Images(["a", "b"], pixels=pixels), record)
    assert states.hidden.shape == (2, 49, 48)
    assert states.layout.grid == (7, 7)
    assert states.extra["logits"].shape == (2, 5)
    assert record.attention["image.0.1"].shape == (8, 3, 49, 49)
    assert model.layer_of("stages.1.blocks.0.feed_forward.inner.weight") == 3
    assert (model.layer_of("patch.weight"), model.layer_of("head.bias")) == (0, 5)


@pytest.mark.parametrize("grid", [(6, 9), (8, 8), (5, 3), (14, 7)])
def test_rolled_windows_join_true_neighbours(grid):
    """Swin's detection code pads first and rolls then; a map that needs no padding is the same either way."""
    windows = Windows.of(grid, 4)
    places = torch.cartesian_prod(torch.arange(grid[0]), torch.arange(grid[1]))[None].float()
    for shifted in (False, True):
        assert torch.equal(windows.join(windows.cut(places, shifted), shifted), places)
    allowed = windows.allowed(torch.device("cpu"))
    if allowed is None:
        assert windows.shift == (0, 0)
        return
    padded = windows.padded
    whole = Windows(padded, windows.window, windows.shift)
    rows = torch.cartesian_prod(torch.arange(padded[0]), torch.arange(padded[1]))[None].float()
    cut = whole.cut(rows, True)
    distance = (cut[:, :, None] - cut[:, None]).abs()
    near = (distance < torch.tensor([float(n) for n in windows.window])).all(-1)
    assert torch.equal(allowed, near)


def test_layers_without_heads_of_as_many_stages_are_refused():
    with pytest.raises(ComponentError, match="Every stage") as refused:
        Swin(DataSpec(), layers=[2, 2])
    assert refused.value.got == "layers [2, 2], heads [3, 6, 12, 24]"
