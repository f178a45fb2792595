"""The seams carry what later papers need: test-only plugins that fork nothing."""

from __future__ import annotations

import pytest
import torch
from tiny_batches import SMALL, make_batch
from torch import nn
from vlcli_lxmert import LXMERT

from vlcli import registry
from vlcli.errors import DataError
from vlcli.nn import (
    WORDS,
    Attention,
    AttentionContext,
    AttentionMask,
    AttentionShape,
    DataSpec,
    EncoderOutput,
    ForwardPasses,
    FusionOutput,
    InputSpec,
    Layout,
    Model,
    PairwisePosition,
    Recorder,
    Slot,
    Stack,
    StandardAttention,
    TextEmbeddings,
    initialise,
    text_layout,
)
from vlcli.nn.blocks import AttentionBlock
from vlcli.nn.positions import CombinedPairwise, build_positions

torch.set_num_threads(1)
SIZES = {"hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 2}


@registry.component("positions", "test-value-term")
class ValueTerm(PairwisePosition):
    """A term on the scores and one on the output, by whether the words index is even (contextual, both ways)."""

    uses_weights = True

    def __init__(self, shape, *, classes: int = 2):
        super().__init__(shape)
        self.classes = classes
        self.keys = nn.Parameter(torch.randn(shape.layers, shape.head_dim, classes))
        self.added = nn.Parameter(torch.randn(shape.layers, classes, shape.head_dim))
        self.prepared = []

    def prepare(self, x, y, x_layout, y_layout):
        self.prepared.append((x.shape[1], y.shape[1]))
        left, right = x_layout.index[:, :, None], y_layout.index[:, None]
        kind = (left + right).abs() % self.classes
        return kind, nn.functional.one_hot(kind, self.classes).to(x.dtype)

    def logits(self, q, k, state, layer):
        scored = q * self.shape.head_dim**-0.5 @ self.keys[layer]  # (B, H, Tq, classes)
        kind = state[0][:, None].expand(*scored.shape[:3], -1)
        return scored.gather(-1, kind)

    def values(self, weights, state, layer):
        per_class = torch.einsum("bhqk,bqkc->bhqc", weights, state[1])
        return per_class @ self.added[layer]


@registry.component("positions", "test-inputs")
class ShiftedInputs(PairwisePosition):
    """Shifts what queries and keys are made from, not what values are (DETR)."""

    def __init__(self, shape):
        super().__init__(shape)
        self.left, self.right = nn.Parameter(torch.randn(shape.dim)), nn.Parameter(torch.randn(shape.dim))

    def inputs(self, q_in, k_in, v_in, state, layer):
        return q_in + self.left, k_in + self.right, v_in


@registry.component("attentions", "test-per-route")
class PerRoute(Attention):
    """One set of projections per route: each set meets only its own tokens, which lie side by side."""

    def __init__(self, shape):
        super().__init__(shape)
        self.sets = nn.ModuleList(nn.Linear(shape.dim, 3 * shape.dim) for _ in range(shape.routes))
        self.dense = nn.Linear(shape.dim, shape.dim)

    def _part(self, tokens, layout, which):
        made = tokens.new_zeros(tokens.shape)
        width = tokens.shape[-1]
        for route, linear in enumerate(self.sets):
            weight, bias = linear.weight.unflatten(0, (3, width))[which], linear.bias.unflatten(0, (3, width))[which]
            columns = (layout.route[0] == route).nonzero()[:, 0]
            if len(columns):
                made[:, columns] = nn.functional.linear(tokens[:, columns], weight, bias)
        return self.split(made)

    def project(self, q_in, k_in, v_in, x_layout, y_layout):
        q = self._part(q_in, x_layout, 0)
        return (q, None, None) if k_in is None else (q, self._part(k_in, y_layout, 1), self._part(v_in, y_layout, 2))

    def output(self, context, x_layout):
        return self.dense(context)


def naive_cross(attention, position, x, y, kind, layer):
    """The value term written out pair by pair, with the (Tq, Tk, d) tensor that the class never builds."""
    q, k, v = attention.project(x, y, y, None, None)
    q = q * attention.shape.head_dim**-0.5
    by_pair = position.keys[layer].T[kind]  # (B, Tq, Tk, d)
    scores = q @ k.transpose(-1, -2) + torch.einsum("bhqd,bqkd->bhqk", q, by_pair)
    weights = scores.softmax(-1)
    out = weights @ v + torch.einsum("bhqk,bqkd->bhqd", weights, position.added[layer][kind])
    return attention.output(out.transpose(1, 2).flatten(2), None)


def test_value_term_in_cross_attention_equals_the_pairwise_form():
    torch.manual_seed(0)
    shape = AttentionShape(16, 2, layers=3, cross=True)
    block = AttentionBlock(shape)
    position = ValueTerm(shape)
    x, y = torch.randn(2, 4, 16), torch.randn(2, 6, 16)
    here, there = Layout.for_text(torch.ones(2, 4).bool()), Layout.for_text(torch.ones(2, 6).bool())
    state = position.prepare(x, y, here, there)
    got = block.attention(
        x, y, context=AttentionContext(x_layout=here, y_layout=there, position=position, state=state, layer=2)
    )
    torch.testing.assert_close(got, naive_cross(block.attention, position, x, y, state[0], 2), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "choice", ["test-value-term", "test-inputs", ["test-inputs", {"name": "test-value-term", "classes": 3}]]
)
def test_lxmert_takes_any_pairwise_encoding_by_recipe_line(choice):
    torch.manual_seed(0)
    model = LXMERT(SMALL, **SIZES, cross_position=choice, image_position=["box", "test-value-term"])
    step = ForwardPasses(model, make_batch())
    step.fused("corrupted").pooled.square().sum().backward()
    encodings = [p for n, p in model.named_parameters() if ".position." in n]
    assert encodings
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in encodings)
    if choice == "test-value-term":  # once for each direction, not once a layer
        assert model.cross.position.prepared == [(9, 6), (6, 9)]


def test_combined_encodings_add_up():
    torch.manual_seed(0)
    shape, slot = AttentionShape(16, 2, layers=1), Slot.of("position", ["tokens", "pairs"], ["word"])
    tokens, joined = build_positions(["learned", "test-value-term", "test-inputs"], shape, slot)
    assert len(tokens) == 1
    assert isinstance(joined, CombinedPairwise)
    assert joined.uses_weights
    attention, x, layout = StandardAttention(shape), torch.randn(1, 3, 16), Layout.for_text(torch.ones(1, 3).bool())
    state = joined.prepare(x, x, layout, layout)
    both = attention(x, context=AttentionContext(x_layout=layout, position=joined, state=state))
    shifted = attention.project(x + joined.parts[1].left, x + joined.parts[1].right, x, layout, layout)
    alone = attention.attend(*shifted, context=AttentionContext(position=joined.parts[0], state=state[0]))
    torch.testing.assert_close(both, attention.output(alone.transpose(1, 2).flatten(2), layout))


def test_per_route_attention_in_a_mixed_sequence():
    torch.manual_seed(0)
    shape = AttentionShape(16, 2)
    stack = Stack.of(1, shape, attention="test-per-route").eval()
    text, boxes = (
        Layout.for_text(torch.ones(2, 3).bool()),
        Layout.for_boxes(torch.rand(2, 4, 4), torch.ones(2, 4).bool()),
    )
    x = torch.randn(2, 7, 16)
    attention = stack.layers[0].self_attention.attention
    out, _ = stack(x, text + boxes, AttentionMask((text + boxes).valid))
    with torch.no_grad():
        attention.sets[1].load_state_dict(attention.sets[0].state_dict())
    same, _ = stack(x, text + boxes)
    plain = Stack.of(1, shape).eval()
    own = {name: value for name, value in stack.state_dict().items() if ".sets." not in name}
    for row, part in enumerate(("query", "key", "value")):
        for kind in ("weight", "bias"):
            own[f"layers.0.self_attention.attention.{part}.{kind}"] = getattr(attention.sets[0], kind).chunk(3)[row]
    plain.load_state_dict(own)
    torch.testing.assert_close(same, plain(x, text + boxes)[0], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(out, same)


def test_per_route_attention_in_lxmert_meets_only_its_own_tokens():
    model = LXMERT(SMALL, **SIZES, attention="test-per-route")
    ForwardPasses(model, make_batch()).text("corrupted").hidden.sum().backward()
    sets = model.language.layers[0].self_attention.attention.sets
    assert sets[0].weight.grad.abs().sum() > 0
    assert sets[1].weight.grad is None or sets[1].weight.grad.abs().sum() == 0


class SingleStream(Model):
    """Regions then words in one stack; words are seen from left to right only (sequence to sequence)."""

    capabilities = frozenset({"fuse"})
    fuse_takes = "embeddings"

    def __init__(self, data_spec: DataSpec):
        super().__init__(data_spec)
        shape = AttentionShape(16, 2, layers=2)
        self.text = TextEmbeddings(data_spec, 16, build_positions("learned", shape, WORDS)[0], dropout=0.0)
        self.image = nn.Linear(data_spec.region_dim, 16)
        self.stack = Stack.of(2, shape)
        self.apply(initialise)

    @property
    def dim(self):
        return 16

    def input_spec(self):
        return InputSpec(text=True, regions=True)

    def word_table(self):
        return self.text.words

    def embed_text(self, text):
        return EncoderOutput(*self.text(text, text_layout(text)))

    def embed_image(self, images):
        regions = images.regions
        return EncoderOutput(self.image(regions.features), Layout.for_boxes(regions.boxes, regions.mask))

    def fuse(self, text, image, record=None):
        layout, prefix = image.layout + text.layout, image.hidden.shape[1]
        mask = AttentionMask(layout.valid, causal=True, prefix=prefix)
        hidden, _ = self.stack(torch.cat([image.hidden, text.hidden], 1), layout, mask, record=record, name="layers")
        seen, words = hidden[:, :prefix], hidden[:, prefix:]
        return FusionOutput(EncoderOutput(words, text.layout), EncoderOutput(seen, image.layout), words[:, 0])


def test_sequence_to_sequence_view():
    torch.manual_seed(0)
    model = SingleStream(SMALL).eval()
    batch = make_batch()
    base = ForwardPasses(model, batch, record=Recorder()).fused("clean")
    batch.clean.text.ids[:, 5] = (batch.clean.text.ids[:, 5] + 1) % SMALL.vocab_size
    record = Recorder()
    other = ForwardPasses(model, batch, record=record).fused("clean")
    assert torch.equal(base.image.hidden, other.image.hidden)
    torch.testing.assert_close(base.text.hidden[:, :5], other.text.hidden[:, :5])
    assert not torch.allclose(base.text.hidden[:, 5:], other.text.hidden[:, 5:])
    weights = record.attention["layers.1"]
    assert weights[:, :, :6, 6:].max() == 0
    assert torch.triu(weights[:, :, 6:, 6:], 1).max() == 0


def test_masked_words_of_a_sequence_to_sequence_model_train():
    torch.manual_seed(0)
    model = SingleStream(SMALL)
    objective = registry.build("objectives", {"name": "mlm", "rule": "count", "mask_end": True}, model, SMALL)
    loss = objective(ForwardPasses(model, make_batch()), {}).losses["mlm"].value()
    loss.backward()
    assert loss > 0
    assert model.text.words.weight.grad.abs().sum() > 0


def test_examples_without_texts_or_pictures_are_told_in_words():
    """A table without a text column, say; the step used to fail on None."""
    batch = make_batch()
    batch.clean.text = None
    with pytest.raises(DataError, match="reads texts, and these examples have none"):
        ForwardPasses(LXMERT(SMALL, **SIZES), batch).fused()
    batch = make_batch()
    batch.clean.images = None
    with pytest.raises(DataError, match="looks at pictures, and these examples have none"):
        ForwardPasses(LXMERT(SMALL, **SIZES), batch).fused()


def test_expressions_without_a_box_are_told_in_words():
    model = LXMERT(SMALL, **SIZES)
    objective = registry.build("objectives", "region-selection", model, SMALL)
    with pytest.raises(DataError, match="do not say which box they speak of"):
        objective(ForwardPasses(model, make_batch()), {})
