"""Renames weights between vlcli's Swin, timm (as the Swin and iRPE releases write it) and transformers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from vlcli.nn import PROJECTIONS, State, from_public, substitute, translate

_NAMES: tuple[tuple[str, str], ...] = (
    (r"^patch\.", "embeddings.patch_embeddings.projection."),
    (r"^patch_norm\.", "embeddings.norm."),
    (r"^norm\.", "layernorm."),
    (r"^head\.", "classifier."),
    (r"^stages\.(\d+)\.blocks\.", r"encoder.layers.\1.blocks."),
    (r"\.window\.norm\.", ".layernorm_before."),
    (r"\.window\.attention\.(?:(q)uery|(k)ey|(v)alue)\.", r".attention.\1\2\3_proj."),
    (r"\.window\.attention\.dense\.", ".attention.o_proj."),
    (r"\.feed_forward\.norm\.", ".layernorm_after."),
    (r"\.feed_forward\.inner\.", ".mlp.fc1."),
    (r"\.feed_forward\.outer\.", ".mlp.fc2."),
)
_EARLIER = (
    (r"^swin\.", ""),
    (r"\.attention\.self\.(?:(q)uery|(k)ey|(v)alue)\.", r".attention.\1\2\3_proj."),
    (r"\.attention\.self\.(relative_position_bias_table)$", r".attention.relative_position_bias.\1"),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)
"""Names of transformers 4, which files on hubs have, and those of transformers 5."""
_FIXED = {"patch.": "patch_embed.proj.", "patch_norm.": "patch_embed.norm.", "head.": "head.fc."}
_BLOCK = {
    "window.norm.": "norm1.",
    "window.attention.dense.": "attn.proj.",
    "feed_forward.norm.": "norm2.",
    "feed_forward.inner.": "mlp.fc1.",
    "feed_forward.outer.": "mlp.fc2.",
}
_BIAS = re.compile(r"^stages\.(\d+)\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.rpe_k\.lookup_table_bias$")
_TABLES = re.compile(r"^stages\.(\d+)\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.(rpe_[qkv]\..+)$")
_IN_STAGE = re.compile(r"^stages\.(\d+)\.(?:blocks\.(\d+)\.)?(.+)$")
_PROJECTION = re.compile(r"^window\.attention\.(query|key|value)\.(weight|bias)$")
TABLE = "encoder.layers.{}.blocks.{}.attention.relative_position_bias.relative_position_bias_table"


def transformers_name(name: str) -> str:
    """Returns the name in ``SwinModel`` of a parameter; that of a classifier's is ``classifier``."""
    if bias := _BIAS.match(name):
        return TABLE.format(bias[1], bias[2])
    if merging := re.match(r"^stages\.(\d+)\.(downsample\..+)", name):  # there it ends the stage before
        return f"encoder.layers.{int(merging[1]) - 1}.{merging[2]}"
    return substitute(name, _NAMES)


def to_transformers(state: Mapping[str, Tensor]) -> State:
    """Returns a model's state by transformers' names, without a prefix; tables have a row for each offset there."""
    return {
        transformers_name(name): value.T.contiguous() if _BIAS.match(name) else value for name, value in state.items()
    }


def from_transformers(state: Mapping[str, Tensor], names: Iterable[str]) -> State:
    """Returns a state of transformers 4 or 5 under a model's ``names``; weights that have none of them keep theirs."""
    table = {transformers_name(name): name for name in names}
    renamed = {}
    for name, value in state.items():
        if not name.endswith("relative_position_index"):  # computed here
            ours = table.get(substitute(name, _EARLIER), name)
            renamed[ours] = value.T.contiguous() if _BIAS.match(ours) else value
    return renamed


def from_timm(state: Mapping[str, Tensor], names: Iterable[str]) -> State:
    """Returns a state of timm under a model's ``names``; weights that have none of them keep theirs."""

    def public_name(name: str) -> tuple[str, int | None]:
        table = _TABLES.match(name)
        if table is not None:
            prefix = f"layers.{table[1]}.blocks.{table[2]}.attn."
            bias = f"{prefix}relative_position_bias_table"
            return bias if _BIAS.match(name) and bias in state else prefix + table[3], None
        inside = _IN_STAGE.match(name)
        if inside is None:
            return translate(name, _FIXED) or name, None
        if inside[2] is None:
            return f"layers.{inside[1]}.{inside[3]}" if inside[3].startswith("downsample.") else name, None
        block = f"layers.{inside[1]}.blocks.{inside[2]}."
        if projection := _PROJECTION.match(inside[3]):
            return f"{block}attn.qkv.{projection[2]}", PROJECTIONS.index(projection[1])
        inner = translate(inside[3], _BLOCK)
        return name if inner is None else block + inner, None

    names = list(names)
    renamed = from_public(state, names, public_name)
    for name in names:
        if name in renamed and public_name(name)[0].endswith("relative_position_bias_table"):
            renamed[name] = renamed[name].T  # (heads, offsets) here
    return renamed
