"""Writes random weights in the layouts of published files, at the width of a rehearsal."""

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
    return _other(name, words)


def _random(shape: tuple[int, ...], dtype: torch.dtype, name: str) -> Tensor:
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)
    variance = name.endswith(("running_var", "bn_s"))  # and other factors of normalisations
    return torch.ones(shape, dtype=dtype) if variance else torch.randn(shape).mul_(0.02).to(dtype)


def _other(name: str, words: int) -> State:
    # weights that no registered layout describes
    sizes = {"hidden_size": WIDTH, "intermediate_size": 4 * WIDTH}
    if "fc7" in name:
        return {"fc7.weight": torch.randn(2048, 2048) * 0.02, "fc7.bias": torch.zeros(2048)}
    if "resnet50" in name or "vgg16" in name:
        from torchvision import models

        return dict((models.vgg16() if "vgg16" in name else models.resnet50()).state_dict())
    if "deit_base" in name:
        import timm

        return dict(timm.create_model("deit_base_patch16_224", embed_dim=WIDTH, img_size=side(224)).state_dict())
    import transformers

    if "bert-base" in name:
        config = transformers.BertConfig(vocab_size=words, **sizes)
        return dict(transformers.BertForPreTraining(config).state_dict())
    if "vit-base" in name:
        return dict(transformers.ViTModel(transformers.ViTConfig(image_size=side(224), **sizes)).state_dict())
    raise UsageError(
        "Weights whose layout is not known cannot be rehearsed.",
        got=name,
        expected="a file of `vlcli ls checkpoints`, or BERT-base, ViT-base, DeiT-base, ResNet-50, VGG-16 or fc7",
        hint="rehearse without them: leave the word out of `from`",
    )
