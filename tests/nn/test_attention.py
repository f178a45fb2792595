"""Attention: the two ways agree, masks and caches keep their promises, and the options do what they say."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import (
    VIT_STYLE,
    AttentionContext,
    AttentionMask,
    AttentionShape,
    BlockStyle,
    KeyValueCache,
    Layout,
    PairwisePosition,
    Recorder,
    Stack,
    StandardAttention,
)
from vlcli.nn.blocks import AttentionBlock, DropPath, activation

torch.set_num_threads(1)


class Bias(PairwisePosition):
    """Adds a table of its own per layer, by distance in the sentence."""

    def __init__(self, shape, reach=16):
        super().__init__(shape)
        self.reach = reach
        self.table = torch.nn.Parameter(torch.randn(shape.layers, shape.heads, 2 * reach + 1))
        self.prepared = 0

    def prepare(self, x, y, x_layout, y_layout):
        self.prepared += 1
        return (y_layout.index[:, None] - x_layout.index[:, :, None]).clamp(-self.reach, self.reach) + self.reach

    def logits(self, q, k, state, layer):
        return self.table[layer][:, state].transpose(0, 1)


def sentence(mask):
    return Layout.for_text(mask)


def random_mask(rng, kind, rows, queries, keys):
    valid = torch.rand(rows, keys, generator=rng) < 0.7
    valid[:, 0] = True
    if kind == "none":
        return None
    if kind == "padding":
        return AttentionMask(valid)
    if kind == "causal":
        return AttentionMask(valid, causal=True, prefix=torch.randint(1, keys + 1, (rows,), generator=rng))
    return AttentionMask(dense=torch.rand(rows, queries, keys, generator=rng) < 0.6)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kind=st.sampled_from(["none", "padding", "causal", "dense"]),
    bias=st.booleans(),
    cross=st.booleans(),
)
def test_fused_and_general_paths_agree(seed, kind, bias, cross):
    rng = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    shape = AttentionShape(16, 4, layers=2, key_dim=12 if cross else 0, cross=cross)
    attention = StandardAttention(shape).double()
    keys = 7 if cross and kind != "causal" else 5
    x, y = torch.randn(2, 5, 16).double(), torch.randn(2, keys, 12).double() if cross else None
    width = 5 if y is None else y.shape[1]
    mask = random_mask(rng, kind, 2, 5, width)
    here, there = sentence(torch.ones(2, 5).bool()), sentence(torch.ones(2, width).bool())
    position = Bias(shape).double() if bias else None
    state = position.prepare(x, x if y is None else y, here, there) if position else None
    options = {"mask": mask, "x_layout": here, "y_layout": there, "position": position, "state": state, "layer": 1}
    record = Recorder()
    fused = attention(x, y, context=AttentionContext(**options))
    general = attention(x, y, context=AttentionContext(record=record, name="here", **options))
    torch.testing.assert_close(fused, general, atol=1e-6, rtol=1e-6)
    kept = record.attention["here"]
    assert kept.shape == (2, 4, 5, width)
    torch.testing.assert_close(kept.sum(-1), torch.ones(2, 4, 5).double())


def test_recorder_keeps_gradients_where_asked():
    attention = StandardAttention(AttentionShape(8, 2))
    record = Recorder(gradients=True)
    attention(torch.randn(1, 3, 8), context=AttentionContext(record=record, name="a")).sum().backward()
    assert record.attention["a"].grad.shape == (1, 2, 3, 3)


@pytest.mark.parametrize(("bias", "expected"), [("all", (1, 1, 1)), ("query_value", (1, 0, 1)), ("none", (0, 0, 0))])
def test_bias_forms(bias, expected):
    attention = registry.build("attentions", {"name": "standard", "bias": bias, "dense": False}, AttentionShape(8, 2))
    found = tuple(int(part.bias is not None) for part in (attention.query, attention.key, attention.value))
    assert found == expected
    assert attention(torch.randn(2, 3, 8)).shape == (2, 3, 8)
    assert not [name for name, _ in attention.named_parameters() if name.startswith("dense")]


def test_softmax_in_float32_under_half_precision():
    torch.manual_seed(0)
    shape = AttentionShape(8, 2)
    half = StandardAttention(shape, float32_softmax=True).bfloat16()
    record = Recorder()
    x = torch.randn(1, 4, 8).bfloat16()
    assert half(x, context=AttentionContext(record=record, name="a")).dtype == torch.bfloat16
    assert record.attention["a"].dtype == torch.float32
    assert half(x, context=AttentionContext(mask=AttentionMask(torch.ones(1, 4).bool()))).dtype == torch.bfloat16


def test_width_must_be_a_multiple_of_the_heads():
    with pytest.raises(ComponentError, match="multiple"):
        StandardAttention(AttentionShape(10, 4))


def test_padding_changes_nothing():
    torch.manual_seed(0)
    stack = Stack.of(2, AttentionShape(16, 4), position=Bias(AttentionShape(16, 4, layers=2))).eval()
    x, mask = torch.randn(1, 4, 16), torch.ones(1, 4).bool()
    wide = torch.cat([x, torch.randn(1, 3, 16)], 1)
    padded = torch.cat([mask, torch.zeros(1, 3).bool()], 1)
    short, _ = stack(x, sentence(mask), AttentionMask(mask))
    long, _ = stack(wide, sentence(padded), AttentionMask(padded))
    torch.testing.assert_close(short, long[:, :4], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize(
    "style", [BlockStyle(dropout=0.0), VIT_STYLE, BlockStyle("pre", layer_scale=0.1, drop_path=0.5)]
)
def test_stack_keeps_layers_and_checkpointing_changes_no_gradient(style):
    torch.manual_seed(0)
    shape = AttentionShape(16, 4)
    position = Bias(AttentionShape(16, 4, layers=3))
    stack = Stack.of(3, shape, 24, style, position=position)
    x, layout = torch.randn(2, 5, 16), sentence(torch.ones(2, 5).bool())
    grads = []
    for active in (False, True):
        stack.checkpointing, stack.training = active, True
        stack.zero_grad()
        torch.manual_seed(1)
        out, kept = stack(x, layout, AttentionMask(layout.valid), keep=(0, 3))
        out.square().sum().backward()
        grads.append([p.grad.clone() for p in stack.parameters()])
        assert set(kept) == {0, 3}
        assert torch.equal(kept[0], x)
        assert torch.equal(out, kept[3] if stack.norm is None else stack.norm(kept[3]))
    for left, right in zip(*grads, strict=True):
        torch.testing.assert_close(left, right)
    assert position.prepared == 2


def test_drop_path_keeps_the_mean_and_is_off_in_evaluation():
    torch.manual_seed(0)
    path, x = DropPath(0.25), torch.ones(4000, 1, 1)
    assert abs(path(x).mean() - 1) < 0.05
    torch.testing.assert_close(path(x).unique(), torch.tensor([0.0, 1 / 0.75]))
    assert torch.equal(path.eval()(x), x)


def test_unknown_activation_is_named():
    assert activation("relu")(torch.tensor(-1.0)) == 0
    with pytest.raises(ComponentError, match="activation"):
        activation("gelo")


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), prefix=st.integers(1, 5), chunk=st.integers(1, 3))
def test_cached_decoding_equals_the_whole_sequence(seed, prefix, chunk):
    """A prefix seen by all, then words one (or a few) at a time; a mask asked about and forgotten in between."""
    torch.manual_seed(seed)
    shape = AttentionShape(16, 4)
    stack = Stack.of(2, shape, position=Bias(AttentionShape(16, 4, layers=2))).double().eval()
    total = prefix + 6
    x, layout = torch.randn(2, total, 16).double(), sentence(torch.ones(2, total).bool())
    whole, _ = stack(x, layout, AttentionMask(causal=True, prefix=prefix))
    cache = KeyValueCache()

    def places(start, stop):
        return layout.map(lambda tensor: tensor[:, start:stop])

    seen, _ = stack(x[:, :prefix], places(0, prefix), AttentionMask(causal=True, prefix=prefix), cache=cache)
    parts = [seen]
    for start in range(prefix, total, chunk):
        stop = min(start + chunk, total)
        mask = AttentionMask(causal=True, prefix=prefix)
        stack(torch.randn(2, stop - start, 16).double(), places(start, stop), mask, cache=cache)
        cache.truncate(start)
        assert len(cache) == start
        mask = AttentionMask(causal=True, prefix=prefix)
        parts.append(stack(x[:, start:stop], places(start, stop), mask, cache=cache)[0])
    torch.testing.assert_close(torch.cat(parts, 1), whole, atol=1e-9, rtol=1e-9)


def test_cache_follows_beams_and_keeps_cross_attention():
    torch.manual_seed(0)
    attention = StandardAttention(AttentionShape(8, 2, cross=True)).eval()
    cache, x, y = KeyValueCache(), torch.randn(3, 1, 8), torch.randn(3, 4, 8)
    first = attention(x, y, context=AttentionContext(cache=cache))
    again = attention(x, torch.full_like(y, torch.nan), context=AttentionContext(cache=cache))
    assert torch.equal(first, again)
    rows = torch.tensor([2, 0, 0])
    chosen = attention(x[rows], y[rows], context=AttentionContext(cache=cache.select(rows)))
    torch.testing.assert_close(chosen, first[rows])


@pytest.mark.parametrize("per", [1, 3])
def test_rows_of_one_picture_share_what_they_have_in_common(per: int) -> None:
    torch.manual_seed(0)
    stack = Stack.of(2, AttentionShape(8, 2)).eval()
    x, words = torch.randn(4, 5, 8), torch.randn(2 * per, 3, 8)
    cache = KeyValueCache()
    stack(x, Layout.for_text(torch.ones(4, 5, dtype=torch.bool)), cache=cache)
    whole, owners = cache, torch.tensor([3, 1]).repeat_interleave(per)
    apart, shared = whole.select(owners), whole.select(owners, per)
    assert len(shared.shared) == (2 if per > 1 else 0)
    turned = torch.arange(2 * per).unflatten(0, (2, per)).flip(1).flatten()  # beams change places
    for step in range(3):
        real = torch.rand(2 * per, len(apart) + 1) > 0.2
        real[:, 5:] = True
        place = Layout.for_text(torch.ones(2 * per, 1, dtype=torch.bool))
        found = [stack(words[:, step : step + 1], place, AttentionMask(real), cache=c)[0] for c in (apart, shared)]
        torch.testing.assert_close(*found)
        if step == 1:
            apart.truncate(6)
            shared.truncate(6)
            assert len(apart) == len(shared) == 6
        else:
            apart, shared = apart.select(turned), shared.select(turned, per)
    if per > 1:  # one of the pictures is done
        kept = torch.tensor([per, per + 1])
        for left in (shared.select(kept), shared.select(kept + 1 - per)):
            assert left.per == 1
            assert len(left.shared[0, False][0]) == 2
        one = shared.select(torch.arange(per, 2 * per), per)
        for place in one.shared:
            torch.testing.assert_close(one.get(place), apart.select(torch.arange(per, 2 * per)).get(place))


def test_a_block_takes_a_name_a_module_or_a_function():
    shape = AttentionShape(8, 2)
    own = StandardAttention(shape, bias="none")
    assert AttentionBlock(shape, attention=own).attention is own
    assert AttentionBlock(shape, attention=lambda given: StandardAttention(given, dense=False)).attention.heads == 2
    stack = Stack.of(2, shape, attention=StandardAttention)
    assert stack.layers[0].self_attention.attention is not stack.layers[1].self_attention.attention


def test_an_attention_of_the_old_signature_is_refused_with_the_new_one():
    with pytest.raises(ComponentError) as refused:

        class Old(StandardAttention):
            def forward(self, x, y=None, *, mask=None, x_layout=None, **options):
                return x

    assert "forward(self, x, y=None, context=NO_CONTEXT)" in str(refused.value)
    assert "mask" in str(refused.value)

    class OldLayer(torch.nn.Module):
        def forward(self, x, **options):
            return x

    with pytest.raises(ComponentError, match="context"):
        Stack([OldLayer()])
    with pytest.raises(ComponentError, match="context"):
        AttentionBlock(AttentionShape(8, 2), attention=OldLayer())
