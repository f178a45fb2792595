"""The encodings iRPE is compared with, each against its equation written out pair by pair."""

from __future__ import annotations

import math

import pytest
import torch
from vlcli_irpe import IRPE, SASA, ConvolutionalGenerator, Huang, LogCPB, RoPE2D, Shaw, SwinBias, TransformerXL

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, Layout, Stack

SHAPE = AttentionShape(24, 3)
GRID = (4, 5)
PAIRWISE = ["shaw", "huang", "sasa", "transformer-xl", "rope-2d", "swin-bias", "log-cpb"]


def tokens(count: int, seed: int) -> torch.Tensor:
    return torch.randn(2, 3, count, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def offsets(clip: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Clipped row and column offsets (n, n) of the grid."""
    place = torch.cartesian_prod(*map(torch.arange, GRID))
    difference = (place[:, None] - place[None]).clamp(-clip, clip)
    return difference[..., 0], difference[..., 1]


def logits(position: torch.nn.Module, q: torch.Tensor, k: torch.Tensor, layout: Layout) -> torch.Tensor:
    state = position.prepare(q, k, layout, layout)
    return position.logits(q, k, state, 0)


def filled(module: torch.nn.Module) -> torch.nn.Module:
    torch.manual_seed(1)
    for parameter in module.double().parameters():
        torch.nn.init.normal_(parameter)
    return module


def test_shaw_on_an_image() -> None:
    position, q = filled(Shaw(SHAPE, distance=2, value=True, off_plane="nothing")), tokens(20, 0)
    dy, dx = offsets(2)
    ids = (dy + 2) * 5 + dx + 2
    keys, values = position.tables(0, "key")[0][0].T[ids], position.tables(0, "value")[0][0][ids]  # (n, n, d)
    made = logits(position, q, q, Layout.for_grid(*GRID))
    assert torch.allclose(made, (q[:, :, :, None] * keys).sum(-1) / math.sqrt(8))
    weights = made.softmax(-1)
    layout = Layout.for_grid(*GRID)
    added = position.values(weights, position.prepare(q, q, layout, layout), 0)
    assert torch.allclose(added, (weights[..., None] * values).sum(-2))


def test_shaw_on_a_sentence() -> None:
    position, q = filled(Shaw(SHAPE, plane="sequence", distance=3)), tokens(9, 0)
    layout = Layout.for_text(torch.ones(1, 9, dtype=torch.bool))
    ids = (torch.arange(9)[:, None] - torch.arange(9)).clamp(-3, 3) + 3
    keys = position.tables(0, "key")[0][0].T[ids]
    assert torch.allclose(logits(position, q, q, layout), (q[:, :, :, None] * keys).sum(-1) / math.sqrt(8))


def test_sequence_refuses_boxes() -> None:
    layout = Layout.for_boxes(torch.rand(1, 4, 4), torch.ones(1, 4, dtype=torch.bool))
    with pytest.raises(ComponentError, match="Boxes have no order"):
        Shaw(SHAPE, plane="sequence").prepare(torch.zeros(1), torch.zeros(1), layout, layout)


def test_huang_is_its_equation() -> None:
    position, q, k = filled(Huang(SHAPE, distance=2, off_plane="nothing")), tokens(20, 0), tokens(20, 1)
    dy, dx = offsets(2)
    p = position.tables(0, "key")[0][0].T[(dy + 2) * 5 + dx + 2]  # (n, n, d)
    whole = ((q[:, :, :, None] + p) * (k[:, :, None] + p)).sum(-1) - (p * p).sum(-1)
    wanted = (whole - q @ k.transpose(-1, -2)) / math.sqrt(8)
    assert torch.allclose(logits(position, q, k, Layout.for_grid(*GRID)), wanted)


def test_sasa_is_its_equation() -> None:
    position, q = filled(SASA(SHAPE, distance=4, off_plane="nothing")), tokens(20, 0)
    dy, dx = offsets(4)
    rows, columns = (table[0].T for table in position.tables(0, "key"))
    p = torch.cat([columns[dx + 4], rows[dy + 4]], -1)
    made = logits(position, q, q, Layout.for_grid(*GRID))
    assert torch.allclose(made, (q[:, :, :, None] * p).sum(-1) / math.sqrt(8))


def test_transformer_xl_is_its_equation() -> None:
    position, q, k = filled(TransformerXL(SHAPE, distance=2)), tokens(20, 0), tokens(20, 1)
    dy, dx = offsets(2)
    s = position.waves().double()[(dy + 2) * 5 + dx + 2]  # (n, n, d)
    u, v, project = position.content[0, 0], position.place[0, 0], position.project[0, 0]
    whole = (q + u) @ k.transpose(-1, -2) + ((q + v)[:, :, :, None] * (s @ project)).sum(-1)
    wanted = (whole - q @ k.transpose(-1, -2)) / math.sqrt(8)
    assert torch.allclose(logits(position, q, k, Layout.for_grid(*GRID)), wanted, atol=1e-9)


def test_axial_deeplabs_terms_on_one_axis_are_irpe_on_queries_keys_and_values() -> None:
    # Wang et al. 2020, equation 4: softmax of q_o (k_p + r^q) + k_p r^k, times v_p + r^v, with a vector for each offset
    # p - o, shared by the heads.
    position = filled(IRPE(SHAPE, sides=["query", "key", "value"], index="clip", ratio=4.0, off_plane="nothing"))
    (q, k, v), layout = (tokens(9, seed) for seed in range(3)), Layout.for_grid(1, 9)
    offset = torch.arange(9) - torch.arange(9)[:, None]  # (o, p)
    row = 8 * 17 + 8  # of 17 x 17 buckets the middle row
    of_query, of_key, of_value = (position.tables(0, side)[0][0] for side in ("key", "query", "value"))
    r_query, r_key, r_value = of_query.T[row - offset], of_key.T[row + offset], of_value[row - offset]  # (o, p, d)
    scores = q @ k.mT + (q[:, :, :, None] * r_query).sum(-1) + (k[:, :, None] * r_key).sum(-1)
    weights = (scores / math.sqrt(8)).softmax(-1)
    wanted = weights @ v + (weights[..., None] * r_value).sum(-2)
    state = position.prepare(q, k, layout, layout)
    made = (q @ k.mT / math.sqrt(8) + position.logits(q, k, state, 0)).softmax(-1)
    assert torch.allclose(made @ v + position.values(made, state, 0), wanted)


@pytest.mark.parametrize("frequencies", ["axial", "mixed"])
def test_rotation_depends_on_offsets_alone(frequencies: str) -> None:
    position = RoPE2D(SHAPE, frequencies=frequencies).double()
    q = torch.randn(1, 3, 1, 8, dtype=torch.float64).expand(-1, -1, 20, -1)
    layout = Layout.for_grid(*GRID)
    turned = position.rotate(q, q, position.prepare(q, q, layout, layout), 0)
    scores = (turned[0] @ turned[1].transpose(-1, -2)).view(1, 3, *GRID, *GRID)
    assert torch.allclose(scores[:, :, 0, 1, 1, 3], scores[:, :, 2, 2, 3, 4], atol=1e-6)
    assert not torch.allclose(scores[:, :, 0, 1, 1, 3], scores[:, :, 0, 1, 3, 1], atol=1e-3)
    still = Layout.for_grid(*GRID, skip=1)
    cls = torch.randn(1, 3, 21, 8, dtype=torch.float64)
    assert torch.equal(position.rotate(cls, cls, position.prepare(cls, cls, still, still), 0)[0][:, :, 0], cls[:, :, 0])


def test_swin_bias_is_timm_s_table() -> None:
    from timm.layers.pos_embed_rel import RelPosBias

    theirs = RelPosBias((4, 4), 3)
    ours = SwinBias(SHAPE, window=4, off_plane="nothing")
    torch.nn.init.normal_(theirs.relative_position_bias_table)
    ours.layers[0].rpe_k.lookup_table_bias.data = theirs.relative_position_bias_table.data.T.clone()
    q = torch.zeros(1, 3, 16, 8)
    assert torch.allclose(logits(ours, q, q, Layout.for_grid(4, 4)), theirs.get_bias())


def test_swin_bias_grows_with_its_window() -> None:
    small, large = SwinBias(SHAPE, window=4), SwinBias(SHAPE, window=6)
    state = small.resize_state(small.state_dict(), (4, 4), (6, 6))
    large.load_state_dict(state)
    centre = lambda m, w: m.layers[0].rpe_k.lookup_table_bias[:, (2 * w - 1) ** 2 // 2]  # noqa: E731
    assert torch.allclose(centre(small, 4), centre(large, 6), atol=0.05)
    assert torch.equal(small.layers[0].rpe_k.lookup_table_bias[:, -1], large.layers[0].rpe_k.lookup_table_bias[:, -1])


def test_log_spaced_bias_is_timm_s_network() -> None:
    from timm.models.swin_transformer_v2 import WindowAttention

    theirs, ours = WindowAttention(24, (4, 4), 3).eval(), LogCPB(SHAPE, window=4)
    ours.networks[0].load_state_dict(theirs.cpb_mlp.state_dict(), strict=False)
    table = theirs.cpb_mlp(theirs.relative_coords_table).view(-1, 3)
    wanted = 16 * table[theirs.relative_position_index.view(-1)].view(16, 16, 3).permute(2, 0, 1).sigmoid()
    q = torch.zeros(1, 3, 16, 8)
    assert torch.allclose(logits(ours, q, q, Layout.for_grid(4, 4)), wanted, atol=1e-5)


def test_a_window_of_one_cell_has_one_bias() -> None:
    bias = logits(LogCPB(SHAPE, window=1), tokens(4, 1), tokens(4, 2), Layout.for_grid(2, 2))
    assert torch.equal(bias, bias[..., :1, :1].expand_as(bias))


def test_convolutional_generator_leaves_other_tokens_alone() -> None:
    position = ConvolutionalGenerator(AttentionShape(8, 2), after=[0, 2])
    layout = Layout.for_grid(3, 4, skip=1) + Layout.for_text(torch.ones(1, 2, dtype=torch.bool))
    x = torch.randn(2, 15, 8)
    made = position(x, layout, 2)
    assert torch.equal(made[:, :1], x[:, :1])
    assert torch.equal(made[:, 13:], x[:, 13:])
    cells = x[:, 1:13].transpose(1, 2).reshape(2, 8, 3, 4)
    assert torch.allclose(made[:, 1:13], x[:, 1:13] + position.convolutions[1](cells).flatten(2).transpose(1, 2))
    with pytest.raises(ComponentError, match="one full grid"):
        position(x, Layout.for_text(torch.ones(1, 15, dtype=torch.bool)))


@pytest.mark.parametrize("name", [*PAIRWISE, "irpe"])
def test_every_encoding_runs_in_a_stack_and_learns(name: str) -> None:
    spec = {"name": name} | ({"init": "normal"} if name in ("shaw", "huang", "sasa", "irpe") else {})
    position = registry.build("positions", spec, AttentionShape(24, 3, layers=2))
    stack = Stack.of(2, AttentionShape(24, 3), position=position)
    out, _ = stack(torch.randn(2, 21, 24), Layout.for_grid(*GRID, skip=1))
    (out * torch.randn_like(out)).sum().backward()
    assert out.shape == (2, 21, 24)
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in position.parameters())
