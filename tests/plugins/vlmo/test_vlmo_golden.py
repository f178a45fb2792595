"""The model against numbers of the released code (reference/vlmo_golden.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from vlcli_vlmo import VLMo

from tests.plugins.vlmo.golden import DATA_SPEC, TINY, fill, images, text, value
from vlcli.nn import Layout


@pytest.fixture(scope="module")
def golden(shared: Path) -> Any:
    return np.load(shared / "reference" / "vlmo_golden.npz")


@pytest.fixture(scope="module")
def model() -> VLMo:
    return fill(VLMo(DATA_SPEC, **TINY)).eval()


def close(ours: Tensor, theirs: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(ours.detach().numpy(), theirs, rtol=tolerance, atol=tolerance)


def test_rows_of_the_table(golden: Any, model: VLMo) -> None:
    words = Layout.for_text(torch.ones(1, 6, dtype=torch.bool))
    grid = Layout.for_grid(3, 3, skip=1)
    bias = model.stack.position
    pairs = {"relative": grid, "text_relative": words, "text_imag_relative": words + grid}
    for name, layout in pairs.items():
        key = f"vlmo/rel/{name}_position_index"
        np.testing.assert_array_equal(bias.rows(layout, layout)[0].numpy(), golden[key])


def test_embeddings(golden: Any, model: VLMo) -> None:
    close(model.embed_text(text()).hidden, golden["vlmo/rel/text_embeddings"])
    close(model.embed_image(images()).hidden, golden["vlmo/rel/visual_embed"])


@pytest.mark.parametrize("packed", [False, True])
def test_a_pair(golden: Any, model: VLMo, packed: bool) -> None:
    model.stack.packed, model.output_hidden_states = packed, (1, 2, 3)
    try:
        fused = model.fuse(model.embed_text(text()), model.embed_image(images()))
    finally:
        model.stack.packed, model.output_hidden_states = False, ()
    real = torch.cat([text().mask, torch.ones(3, 10, dtype=torch.bool)], 1)
    for number in (1, 2, 3):
        close(fused.text.layers[number][real], golden[f"vlmo/rel/infer/block{number - 1}"][real.numpy()])
    close(fused.text.hidden[text().mask], golden["vlmo/rel/infer/text_feats"][text().mask.numpy()])
    close(fused.image.hidden, golden["vlmo/rel/infer/image_feats"])
    close(fused.pooled, golden["vlmo/rel/infer/cls_feats"])
    close(fused.text.hidden[:, 0], golden["vlmo/rel/infer/raw_cls_feats"])


@pytest.mark.parametrize("rows", ["text", "pooled"])
@pytest.mark.parametrize("packed", [False, True])
def test_a_pair_of_which_less_is_finished(golden: Any, model: VLMo, rows: Any, packed: bool) -> None:
    model.stack.packed = packed
    try:
        fused = model.fuse(model.embed_text(text()), model.embed_image(images()), rows=rows)
    finally:
        model.stack.packed = False
    close(fused.pooled, golden["vlmo/rel/infer/cls_feats"])
    if rows == "text":
        close(fused.text.hidden[text().mask], golden["vlmo/rel/infer/text_feats"][text().mask.numpy()])
    assert fused.image.hidden.shape[1] == 0


def test_texts_and_images_alone(golden: Any, model: VLMo) -> None:
    for kind, states in (("text", model.encode_text(text())), ("image", model.encode_image(images()))):
        close(states.hidden, golden[f"vlmo/rel/infer_{kind}/{kind}_feats"])
        for path, vector in (("", states.pooled), ("vl_", states.extra["fused"])):
            weight = value(f"itc_{path}{kind}_proj.fc.weight", (24, 24))
            found = torch.nn.functional.normalize(vector @ weight.T, dim=-1)
            close(found, golden[f"vlmo/rel/infer_{kind}/cls_{'vlffn_' if path else ''}feats"])
        close(
            getattr(model, f"encode_{kind}")(text() if kind == "text" else images(), rows="pooled").pooled,
            states.pooled.detach(),
        )


def test_text_may_be_shorter_than_the_longest(model: VLMo) -> None:
    """The split between words and patches follows the layout: cutting common padding changes nothing."""
    whole, cut = text(), text()
    rows = torch.tensor([0, 2])
    whole = whole.select(rows)
    cut = whole.map(lambda tensor: tensor[:, :5])
    picture = model.embed_image(images()).select(rows)
    close(
        model.fuse(model.embed_text(cut), picture).pooled, model.fuse(model.embed_text(whole), picture).pooled.detach()
    )


@pytest.mark.parametrize("side", [5])
def test_the_table_at_another_resolution(golden: Any, side: int) -> None:
    model = VLMo(DATA_SPEC, **{**TINY, "image_size": 16 * side})
    report: list[str] = []
    name = "relative_position_bias_table"
    made = model.adapt({name: value(name, (46, 12))}, report)["stack.position.table"]
    close(made, golden[f"vlmo/interp/rel_table_3to{side}"])
    assert any("3x3 places interpolated" in line for line in report)


def test_parameters_of_the_tiny_model(golden: Any, model: VLMo) -> None:
    heads = 24 * 24 + 24 + 48 + 37 * 24 + 37 + 2 * 24 + 2 + 4 * 24 * 24 + 2
    assert sum(p.numel() for p in model.parameters()) + heads == int(golden["vlmo/rel/param_count"])
