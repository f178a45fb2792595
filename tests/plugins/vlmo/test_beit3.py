"""BEiT-3 against its equations written out plainly, by the names of the published files."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from vlcli_vlmo import BEiT3

from tests.plugins.vlmo.golden import DATA_SPEC, images, text, uniform
from vlcli.checkpoints.layout import Entry
from vlcli.checkpoints.load import every
from vlcli.errors import ComponentError, DataError
from vlcli.nn import Batch, DataSpec, ForwardPasses, Images, Recorder, Text, View
from vlcli.nn.generation import Generation, Recomputed, generate
from vlcli.objectives.answering import Answering
from vlcli.objectives.classification import Classification

DIM, HEADS, LAYERS, SIDE = 24, 4, 3, 3
TINY: dict[str, Any] = {"hidden": DIM, "layers": LAYERS, "heads": HEADS, "image_size": 16 * SIDE, "drop_path": 0.0}
SIZES = {"hidden": DIM, "layers": LAYERS, "words": DATA_SPEC.vocab_size, "cells": SIDE * SIDE}
IMAGE, TEXT = "A", "B"
State = dict[str, Tensor]


def entries(layout: str, **sizes: int) -> dict[str, Entry]:
    """Names and shapes of a layout of published files, at small sizes."""
    published = next(one for one in every(("beit3",)) if one.file.layout == layout)
    return published.sized(**{**SIZES, **sizes})


def released(layout: str, **sizes: int) -> State:
    """Numbers by published names: norms near one, all else near zero."""
    made = {}
    for name, entry in entries(layout, **sizes).items():
        drawn = uniform(name, tuple(entry.shape)).double()
        made[name] = 1 + 0.1 * drawn if "norm" in name and name.endswith("weight") else 0.3 * drawn
    return made


def loaded(state: State, **options: Any) -> BEiT3:
    model = BEiT3(DATA_SPEC, **TINY, **options).double().eval()
    report: list[str] = []
    missing, left = model.load_state_dict(model.adapt(state, report), strict=False)
    assert all(name.startswith("pooler.") for name in missing)
    assert all(name.startswith(("beit3.vision_embed.mask_token", "objectives.", "head.")) for name in left)
    return model


def linear(state: State, name: str, x: Tensor) -> Tensor:
    return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])


def norm(state: State, name: str, x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-5)


def multiway(work: Any, state: State, name: str, x: Tensor, kinds: list[str], tail: str = "") -> Tensor:
    """Token by token, each by the weights of its modality."""
    return torch.stack([work(state, f"{name}.{kind}{tail}", x[:, place]) for place, kind in enumerate(kinds)], 1)


def attend(state: State, name: str, x: Tensor, kinds: list[str], allowed: Tensor) -> Tensor:
    """(B, T, D); ``allowed`` (B, T, T) says who may see whom."""
    q, k, v = (multiway(linear, state, f"{name}.self_attn.{part}_proj", x, kinds) for part in "qkv")
    q, k, v = (part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in (q, k, v))
    scores = (q @ k.transpose(2, 3)) / (DIM / HEADS) ** 0.5
    weights = scores.masked_fill(~allowed[:, None], -torch.inf).softmax(-1)
    mixed = (weights @ v).transpose(1, 2).flatten(2)
    mixed = multiway(norm, state, f"{name}.self_attn.inner_attn_ln", mixed, kinds)
    return multiway(linear, state, f"{name}.self_attn.out_proj", mixed, kinds)


def feed(state: State, name: str, x: Tensor) -> Tensor:
    inner = norm(state, f"{name}.ffn_layernorm", F.gelu(linear(state, f"{name}.fc1", x)))
    return linear(state, f"{name}.fc2", inner)


def plain(state: State, x: Tensor, kinds: list[str], allowed: Tensor) -> Tensor:
    """The whole encoder over embedded tokens (B, T, D)."""
    for number in range(LAYERS):
        name = f"beit3.encoder.layers.{number}"
        entered = multiway(norm, state, f"{name}.self_attn_layer_norm", x, kinds)
        x = x + attend(state, name, entered, kinds, allowed)
        entered = multiway(norm, state, f"{name}.final_layer_norm", x, kinds)
        x = x + multiway(feed, state, f"{name}.ffn", entered, kinds)
    if "beit3.encoder.layer_norm.A.weight" not in state:
        return x
    return multiway(norm, state, "beit3.encoder.layer_norm", x, kinds)


def words_of(state: State, given: Text) -> Tensor:
    places = state["beit3.encoder.embed_positions.B.weight"][2 : 2 + given.ids.shape[1]]
    return state["beit3.text_embed.weight"][given.ids] + places


def patches_of(state: State, given: Images) -> Tensor:
    assert given.pixels is not None
    proj = state["beit3.vision_embed.proj.weight"], state["beit3.vision_embed.proj.bias"]
    x = F.conv2d(given.pixels.images.double(), *proj, stride=16).flatten(2).transpose(1, 2)
    x = torch.cat([state["beit3.vision_embed.cls_token"].expand(len(x), -1, -1), x], 1)
    return x + state["beit3.encoder.embed_positions.A.weight"][2:]


def everyone(given: Text, patches: int) -> Tensor:
    """(B, T, T): patches and real words are seen by all."""
    seen = torch.cat([torch.ones(len(given.ids), patches, dtype=torch.bool), given.mask], 1)
    return seen[:, None].expand(-1, seen.shape[1], -1)


def close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def test_words_alone_and_pictures_alone() -> None:
    state = released("retrieval")
    model = loaded(state)
    theirs = plain(state, words_of(state, text()), [TEXT] * 6, everyone(text(), 0))
    close(model.encode_text(text()).hidden[text().mask], theirs[text().mask])
    whole = torch.ones(3, 10, 10, dtype=torch.bool)
    seen = plain(state, patches_of(state, images()), [IMAGE] * 10, whole)
    close(model.encode_image(images()).hidden, seen)
    close(model.encode_image(images()).pooled, seen[:, 0])


def test_a_pair_and_its_pooled_vector() -> None:
    state = released("answers", answers=5)
    model = loaded(state, final_norm=False)
    x = torch.cat([patches_of(state, images()), words_of(state, text())], 1)
    theirs = plain(state, x, [IMAGE] * 10 + [TEXT] * 6, everyone(text(), 10))
    fused = model.fuse(model.embed_text(text()), model.embed_image(images()))
    close(fused.image.hidden, theirs[:, :10])
    close(fused.text.hidden[text().mask], theirs[:, 10:][text().mask])
    close(fused.pooled, torch.tanh(linear(state, "pooler.dense", norm(state, "pooler.norm", theirs[:, 0]))))


def test_statements_about_two_pictures() -> None:
    state = released("pairs")
    model = BEiT3(DATA_SPEC, **TINY, pooled="both").double().eval()
    statements = Classification(model, DATA_SPEC, images=2, classes=2).double()
    made = model.adapt(state, [])
    model.load_state_dict({name: made[name] for name in model.state_dict()})
    prefix = "objectives.classification."
    of_head = {name.removeprefix(prefix): value for name, value in made.items() if name.startswith(prefix)}
    statements.load_state_dict(of_head, strict=False)
    assert set(of_head) == {f"head.{name}" for name in statements.head.state_dict()}
    pictures, words = patches_of(state, images()), words_of(state, text())
    rows = torch.tensor([[0, 1], [1, 2], [2, 0]])  # the two pictures of each statement
    seen = [
        plain(state, torch.cat([pictures[row], words], 1), [IMAGE] * 10 + [TEXT] * 6, everyone(text(), 10))
        for row in rows.T
    ]
    vectors = torch.cat([vector for x in seen for vector in (x[:, 0], x[:, 10])], 1)
    inner = linear(state, "head.dense1", norm(state, "head.norm1", vectors))
    theirs = linear(state, "head.dense2", F.gelu(norm(state, "head.norm2", inner)))
    order = torch.arange(3)
    batch = Batch({"clean": View(text(), images(), order, rows)}, {}, ["0", "1", "2"], order.clone())
    close(statements.logits(ForwardPasses(model, batch, training=False)), theirs)


def test_answers_to_questions() -> None:
    state = released("answers", answers=5)
    data_spec = replace(DATA_SPEC, answers=("a", "b", "c", "d", "e"))
    model = loaded(state, final_norm=False)
    answers = Answering(model, data_spec).double()
    made, prefix = model.adapt(state, []), "objectives.answering."
    answers.load_state_dict(
        {name.removeprefix(prefix): value for name, value in made.items() if name.startswith(prefix)}, strict=False
    )
    x = torch.cat([patches_of(state, images()), words_of(state, text())], 1)
    theirs = plain(state, x, [IMAGE] * 10 + [TEXT] * 6, everyone(text(), 10))
    pooled = torch.tanh(linear(state, "pooler.dense", norm(state, "pooler.norm", theirs[:, 0])))
    inner = F.gelu(norm(state, "head.1", linear(state, "head.0", pooled)))
    fused = model.fuse(model.embed_text(text()), model.embed_image(images()))
    close(answers.head(fused.pooled), linear(state, "head.3", inner))


def test_sequence_to_sequence_words_and_their_scores() -> None:
    state = released("captions")
    model = loaded(state, captions=True)
    x = torch.cat([patches_of(state, images()), words_of(state, text())], 1)
    later = torch.cat([torch.ones(16, 10), torch.ones(16, 6).tril(-10)], 1).bool()
    later[:10, 10:] = False
    theirs = plain(state, x, [IMAGE] * 10 + [TEXT] * 6, everyone(text(), 10) & later)
    spoken = replace(text(), causal=torch.ones(3, dtype=torch.bool))
    fused = model.fuse(model.embed_text(spoken), model.embed_image(images()))
    close(fused.image.hidden, theirs[:, :10])
    found = model.word_scores(fused.text.hidden)[text().mask]
    close(found, linear(state, "mlm_head", theirs[:, 10:])[text().mask])


def test_rows_of_both_kinds_in_one_batch() -> None:
    model = loaded(released("captions"), captions=True)
    mixed = replace(text(), causal=torch.tensor([True, False, True]))
    together = model.fuse(model.embed_text(mixed), model.embed_image(images())).text.hidden
    for row, causal in enumerate((True, False, True)):
        alone = replace(text(), causal=torch.full((3,), causal))
        apart = model.fuse(model.embed_text(alone), model.embed_image(images())).text.hidden
        real = text().mask[row]
        close(together[row][real], apart[row][real])


@pytest.mark.parametrize("asked", [Generation(beams=3, max_length=5), Generation("greedy", max_length=5)])
def test_captions_with_a_cache_are_those_without(asked: Generation) -> None:
    model = loaded(released("captions"), captions=True)
    seen = model.embed_image(images())
    with torch.no_grad():
        cached, anew = generate(model, seen, asked), generate(Recomputed(model), seen, asked)
    assert torch.equal(cached.ids, anew.ids)
    close(cached.scores, anew.scores)


def test_captions_go_on_from_given_words() -> None:
    model = loaded(released("captions"), captions=True)
    begun = text().map(lambda tensor: tensor[:, :3])
    begun = replace(begun, ids=begun.ids.clone(), special=torch.tensor([[True, False, False]] * 3))
    begun.ids[2, 2] = 9
    begun.mask = torch.ones_like(begun.mask)
    seen, asked = model.embed_image(images()), Generation("greedy", max_length=3)
    with torch.no_grad():
        cached, anew = (generate(way, seen, asked, text=begun) for way in (model, Recomputed(model)))
    assert torch.equal(cached.ids, anew.ids)
    close(cached.scores, anew.scores)


def test_each_modality_has_all_weights_of_its_own() -> None:
    model = BEiT3(DATA_SPEC, **TINY).double()
    model.encode_text(text()).hidden.sum().backward()
    of_words = {name for name, value in model.stack.named_parameters() if value.grad is not None}
    model.zero_grad(set_to_none=True)
    model.encode_image(images()).hidden.sum().backward()
    of_pictures = {name for name, value in model.stack.named_parameters() if value.grad is not None}
    assert not of_words & of_pictures
    assert of_words | of_pictures == {name for name, _ in model.stack.named_parameters()}


def test_positions_are_cut_and_interpolated() -> None:
    state = released("retrieval")
    short = DataSpec(vocab_size=37, text_length=4)
    model, report = BEiT3(short, **{**TINY, "image_size": 80}).double(), []
    made = model.adapt({f"module.{name}": value for name, value in state.items()}, report)
    assert torch.equal(made["word_positions.table.weight"], state["beit3.encoder.embed_positions.B.weight"][2:6])
    assert made["cell_positions.table.weight"].shape == (26, DIM)
    assert torch.equal(made["cell_positions.table.weight"][0], state["beit3.encoder.embed_positions.A.weight"][2])
    assert any("3x3 places interpolated to 5x5" in line for line in report)
    assert any("rows 2 to 5 of 1024" in line for line in report)


def test_rows_behind_the_last_word_are_left_out() -> None:
    state, report = released("captions", words=40), []
    made = BEiT3(DATA_SPEC, **TINY, captions=True).adapt(state, report)
    assert torch.equal(made["words.weight"], state["beit3.text_embed.weight"][:37])
    assert torch.equal(made["word_head.bias"], state["mlm_head.bias"][:37])
    assert sum("rows 37 to 39" in line for line in report) == 3
    other = released("captions", words=60)  # another vocabulary: left for the loader to refuse
    assert len(BEiT3(DATA_SPEC, **TINY).adapt(other, [])["words.weight"]) == 60


def test_own_weights_pass_as_they_are() -> None:
    one = BEiT3(DATA_SPEC, **TINY)
    state, report = dict(one.state_dict()), []
    made = one.adapt(state, report)
    assert list(made) == list(state)
    assert all(made[name] is value for name, value in state.items())
    assert report == []


def test_an_encoding_of_zeros_changes_nothing_and_learns() -> None:
    state = released("retrieval")
    usual, equipped = loaded(state), BEiT3(DATA_SPEC, **TINY, position={"name": "irpe", "ratio": 9}).double().eval()
    equipped.load_state_dict(equipped.adapt(state, []), strict=False)
    equipped.pooler.load_state_dict(usual.pooler.state_dict())
    assert equipped.stack.position is not None
    for value in equipped.stack.position.parameters():
        torch.nn.init.zeros_(value)
    pairs = [model.fuse(model.embed_text(text()), model.embed_image(images())) for model in (usual, equipped)]
    close(pairs[1].image.hidden, pairs[0].image.hidden)
    pairs[1].pooled.sum().backward()
    assert all(bool((value.grad != 0).any()) for value in equipped.stack.position.parameters())


def test_recorded_attention_and_kept_layers() -> None:
    model, record = loaded(released("retrieval")), Recorder()
    model.output_hidden_states = (0, 2)
    fused = model.fuse(model.embed_text(text()), model.embed_image(images()), record)
    assert set(record.attention) == {f"fuse.{number}" for number in range(LAYERS)}
    assert record.attention["fuse.0"].shape == (3, HEADS, 16, 16)
    assert set(fused.text.layers) == {0, 2}
    close(fused.text.layers[0], model.embed_text(text()).hidden)


def test_what_cannot_be_read_is_refused() -> None:
    model = BEiT3(DATA_SPEC, **TINY)
    with pytest.raises(DataError, match="no"):
        model.embed_image(Images(["0"]))
    with pytest.raises(DataError, match="another size"):
        BEiT3(DATA_SPEC, **{**TINY, "image_size": 32}).embed_image(images())
    with pytest.raises(ComponentError, match="no multiple"):
        BEiT3(DATA_SPEC, **{**TINY, "image_size": 50})
    with pytest.raises(ComponentError, match="captions: true"):
        model.word_scores(torch.zeros(1, DIM))
    assert "generate" not in model.capabilities


def test_depth_for_layer_wise_decay() -> None:
    model = BEiT3(DATA_SPEC, **TINY, captions=True)
    depths = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert depths["words.weight"] == depths["cls_token"] == 0
    assert depths["stack.layers.0.norm.text.weight"] == 1
    assert depths["stack.norm.image.bias"] == depths["word_head.weight"] == LAYERS + 1


def test_texts_of_several_lengths_do_not_go_on_together() -> None:
    model = loaded(released("captions"), captions=True)
    begun = text().map(lambda tensor: tensor[:, :3].clone())
    begun.mask = torch.tensor([[True, True, False], [True, True, True], [True, True, True]])
    begun.special = torch.tensor([[True, False, False]] * 3)
    with pytest.raises(DataError, match=r"lengths \[1, 2\]"):
        model.start(model.embed_image(images()), begun)
