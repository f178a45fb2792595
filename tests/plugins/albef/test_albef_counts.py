"""What ALBEF's and ACE-RPE's models cost, against sums by hand and the papers' numbers."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from vlcli.engine.training_module import build_training_module
from vlcli.nn import DataSpec
from vlcli.nn.count import count_model

WIDTH, WORDS = 768, 30
LAYER = 12 * WIDTH**2 + 13 * WIDTH
CROSSING = 4 * (WIDTH**2 + WIDTH) + 2 * WIDTH
EMBEDDINGS = (30522 + 512 + 2 + 2) * WIDTH
OBJECTIVES = [{"name": "distilled-mlm"}, {"name": "momentum-contrast", "queue": 4}, {"name": "contrast-matching"}]


def counted(**spec: Any) -> dict[str, Any]:
    data_spec = DataSpec(text_length=WORDS)
    with torch.device("meta"):
        module = build_training_module({"name": "albef", **spec}, OBJECTIVES, data_spec)
    return count_model(module.model, objectives=dict(module.objectives.items()))


def test_albef_s_own_is_as_large_as_published() -> None:
    parts = counted(as_albef=True)["parts"]
    image = sum(parts[name] for name in ("cls_token", "patch", "positions", "image"))
    assert image == 85_844_736  # 85.8M
    text = parts["embed"] + parts["text"] + parts["cross"] + parts["objectives.distilled-mlm"]
    assert text == 123_697_722  # 123.7M
    assert parts["objectives.momentum-contrast"] == 2 * (WIDTH * 256 + 256) + 1
    assert parts["objectives.contrast-matching"] == 2 * WIDTH + 2


def test_ace_rpe_s_parts() -> None:
    plain, with_paths = counted(image_size=384), counted(image_size=384, cross_position="ace-rpe")
    parts = with_paths["parts"]
    assert parts["text"] == 6 * LAYER
    assert parts["embed"] == EMBEDDINGS
    assert parts["text"] + parts["embed"] + 256 * WIDTH + 256 == 66_561_280  # the paper's 66.6M
    image = sum(parts[name] for name in ("cls_token", "patch", "positions", "image"))
    assert image + 256 * WIDTH + 256 == 43_760_128  # the paper's 43.8M, at 384 pixels
    added = 6 * 3 * 8 * WIDTH
    assert parts["cross"] == 6 * (LAYER + CROSSING) + added  # the paper says 53.3M, which leaves an output layer out
    assert parts["cross"] - 6 * (WIDTH**2 + WIDTH) == 53_277_696
    assert with_paths["total"] - plain["total"] == added


@pytest.mark.parametrize(("size", "patches"), [(256, 256), (384, 576)])
def test_multiply_accumulates(size: int, patches: int) -> None:
    def layer(tokens: int) -> int:
        return 12 * WIDTH**2 * tokens + 2 * tokens**2 * WIDTH

    found = counted(image_size=size)["macs"]
    seen = patches + 1
    assert found["image"] == 6 * layer(seen) + patches * WIDTH * 3 * 16 * 16
    assert found["text"] == 6 * layer(WORDS)
    crossing = 2 * WIDTH**2 * (WORDS + seen) + 2 * WORDS * seen * WIDTH
    assert found["fuse"] == 6 * (layer(WORDS) + crossing)


def test_a_decoder_is_counted_for_one_word() -> None:
    data_spec = DataSpec(text_length=WORDS)
    with torch.device("meta"):
        module = build_training_module(
            {"name": "albef", "decoder_layers": 6}, [{"name": "answer-generation"}], data_spec
        )
    found = count_model(module.model)
    assert found["parts"]["decoder"] == 6 * (LAYER + CROSSING) + EMBEDDINGS + WIDTH**2 + 3 * WIDTH + 30522
    word = 6 * (12 * WIDTH**2 + 2 * WIDTH + 2 * WIDTH**2 * (1 + WORDS) + 2 * WORDS * WIDTH)
    assert found["macs"]["decode"] == word + WIDTH**2 + WIDTH * 30522
