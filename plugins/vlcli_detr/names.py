"""Renames weights between vlcli's DETR, its release (iRPE's tables among them) and transformers."""

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from vlcli.nn import PROJECTIONS, State, from_public, substitute, to_public, translate

_RELEASED = {"body.": "backbone.0.body.", "decoder_norm.": "transformer.decoder.norm."}
_RELEASED_LAYER = {
    "self_attention.norm.": "norm1.",
    "cross_attention.norm.": "norm2.",
    "feed_forward.inner.": "linear1.",
    "feed_forward.outer.": "linear2.",
    "self_attention.attention.dense.": "self_attn.out_proj.",
    "cross_attention.attention.dense.": "multihead_attn.out_proj.",
}
_OUTSIDE = {
    "input_proj.": "model.input_projection.",
    "query_embed.": "model.query_position_embeddings.",
    "decoder_norm.": "model.decoder.layernorm.",
    "class_embed.": "class_labels_classifier.",
    **{f"bbox_embed.{2 * number}.": f"bbox_predictor.layers.{number}." for number in range(3)},
}
_LAYER = {
    "self_attention.norm.": "self_attn_layer_norm.",
    "cross_attention.norm.": "encoder_attn_layer_norm.",
    "feed_forward.norm.": "final_layer_norm.",
    "feed_forward.inner.": "mlp.fc1.",
    "feed_forward.outer.": "mlp.fc2.",
}
for _side, _attention in {"self": "self_attn", "cross": "encoder_attn"}.items():
    for _part, _letter in {"query": "q", "key": "k", "value": "v", "dense": "o"}.items():
        _LAYER[f"{_side}_attention.attention.{_part}."] = f"{_attention}.{_letter}_proj."
"""Our names inside a layer, and those of transformers."""
BACKBONE = "model.backbone.model."
# Names of transformers 4, and those of transformers 5.
_EARLIER = (
    (r"^model\.backbone\.conv_encoder\.model\.", BACKBONE),
    (r"(\d)\.fc([12])\.", r"\1.mlp.fc\2."),
    (r"_attn\.out_proj\.", "_attn.o_proj."),
)
_BODY = (
    (r"^conv1\.", "embedder.embedder.convolution."),
    (r"^bn1\.", "embedder.embedder.normalization."),
    (r"\.downsample\.0\.", ".shortcut.convolution."),
    (r"\.downsample\.1\.", ".shortcut.normalization."),
    (r"^layer(\d)\.(\d+)\.", lambda stage: f"encoder.stages.{int(stage[1]) - 1}.layers.{stage[2]}."),
    (r"\.conv(\d)\.", lambda layer: f".layer.{int(layer[1]) - 1}.convolution."),
    (r"\.bn(\d)\.", lambda layer: f".layer.{int(layer[1]) - 1}.normalization."),
)
_TABLES = re.compile(r"^encoder\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.(rpe_[qkv]\..+)$")
_IN_LAYER = re.compile(r"^(?:(encoder)\.layers|(decoder))\.(\d+)\.(.+)$")
_PROJECTION = re.compile(r"^(self|cross)_attention\.attention\.(query|key|value)\.(weight|bias)$")


def released_name(name: str) -> tuple[str, int | None]:
    """Returns the released name of a parameter, and which third of a joint projection is meant."""
    if box := re.match(r"^bbox_embed\.(\d)\.(.+)$", name):
        return f"bbox_embed.layers.{int(box[1]) // 2}.{box[2]}", None
    if table := _TABLES.match(name):
        return f"transformer.encoder.layers.{table[1]}.self_attn.{table[2]}", None
    layer = _IN_LAYER.match(name)
    if layer is None:
        return translate(name, _RELEASED) or name, None
    prefix = f"transformer.{layer[1] or layer[2]}.layers.{layer[3]}."
    if part := _PROJECTION.match(layer[4]):
        attention = "self_attn" if part[1] == "self" else "multihead_attn"
        return f"{prefix}{attention}.in_proj_{part[3]}", PROJECTIONS.index(part[2])
    table_of_stack = {**_RELEASED_LAYER, "feed_forward.norm.": "norm2." if layer[1] else "norm3."}
    return prefix + (translate(layer[4], table_of_stack) or layer[4]), None


def from_released(state: Mapping[str, Tensor], names: Iterable[str]) -> State:
    """Returns a released state under a model's ``names``; weights that have none of them keep theirs."""
    return from_public(state, names, released_name)


def to_released(state: Mapping[str, Tensor]) -> State:
    """Returns a model's state as DETR's release loads it, and iRPE's with the tables."""
    return to_public(state, released_name)


def from_transformers(state: Mapping[str, Tensor], names: Iterable[str]) -> State:
    """Returns a state of transformers' DETR (4 or 5, equipped with tables or not) under a model's ``names``."""
    known = {transformers_name(name): name for name in names}
    later = {substitute(name, _EARLIER): value for name, value in state.items()}
    body = r"^model\.backbone\.model\.(?:_backbone\.|encoder\.)?"  # timm's ResNet has torchvision's names inside
    return {known.get(name) or re.sub(body, "body.", name): value for name, value in later.items()}


def transformers_name(name: str) -> str:
    """Returns a parameter's name in ``DetrForObjectDetection``, with transformers' own ResNet as backbone.

    >>> transformers_name("body.layer1.0.conv2.weight")
    'model.backbone.model.encoder.stages.0.layers.0.layer.1.convolution.weight'
    """
    if name.startswith("body."):
        return BACKBONE + substitute(name.removeprefix("body."), _BODY)
    if table := _TABLES.match(name):
        return f"model.encoder.layers.{table[1]}.self_attn.{table[2]}"
    if layer := _IN_LAYER.match(name):
        return f"model.{layer[1] or layer[2]}.layers.{layer[3]}.{translate(layer[4], _LAYER) or layer[4]}"
    return translate(name, _OUTSIDE) or name
