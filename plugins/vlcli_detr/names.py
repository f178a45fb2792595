"""DETR's parameter names: ours, those of the release (iRPE's tables among them), and those of transformers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

_BLOCKS = {
    "self_attention.norm.": "norm1.",
    "cross_attention.norm.": "norm2.",
    "feed_forward.norm.": "norm{last}.",
    "feed_forward.inner.": "linear1.",
    "feed_forward.outer.": "linear2.",
    "self_attention.attention.dense.": "self_attn.out_proj.",
    "cross_attention.attention.dense.": "multihead_attn.out_proj.",
}
_PROJECTION = re.compile(r"^(self|cross)_attention\.attention\.(query|key|value)\.(weight|bias)$")
_TABLES = re.compile(r"^encoder\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.(rpe_[qkv]\..+)$")


def released_name(name: str) -> tuple[str, int | None]:
    """The released name of one of our parameters, and which third of a joint projection is meant."""
    if found := re.match(r"^bbox_embed\.(\d)\.(.+)$", name):
        return f"bbox_embed.layers.{int(found[1]) // 2}.{found[2]}", None
    if found := _TABLES.match(name):
        return f"transformer.encoder.layers.{found[1]}.self_attn.{found[2]}", None
    if found := re.match(r"^(?:(encoder)\.layers|(decoder))\.(\d+)\.(.+)$", name):
        stack = found[1] or found[2]
        inside, third = _inside(found[4], stack)
        return f"transformer.{stack}.layers.{found[3]}.{inside}", third
    for ours, theirs in {"body.": "backbone.0.body.", "decoder_norm.": "transformer.decoder.norm."}.items():
        name = theirs + name.removeprefix(ours) if name.startswith(ours) else name
    return name, None


def _inside(name: str, stack: str) -> tuple[str, int | None]:
    if part := _PROJECTION.match(name):
        where = "self_attn" if part[1] == "self" else "multihead_attn"
        return f"{where}.in_proj_{part[3]}", ("query", "key", "value").index(part[2])
    ours = next((prefix for prefix in _BLOCKS if name.startswith(prefix)), "")
    theirs = _BLOCKS.get(ours, "").format(last=2 if stack == "encoder" else 3)
    return theirs + name.removeprefix(ours), None


def from_released(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """A released state under our names; what we have no name for keeps its own."""
    made, used = {}, set()
    for name in own:
        theirs, third = released_name(name)
        if theirs in state:
            used.add(theirs)
            made[name] = state[theirs] if third is None else state[theirs].chunk(3)[third]
    return {**made, **{name: value for name, value in state.items() if name not in used}}


def to_released(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state of ours as DETR's release loads it, and iRPE's with the tables."""
    made: dict[str, Tensor] = {}
    parts: dict[str, dict[int, Tensor]] = {}
    for name, value in state.items():
        theirs, third = released_name(name)
        if third is None:
            made[theirs] = value
        else:
            parts.setdefault(theirs, {})[third] = value
    made.update({name: torch.cat([part[third] for third in range(3)]) for name, part in parts.items()})
    return made


_TRANSFORMERS = (
    (r"^model\.backbone\.(?:conv_encoder\.model\.|model\.)(?:_backbone\.|encoder\.)?", "body."),
    (r"^model\.input_projection\.", "input_proj."),
    (r"^model\.query_position_embeddings\.", "query_embed."),
    (r"^model\.decoder\.layernorm\.", "decoder_norm."),
    (r"^model\.encoder\.layers\.", "encoder.layers."),
    (r"^model\.decoder\.layers\.", "decoder."),
    (r"^class_labels_classifier\.", "class_embed."),
    (r"^bbox_predictor\.layers\.0\.", "bbox_embed.0."),
    (r"^bbox_predictor\.layers\.1\.", "bbox_embed.2."),
    (r"^bbox_predictor\.layers\.2\.", "bbox_embed.4."),
    (r"\.self_attn_layer_norm\.", ".self_attention.norm."),
    (r"\.encoder_attn_layer_norm\.", ".cross_attention.norm."),
    (r"\.final_layer_norm\.", ".feed_forward.norm."),
    (r"\.(?:mlp\.)?fc1\.", ".feed_forward.inner."),
    (r"\.(?:mlp\.)?fc2\.", ".feed_forward.outer."),
    (r"\.self_attn\.", ".self_attention.attention."),
    (r"\.encoder_attn\.", ".cross_attention.attention."),
    (r"\.attention\.q_proj\.", ".attention.query."),
    (r"\.attention\.k_proj\.", ".attention.key."),
    (r"\.attention\.v_proj\.", ".attention.value."),
    (r"\.attention\.o(?:ut)?_proj\.", ".attention.dense."),
)


def from_transformers(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """A state of transformers' DETR (equipped with tables or not) under our names."""
    tables = {}
    for name in own:
        if name.startswith("body."):  # where the backbone is transformers' own ResNet, not timm's
            tables[BACKBONE + body_name(name.removeprefix("body."))] = name
        if found := _TABLES.match(name):
            tables[f"model.encoder.layers.{found[1]}.self_attn.{found[2]}"] = name
    plain = {name.replace(_EARLIER_BACKBONE, BACKBONE): value for name, value in state.items()}
    return {tables.get(name) or _plain_name(name): value for name, value in plain.items()}


def _plain_name(name: str) -> str:
    for theirs, ours in _TRANSFORMERS:
        name = re.sub(theirs, ours, name)
    return name


_TO_TRANSFORMERS = (
    (r"^input_proj\.", "model.input_projection."),
    (r"^query_embed\.", "model.query_position_embeddings."),
    (r"^decoder_norm\.", "model.decoder.layernorm."),
    (r"^encoder\.layers\.", "model.encoder.layers."),
    (r"^decoder\.", "model.decoder.layers."),
    (r"^class_embed\.", "class_labels_classifier."),
    (r"^bbox_embed\.0\.", "bbox_predictor.layers.0."),
    (r"^bbox_embed\.2\.", "bbox_predictor.layers.1."),
    (r"^bbox_embed\.4\.", "bbox_predictor.layers.2."),
    (r"\.self_attention\.norm\.", ".self_attn_layer_norm."),
    (r"\.cross_attention\.norm\.", ".encoder_attn_layer_norm."),
    (r"\.feed_forward\.norm\.", ".final_layer_norm."),
    (r"\.feed_forward\.inner\.", ".mlp.fc1."),
    (r"\.feed_forward\.outer\.", ".mlp.fc2."),
    (r"\.self_attention\.attention\.", ".self_attn."),
    (r"\.cross_attention\.attention\.", ".encoder_attn."),
    (
        r"_attn\.(?:(q)uery|(k)ey|(v)alue|dense)\.",
        lambda found: f"_attn.{found[1] or found[2] or found[3] or 'o'}_proj.",
    ),
)


def transformers_name(name: str) -> str:
    """The name in ``DetrForObjectDetection`` of one of our parameters outside the backbone."""
    for ours, theirs in _TO_TRANSFORMERS:
        name = re.sub(ours, theirs, name)
    return name


BACKBONE = "model.backbone.model."
_EARLIER_BACKBONE = "model.backbone.conv_encoder.model."
"""Before the names of transformers' own ResNet."""
_BODY = (
    (r"^conv1\.", "embedder.embedder.convolution."),
    (r"^bn1\.", "embedder.embedder.normalization."),
    (r"\.downsample\.0\.", ".shortcut.convolution."),
    (r"\.downsample\.1\.", ".shortcut.normalization."),
)


def body_name(name: str) -> str:
    """The name in transformers' ResNet of a weight of torchvision's.

    >>> body_name("layer1.0.conv2.weight")
    'encoder.stages.0.layers.0.layer.1.convolution.weight'
    """
    for pattern, other in _BODY:
        name = re.sub(pattern, other, name)
    name = re.sub(r"^layer(\d)\.(\d+)\.", lambda m: f"encoder.stages.{int(m[1]) - 1}.layers.{m[2]}.", name)
    name = re.sub(r"\.conv(\d)\.", lambda m: f".layer.{int(m[1]) - 1}.convolution.", name)
    return re.sub(r"\.bn(\d)\.", lambda m: f".layer.{int(m[1]) - 1}.normalization.", name)
