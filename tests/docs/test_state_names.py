"""The table of docs/seams.md with the names inside state dicts, and tensors in memory that are loaded by them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch
import transformers

import vlcli
from vlcli.errors import DataError
from vlcli.nn import (
    AttentionBlock,
    AttentionShape,
    BlockStyle,
    DataSpec,
    FeatureEmbeddings,
    FeedForward,
    Pooler,
    Residual,
    Slot,
    Stack,
    StandardAttention,
    TextEmbeddings,
    TransformerLayer,
    build_positions,
)

from .pages import PROJECT, blocks

SHAPE = AttentionShape(16, 2)
TABLE = (PROJECT / "docs" / "seams.md").read_text().partition("| part | names |")[2].partition("\n\n")[0]
PARTS = {
    "TextEmbeddings": TextEmbeddings(DataSpec(vocab_size=9), 16, []),
    "FeatureEmbeddings": FeatureEmbeddings(8, 16, []),
    "Stack": Stack.of(2, SHAPE, style=BlockStyle("pre")),
    "TransformerLayer": TransformerLayer(SHAPE, 32),
    "AttentionBlock": AttentionBlock(SHAPE),
    "StandardAttention": StandardAttention(SHAPE),
    "Residual": Residual(16, BlockStyle()),
    "FeedForward": FeedForward(16, 32),
    "Pooler": Pooler(16),
}


def names_of(part: str) -> set[str]:
    """The names that the table gives, those of the parts inside it spelt out."""
    cell = dict(re.findall(r"^\| `(\w+)` \| (.+) \|$", TABLE, re.M))[part]
    named = set()
    for name, inner in re.findall(r"`([\w.]+)`(?: `(\w+)`)?", cell.replace("`norm=", "")):
        named |= {name + below for below in names_of(inner)} if inner else {name}
    return {name for name in named if not name.endswith(".")}


@pytest.mark.parametrize("part", list(PARTS))
def test_the_table_has_the_names_of_a_part(part):
    assert names_of(part) == {re.sub(r"\b\d+\b", "N", name) for name in PARTS[part].state_dict()}


def test_the_table_has_the_names_of_encodings():
    words = build_positions("learned", SHAPE, Slot.of("text", ["tokens"], ["word"]))[0]
    boxes = build_positions("box", SHAPE, Slot.of("image", ["tokens"], ["box"]))[0]
    pairs = build_positions("shaw", SHAPE, Slot.of("pairs", ["pairs"], ["box"]))[1]
    assert "positions.0.table.weight" in TextEmbeddings(DataSpec(vocab_size=9), 16, words).state_dict()
    assert "positions.0.project.weight" in FeatureEmbeddings(8, 16, boxes).state_dict()
    assert any(name.startswith("position.") for name in Stack.of(1, SHAPE, position=pairs).state_dict())


@pytest.fixture
def pair():
    """A small ViLT, and transformers' with other weights."""
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1, "image_size": 32, "patch_size": 16}
    theirs = transformers.ViltModel(transformers.ViltConfig(**sizes, intermediate_size=64, vocab_size=40))
    spec = replace(DataSpec(), vocab_size=40)
    return vlcli.model("vilt", hidden=16, heads=2, layers=1, image_size=32, patch=16, data_spec=spec), theirs


def test_the_lines_of_the_page_load_weights_in_memory():
    scope: dict[str, object] = {}
    exec(
        next(block for block in blocks((PROJECT / "docs/python.md").read_text(), "python") if "theirs" in block), scope
    )
    loaded, wanted = scope["network"].state_dict(), scope["theirs"].state_dict()
    assert torch.equal(loaded["types.weight"], wanted["embeddings.token_type_embeddings.weight"])
    assert "had the names of transformers' ViLT" in str(scope["report"])


@pytest.mark.parametrize("wrap", ["plain", "module.", "model.", "net.inner.", "nested"])
def test_wrappers_around_a_state_dict_are_taken_off(pair, wrap):
    ours, theirs = pair
    state = theirs.state_dict()
    if wrap == "nested":
        state = {"epoch": 3, "optimizer": {"state": {"x": torch.ones(1)}}, "model": {"state_dict": state}}
    elif wrap != "plain":
        state = {wrap + name: value for name, value in state.items()}
    report = vlcli.load_state_dict(ours, state)
    assert len(report.matched) == len(ours.state_dict())
    assert torch.equal(ours.state_dict()["cls_token"], theirs.state_dict()["embeddings.cls_token"])


@pytest.mark.parametrize("names", [{"odd.": ""}, lambda name: name.removeprefix("odd.")])
def test_names_are_a_map_of_beginnings_or_a_function(pair, names):
    ours, _ = pair
    state = {f"odd.{name}": value + 1 for name, value in ours.state_dict().items()}
    assert not vlcli.load_state_dict(ours, state, names=names).left_over
    assert all(torch.equal(value, state[f"odd.{name}"]) for name, value in ours.state_dict().items())


def test_one_of_several_state_dicts_is_chosen(pair):
    ours, _ = pair
    state = ours.state_dict()
    both = {"model": state, "model_ema": {name: value + 1 for name, value in state.items()}}
    before = state["cls_token"].clone()
    vlcli.load_state_dict(ours, both, key="model")
    assert torch.equal(ours.state_dict()["cls_token"], before)
    assert "model_ema is read, not model" in str(vlcli.load_state_dict(ours, both))
    assert torch.equal(ours.state_dict()["cls_token"], before + 1)


def faults(state):
    first = next(iter(state))
    return {
        "nothing": ({}, {}, "weights of the model are not"),
        "one missing": ({n: v for n, v in state.items() if n != first}, {}, f"1 weights of the model.*\n.*\n.*{first}"),
        "cut": ({n: v[:1] for n, v in state.items()}, {}, "weights of the model are not"),
        "a number": ({3: torch.ones(3)}, {}, "the weights have no names"),
        "no such prefix": (state, {"names": {"zz.": ""}}, "No weight has a name that begins so"),
        "no such key": ({"model": state}, {"key": "ema"}, "the checkpoint has no such state dict"),
    }


@pytest.mark.parametrize("fault", list(faults({"x": torch.ones(1)})))
def test_a_state_dict_that_does_not_fit_changes_nothing(pair, fault):
    ours, _ = pair
    before = {name: value.clone() for name, value in ours.state_dict().items()}
    state, options, said = faults({name: value + 1 for name, value in before.items()})[fault]
    with pytest.raises(DataError, match=said):
        vlcli.load_state_dict(ours, state, **options)
    assert all(torch.equal(value, before[name]) for name, value in ours.state_dict().items())


def test_new_weights_may_be_allowed(pair):
    ours, _ = pair
    state = {name: value for name, value in ours.state_dict().items() if not name.startswith("pooler.")}
    report = vlcli.load_state_dict(ours, state, allow_unmatched=["^model[.]pooler"])
    assert sorted(report.new) == ["model.pooler.dense.bias", "model.pooler.dense.weight"]
