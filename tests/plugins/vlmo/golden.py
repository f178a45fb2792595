"""The value generator of the golden arrays, and the tiny VLMo they were computed with."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import torch
from vlcli_vlmo import VLMo

from vlcli.nn import DataSpec, Images, Pixels, Text

DATA_SPEC = DataSpec(vocab_size=37, pad_id=0, cls_id=2, sep_id=3, mask_id=4, unk_id=1, text_length=6)
TINY: dict[str, Any] = {
    "hidden": 24, "layers": 3, "heads": 4, "fused_layers": 1, "image_size": 48, "patch": 16, "length": 8,
    "drop_path": 0.0, "packed": False,
}  # fmt: skip
IDS = [[2, 5, 9, 14, 3, 0], [2, 30, 31, 7, 12, 3], [2, 8, 3, 0, 0, 0]]


def uniform(key: str, shape: tuple[int, ...]) -> torch.Tensor:
    """Numbers in [-1, 1) that follow from the key alone."""
    index = np.arange(int(np.prod(shape, dtype=np.int64)), dtype=np.uint64)
    drawn = (index * np.uint64(2654435761) + np.uint64(zlib.crc32(key.encode()))) % np.uint64(2**32)
    return torch.from_numpy(2 * (drawn.astype(np.float64) / 2**32) - 1).reshape(shape)


def value(key: str, shape: tuple[int, ...]) -> torch.Tensor:
    """The value of a released name."""
    parts = key.split(".")
    leaf, parent = parts[-1], parts[-2] if len(parts) > 1 else ""
    drawn = uniform(key, shape)
    if key in ("logit_scale", "logit_vl_scale"):
        return torch.tensor(2.0 if key == "logit_scale" else 1.5, dtype=torch.float64)
    if leaf == "weight" and "norm" in parent.lower():
        return 1 + 0.1 * drawn
    if leaf in ("gamma_1", "gamma_2"):
        return 0.5 + 0.1 * drawn
    if ("embeddings" in parent and leaf == "weight") or leaf in (
        "pos_embed",
        "cls_token",
        "relative_position_bias_table",
    ):
        return 0.5 * drawn
    if len(shape) >= 2:
        return drawn / np.sqrt(np.prod(shape[1:]))
    return 0.1 * drawn


def fill(model: VLMo, **shapes: tuple[int, ...]) -> VLMo:
    """Give ``model`` the golden weights, through its own loading of released names."""
    from vlcli_vlmo.weights import to_released

    model.double()
    theirs = {
        name: value(name, tuple(t.shape))
        for name, t in to_released(model.state_dict()).items()
        if t.is_floating_point()
    }
    adapted = model.adapt(theirs, [])
    missing, unexpected = model.load_state_dict(adapted, strict=False)
    assert not missing, missing
    assert not unexpected, unexpected
    return model


def text() -> Text:
    ids = torch.tensor(IDS)
    mask = ids != 0
    special = (ids == 2) | (ids == 3)
    words = torch.arange(6).expand(3, 6).masked_fill(special | ~mask, -1)
    return Text(ids, mask, special, words, keys=["0", "1", "2"], raw=["", "", ""])


def images(key: str = "input.image_0", count: int = 3) -> Images:
    pixels = uniform(key, (count, 3, 48, 48))
    return Images([str(i) for i in range(count)], pixels=Pixels(pixels, torch.full((count, 2), 48)))
