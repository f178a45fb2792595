"""transformers' LXMERT, equipped with ACE-RPE or disentangled attention, computes what ours does with them."""

from __future__ import annotations

import pytest
import torch
import transformers
from tiny_batches import SMALL, make_batch

from tests.plugins.lxmert.test_lxmert_weights import streams
from vlcli.foreign import equip
from vlcli.nn import DataSpec, ForwardPasses, Text, build_model

SIZES = {"hidden": 24, "heads": 4, "intermediate": 40, "text_layers": 1, "image_layers": 1, "cross_layers": 2}
CROSS = "encoder.x_layers.*.visual_attention.att"


def port(data_spec: DataSpec):
    config = transformers.LxmertConfig(
        vocab_size=data_spec.vocab_size, hidden_size=24, num_attention_heads=4, intermediate_size=40, l_layers=1,
        r_layers=1, x_layers=2, visual_feat_dim=data_spec.region_dim,
    )  # fmt: skip
    return transformers.LxmertModel(config)


def specials(text: Text) -> tuple[int, ...]:
    """The ids of the words that our layout has no place for."""
    return tuple(text.ids[text.special].unique().tolist())


@pytest.mark.parametrize(
    ("option", "spec"),
    [
        ("cross_position", {"name": "ace-rpe", "groups": 4}),
        ("cross_position", {"name": "ace-rpe", "groups": 4, "mode": "bias"}),
        ("cross_attention", {"name": "disentangled", "sets": [0, 1, 0, 0]}),
    ],
)
def test_equipped_as_ours_is(option, spec):
    torch.manual_seed(0)
    batch = make_batch(SMALL, rows=3)
    text = batch.clean.text
    theirs = equip(port(SMALL), spec, stack=CROSS, special_ids=specials(text)).eval()
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    ours = build_model({"name": "lxmert", **SIZES, option: spec}, SMALL).eval()
    ours.load_state_dict(ours.adapt(renamed(theirs.state_dict()), []))
    wanted = streams(theirs, batch)
    with torch.no_grad():
        fused = ForwardPasses(ours, batch).fused()
    torch.testing.assert_close(fused.pooled, wanted.pooled_output, atol=1e-5, rtol=1e-5)


def renamed(state):
    """What ``equip`` added, under our names."""
    names = {"relative_position.": "cross.position."}
    for layer in range(2):
        for part in ("query", "key", "value"):
            old = f"encoder.x_layers.{layer}.visual_attention.att.{part}.others.0."
            names[old] = f"cross.layers.{layer}.cross.attention.others.0.{part}."
    made = {}
    for key, value in state.items():
        old = next((one for one in names if key.startswith(one)), "")
        made[names.get(old, "") + key[len(old) :]] = value
    return made
