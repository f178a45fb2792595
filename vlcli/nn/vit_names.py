"""Names of transformers' ViT and DeiT, and ours."""

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
"""Our names inside a layer, and those of transformers."""
_EARLIER = (
    (r"\.attention\.attention\.(query|key|value)\.", r".self_attention.attention.\1."),
    (r"\.attention\.output\.dense\.", ".self_attention.attention.dense."),
    (r"\.intermediate\.dense\.", ".feed_forward.inner."),
    (r"\.output\.dense\.", ".feed_forward.outer."),
)
"""Names of transformers 4, which files on hubs have."""
_OUTSIDE = (
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.position_embeddings$", "positions.0.table.weight"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch."),
    (r"^(?:cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
)


def has_vit_names(state: Iterable[str]) -> bool:
    """Whether a state is laid out as transformers' ViT or DeiT is."""
    return any("embeddings.patch_embeddings.projection." in name for name in state)


def from_vit(state: Mapping[str, Tensor], stack: str) -> dict[str, Tensor]:
    """A state of transformers' ViT or DeiT under our names; its pooler is left out.

    Args:
        state: of any of its classes, as transformers 4 or 5 writes it.
        stack: name of the :class:`~vlcli.nn.Stack`.

    Returns:
        Weights by our names; classifiers are ``head`` and ``head_dist``.
    """
    made = {}
    for name, value in state.items():
        ours = _our_name(re.sub(r"^(?:vit|deit)\.", "", name), stack)
        if not ours.startswith("pooler."):
            made[ours] = value[0] if ours == "positions.0.table.weight" else value
    return made


def _our_name(name: str, stack: str) -> str:
    name = re.sub(r"^(?:encoder\.layer|layers)\.", f"{stack}.layers.", re.sub(r"^layernorm\.", f"{stack}.norm.", name))
    for ours, theirs in VIT_NAMES.items():
        name = re.sub(rf"\.{re.escape(theirs)}", f".{ours}", name)
    for theirs, ours in (*_EARLIER, *_OUTSIDE):
        name = re.sub(theirs, ours, name)
    return name
