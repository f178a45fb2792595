"""Counts parameters per part, and multiply-accumulates of one example.

Shared parameters are counted once, frozen ones too. Multiply-accumulates are those of convolutions, linear layers and
the two attention products, not of norms, activations, biases and softmax. A head is counted for one prediction (word,
region, answer), a decoder for one word. Momentum copies are not counted.
"""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from vlcli.nn.fake import fake_images, fake_text
from vlcli.nn.model import DataSpec, InputSpec, Model


def count_model(
    model: Model,
    needs: InputSpec | None = None,
    data_spec: DataSpec | None = None,
    objectives: Mapping[str, nn.Module] | None = None,
    images: int = 1,
) -> dict[str, Any]:
    """Count parameters and multiply-accumulates.

    Args:
        needs: the model's ``input_spec()`` by default.
        data_spec: lengths and sizes; the model's by default.
        images: pictures per example (two for NLVR2).

    Returns:
        ``parts``: parameters by part, ``objectives.NAME`` among them; ``backbone``: of the model; ``encoder``: of the
        model without ``readouts``; ``total``; ``macs``: by pass (``text``, ``image``, ``fuse``), head and ``total``.
    """
    heads = objectives or {}
    parts, seen = _parts(model), {id(parameter) for parameter in model.parameters()}
    backbone = sum(parts.values())
    encoder = backbone - sum(parts.get(name, 0) for name in model.readouts)
    parts |= {f"objectives.{name}": _fresh(head, seen) for name, head in heads.items()}
    macs = model_macs(model, needs or model.input_spec(), data_spec or model.data_spec, images)
    macs |= {f"objectives.{name}": head_macs(head) for name, head in heads.items()}
    macs["total"] = sum(macs.values())
    return {"parts": parts, "encoder": encoder, "backbone": backbone, "total": sum(parts.values()), "macs": macs}


def model_macs(model: Model, needs: InputSpec, data_spec: DataSpec, images: int = 1) -> dict[str, int]:
    """Count multiply-accumulates of one example: a sentence of full length and its pictures.

    ``text`` and ``image`` are the encoders, or the embeddings if the model fuses these.
    """
    light = copy.deepcopy(model).to("meta").eval()
    light.requires_grad_(False)  # torch's counter fails on views of parameters that want gradients
    try:
        return _passes(light, needs, data_spec, images, "meta")
    except RuntimeError as error:  # NotImplementedError is one
        if "meta" not in str(error):  # a fault of the model
            raise
    # Shapes depend on values, e.g. a row for each real box.
    real = light.to_empty(device="cpu")
    for tensor in [*real.parameters(), *real.buffers()]:
        tensor.zero_()
    return _passes(real, needs, data_spec, images, "cpu")


def head_macs(head: nn.Module) -> int:
    """Count multiply-accumulates of one use of every linear layer in ``head``, tied decoders included."""
    modules: dict[Any, None] = dict.fromkeys(_without_copies(head))
    linear = sum(m.in_features * m.out_features for m in modules if isinstance(m, nn.Linear))
    return int(linear + sum(math.prod(size) for m in modules if isinstance(size := getattr(m, "tied", None), tuple)))


def macs_of(run: Callable[[], Any]) -> tuple[int, Any]:
    """Run a function, and return its multiply-accumulates and its result."""
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        result = run()
    return counter.get_total_flops() // 2, result


def _passes(model: Model, needs: InputSpec, data_spec: DataSpec, images: int, device: str) -> dict[str, int]:
    embeds = model.fuse_takes == "embeddings" and "fuse" in model.capabilities
    macs: dict[str, int] = {}
    text = image = None
    if needs.text:
        sentence = fake_text(data_spec, device=device)
        read = model.embed_text if embeds else model.encode_text
        macs["text"], text = macs_of(lambda: read(sentence))
    if needs.regions or needs.pixels:
        look = model.embed_image if embeds else model.encode_image
        picture = fake_images(needs, data_spec, device=device)
        one, image = macs_of(lambda: look(picture))
        macs["image"] = one * images
    if text is not None and image is not None and "fuse" in model.capabilities:
        one, fused = macs_of(lambda: model.fuse(text, image))
        macs["fuse"] = one * images
        if "decode" in model.capabilities:
            word = fake_text(replace(data_spec, text_length=1), device=device)
            macs["decode"] = macs_of(lambda: model.next_words(model.decode(word, fused.text)))[0]
    if type(model).word_scores is not Model.word_scores:  # a word head of the model's own, asked once
        macs["word"] = macs_of(lambda: model.word_scores(torch.zeros(1, model.dim, device=device)))[0]
    return macs


def _parts(model: nn.Module) -> dict[str, int]:
    parts = {name: parameter.numel() for name, parameter in model.named_parameters(recurse=False)}
    seen = {id(parameter) for parameter in model.parameters(recurse=False)}
    parts |= {name: _fresh(child, seen) for name, child in model.named_children()}
    return {name: count for name, count in parts.items() if count}


def _fresh(module: nn.Module, seen: set[int]) -> int:
    parameters = [parameter for part in _without_copies(module) for parameter in part.parameters(recurse=False)]
    fresh = [parameter for parameter in dict.fromkeys(parameters) if id(parameter) not in seen]
    seen.update(map(id, fresh))
    return sum(parameter.numel() for parameter in fresh)


def _without_copies(module: nn.Module) -> list[nn.Module]:
    if getattr(module, "momentum_copy", False):
        return []
    return [module, *(part for child in module.children() for part in _without_copies(child))]
