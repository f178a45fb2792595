"""Swin's parameter names: ours, and those of transformers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

_NAMES = (
    (r"^patch\.", "embeddings.patch_embeddings.projection."),
    (r"^patch_norm\.", "embeddings.norm."),
    (r"^norm\.", "layernorm."),
    (r"^stages\.(\d+)\.blocks\.", r"encoder.layers.\1.blocks."),
    (r"\.window\.norm\.", ".layernorm_before."),
    (r"\.window\.attention\.(?:(q)uery|(k)ey|(v)alue)\.", r".attention.\1\2\3_proj."),
    (r"\.window\.attention\.dense\.", ".attention.o_proj."),
    (r"\.feed_forward\.norm\.", ".layernorm_after."),
    (r"\.feed_forward\.inner\.", ".mlp.fc1."),
    (r"\.feed_forward\.outer\.", ".mlp.fc2."),
)
_EARLIER = (
    (
        r"\.attention\.self\.(q)uery\.|\.attention\.self\.(k)ey\.|\.attention\.self\.(v)alue\.",
        r".attention.\1\2\3_proj.",
    ),
    (
        r"\.attention\.self\.relative_position_bias_table$",
        ".attention.relative_position_bias.relative_position_bias_table",
    ),
    (r"\.attention\.output\.dense\.", ".attention.o_proj."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
)
"""Names of transformers 4, which files on hubs have, and those of transformers 5."""
_BIAS = re.compile(r"^stages\.(\d+)\.position\.(?:parts\.\d+\.)?layers\.(\d+)\.rpe_k\.lookup_table_bias$")
TABLE = "encoder.layers.{}.blocks.{}.attention.relative_position_bias.relative_position_bias_table"


def transformers_name(name: str) -> str:
    """The name in ``SwinModel`` of one of our parameters; that of a classifier's is ``classifier``."""
    if found := _BIAS.match(name):
        return TABLE.format(found[1], found[2])
    name = re.sub(r"^head\.", "classifier.", re.sub(r"^stages\.(\d+)\.downsample\.", _before, name))
    for pattern, other in _NAMES:
        name = re.sub(pattern, other, name)
    return name


def _before(found: re.Match[str]) -> str:
    return f"encoder.layers.{int(found[1]) - 1}.downsample."


def has_transformers_names(state: Iterable[str]) -> bool:
    """Whether a state is laid out as transformers' Swin is."""
    return any("embeddings.patch_embeddings.projection." in name for name in state)


def to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state of ours by transformers' names, without a prefix; tables have a row for each offset there."""
    return {
        transformers_name(name): value.T.contiguous() if _BIAS.match(name) else value for name, value in state.items()
    }


def from_transformers(state: Mapping[str, Tensor], own: Iterable[str]) -> dict[str, Tensor]:
    """A state of transformers' Swin, of version 4 or 5, under our names; what we have no name for keeps its own.

    Args:
        state: of any of its classes.
        own: the names of our model.
    """
    table = {transformers_name(name): name for name in own}
    made = {}
    for name, value in state.items():
        plain = name.removeprefix("swin.")
        for earlier, present in _EARLIER:
            plain = re.sub(earlier, present, plain)
        if plain.endswith("relative_position_index"):
            continue  # computed here
        ours = table.get(plain, name)
        made[ours] = value.T.contiguous() if _BIAS.match(ours) else value
    return made
