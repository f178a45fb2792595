"""Converts names of weights between transformers' ViT and DeiT and vlcli."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

VIT_NAMES = {
    "self_attention.attention.query.": "attention.q_proj.",
    "self_attention.attention.key.": "attention.k_proj.",
    "self_attention.attention.value.": "attention.v_proj.",
    "self_attention.attention.dense.": "attention.o_proj.",
    "self_attention.norm.": "layernorm_before.",
    "feed_forward.inner.": "mlp.fc1.",
    "feed_forward.outer.": "mlp.fc2.",
    "feed_forward.norm.": "layernorm_after.",
}
"""Names inside a layer in vlcli, and those of transformers."""
_EARLIER = (
    (r"\.attention\.attention\.(query|key|value)\.", r".self_attention.attention.\1."),
    (r"\.attention\.output\.dense\.", ".self_attention.attention.dense."),
    (r"\.intermediate\.dense\.", ".feed_forward.inner."),
    (r"\.output\.dense\.", ".feed_forward.outer."),
)
"""Names of transformers 4, which files of the hub have."""
_OUTSIDE = (
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.position_embeddings$", "positions.0.table.weight"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch."),
    (r"^(?:cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
)


def has_vit_names(state: Iterable[str]) -> bool:
    """Return whether a state has the names of transformers' ViT or DeiT."""
    return any("embeddings.patch_embeddings.projection." in name for name in state)


def from_vit(state: Mapping[str, Tensor], stack: str) -> dict[str, Tensor]:
    """Rename the weights of transformers' ViT or DeiT, without the pooler.

    Args:
        state: of any of its classes, as transformers 4 or 5 writes it.
        stack: name of the :class:`~vlcli.nn.Stack`.

    Returns:
        Weights by vlcli's names; classifiers are ``head`` and ``head_dist``.
    """
    layers = (r"^(?:encoder\.layer|layers)\.", f"{stack}.layers.")
    around = ((r"^(?:vit|deit)\.", ""), (r"^layernorm\.", f"{stack}.norm."), layers)
    inside = tuple((rf"\.{re.escape(theirs)}", f".{ours}") for ours, theirs in VIT_NAMES.items())
    renamed = {}
    for name, value in state.items():
        for theirs, ours in (*around, *inside, *_EARLIER, *_OUTSIDE):
            name = re.sub(theirs, ours, name)  # noqa: PLW2901
        if not name.startswith("pooler."):
            renamed[name] = value[0] if name == "positions.0.table.weight" else value
    return renamed
