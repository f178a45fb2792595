"""Writes random weights in the layouts of published files, at the width of a rehearsal."""

from collections.abc import Callable
from pathlib import Path, PurePosixPath

import torch
from torch import Tensor

from vlcli.checkpoints.load import every
from vlcli.engine.weights import save_tensors
from vlcli.errors import UsageError
from vlcli.tools.reduction import WIDTH, side

State = dict[str, Tensor]
SAME = {
    "unilm.bin": "unilm1-base-cased.bin",
    "vlp.bin": "cc_g8_lr1e-4_batch512_s0.75_b0.25.tar.gz",
    "vlp-detector.safetensors": "e2e_faster_rcnn_X-101-64x4d-FPN_2x-vlp.pkl",
}
"""Published files under the names that the recipes have for them."""
NARROW = {"hidden": WIDTH, "inner": 4 * WIDTH, "queue": 64, "side": 4, "cells": 16}
NARROW_DETECTOR = {"stem": 8, "width": 16, "inner": 16, "pyramid": 16}
"""Sizes of layouts that a rehearsal reduces."""


def write_released(name: str, path: Path, words: int) -> None:
    """Writes weights to ``path``: a file, or a folder as the Hugging Face hub has it.

    Args:
        name: of a recipe: a published file, or a repository of the hub.
        words: size of the vocabulary.

    Raises:
        UsageError: nothing is known of its layout.
    """
    state = _state(name, words)
    if path.suffix == ".safetensors" or not path.suffix or ("/" in name and path.suffix not in (".bin", ".pth", ".pt")):
        file = path if path.suffix == ".safetensors" else path / "model.safetensors"
        file.parent.mkdir(parents=True, exist_ok=True)
        save_tensors(file, state)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(state, path)


def _state(name: str, words: int) -> State:
    last = PurePosixPath(name).name
    known = {one.name: one for one in every()}
    checkpoint = known.get(name) or known.get(SAME.get(last, last))
    torch.manual_seed(0)
    if checkpoint is not None:
        tensors = checkpoint.sized(**(NARROW_DETECTOR if checkpoint.layout.extractor else NARROW), words=words)
        return {key: _random(one.shape, getattr(torch, one.dtype), key) for key, one in tensors.items()}
    build = next((build for part, build in _OTHERS.items() if part in name), None)
    if build is None:
        raise UsageError(
            "Weights whose layout is not known cannot be rehearsed.",
            got=name,
            expected="a file of `vlcli ls checkpoints`, or " + ", ".join(_OTHERS),
            hint="rehearse without them: leave the word out of `from`",
        )
    return build(words)


def _random(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tensor:
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)
    variance = name.endswith(("running_var", "bn_s"))  # and other factors of normalisations
    return torch.ones(shape, dtype=dtype) if variance else torch.randn(shape).mul_(0.02).to(dtype)


def _bert(words: int) -> State:
    from transformers import BertConfig, BertForPreTraining

    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH}
    return BertForPreTraining(BertConfig(vocab_size=words, **sizes)).state_dict()


def _vit(_: int) -> State:
    from transformers import ViTConfig, ViTModel

    return ViTModel(ViTConfig(image_size=side(224), hidden_size=WIDTH, intermediate_size=4 * WIDTH)).state_dict()


def _deit(_: int) -> State:
    import timm

    return dict(timm.create_model("deit_base_patch16_224", embed_dim=WIDTH, img_size=side(224)).state_dict())


def _resnet(_: int) -> State:
    import torchvision

    return dict(torchvision.models.resnet50().state_dict())


def _fc7(_: int) -> State:
    return {"fc7.weight": torch.randn(2048, 2048) * 0.02, "fc7.bias": torch.zeros(2048)}


_OTHERS: dict[str, Callable[[int], State]] = {
    "bert-base": _bert,
    "vit-base": _vit,
    "deit_base": _deit,
    "resnet50": _resnet,
    "fc7": _fc7,
}
"""Makers of weights that no layout describes, by a part of their name."""
