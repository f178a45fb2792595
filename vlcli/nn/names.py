"""Renames the weights of published checkpoints: prefix tables, joint projections, and transformers' ViT and DeiT."""

import re
from collections.abc import Callable, Iterable, Mapping

import torch
from torch import Tensor

State = dict[str, Tensor]
"""Tensors by name."""
PublicName = Callable[[str], tuple[str, int | None]]
"""Maps a model's name to the public one and, where query, key and value are one tensor, to the third that is meant."""
PROJECTIONS = ("query", "key", "value")
"""The thirds of a joint projection, in timm's and torch's order."""
# Our names inside a layer, and those of transformers
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
BERT_NAMES = {
    "self_attention.attention.dense.": "attention.output.dense.",
    "self_attention.attention.": "attention.self.",
    "self_attention.norm.": "attention.output.LayerNorm.",
    "feed_forward.inner.": "intermediate.dense.",
    "feed_forward.outer.": "output.dense.",
    "feed_forward.norm.": "output.LayerNorm.",
}
"""Our names inside a layer, and those of BERT."""
TIMM_NAMES = {
    "self_attention.norm.": "norm1.",
    "self_attention.attention.dense.": "attn.proj.",
    "feed_forward.norm.": "norm2.",
    "feed_forward.inner.": "mlp.fc1.",
    "feed_forward.outer.": "mlp.fc2.",
}
"""Our names inside a layer, and those of timm's vision transformers, whose ``attn.qkv`` joins the projections."""
_VIT_PATTERNS = (
    (r"\.attention\.attention\.(query|key|value)\.", r".self_attention.attention.\1."),  # transformers 4
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.position_embeddings$", "positions.0.table.weight"),
    (r"^embeddings\.patch_embeddings\.projection\.", "patch."),
    (r"^(?:cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
)


def translate(name: str, table: Mapping[str, str]) -> str | None:
    """Replace the beginning of a name by that of the first entry that fits; None where none does.

    >>> translate("norm.weight", {"norm.": "LayerNorm."})
    'LayerNorm.weight'
    """
    return next((theirs + name[len(ours) :] for ours, theirs in table.items() if name.startswith(ours)), None)


def substitute(name: str, patterns: Iterable[tuple[str, str | Callable[[re.Match[str]], str]]]) -> str:
    """Applies regular expressions to a name, one after another."""
    for pattern, replacement in patterns:
        name = re.sub(pattern, replacement, name)
    return name


def layer_number(name: str, stacks: Mapping[str, int], above: tuple[str, ...], depth: int) -> int:
    """Return the depth of a parameter for ``Model.layer_of``: 0 of embeddings, ``depth`` + 1 above the last layer.

    ``stacks`` are beginnings of names before a layer's number, with the depth below layer 0; ``above`` beginnings of
    names above all layers.
    """
    for prefix, below in stacks.items():
        if name.startswith(prefix):
            return below + int(name.removeprefix(prefix).split(".", 1)[0]) + 1
    return depth + 1 if name.startswith(above) else 0


def modern_norms(name: str) -> str:
    """Replace the norms' ``gamma`` and ``beta`` of early BERT files by ``weight`` and ``bias``."""
    return substitute(name, ((r"\.beta$", ".bias"), (r"\.gamma$", ".weight")))


def without_prefix(state: Mapping[str, Tensor], *prefixes: str) -> State:
    """Removes the first of ``prefixes`` that all names have; a file of a wrapped model has one."""
    prefix = next((p for p in prefixes if state and all(name.startswith(p) for name in state)), "")
    return {name.removeprefix(prefix): value for name, value in state.items()}


def from_public(state: Mapping[str, Tensor], names: Iterable[str], public_name: PublicName) -> State:
    """Return a published state under a model's ``names``; weights that the model has no name for keep theirs."""
    renamed, used = {}, set()
    for name in names:
        theirs, third = public_name(name)
        if theirs in state:
            used.add(theirs)
            renamed[name] = state[theirs] if third is None else state[theirs].chunk(3)[third]
    return {**renamed, **{name: value for name, value in state.items() if name not in used}}


def to_public(state: Mapping[str, Tensor], public_name: PublicName) -> State:
    """Returns a model's state under the published names, query, key and value joined; the reverse of from_public."""
    renamed: State = {}
    joint: dict[str, dict[int, Tensor]] = {}
    for name, value in state.items():
        theirs, third = public_name(name)
        if third is None:
            renamed[theirs] = value
        else:
            joint.setdefault(theirs, {})[third] = value
    return renamed | {name: torch.cat([parts[third] for third in range(3)]) for name, parts in joint.items()}


def has_vit_names(state: Iterable[str]) -> bool:
    """Whether a state is laid out as transformers' ViT or DeiT is."""
    return any("embeddings.patch_embeddings.projection." in name for name in state)


def from_vit(state: Mapping[str, Tensor], stack: str) -> State:
    """Return a state of any class of transformers' ViT or DeiT (versions 4 and 5) under our names, without its pooler.

    ``stack`` names the :class:`~vlcli.nn.Stack`; classifiers become ``head`` and ``head_dist``.
    """
    patterns = [
        (r"^(?:vit|deit)\.", ""),
        (r"^layernorm\.", f"{stack}.norm."),
        (r"^(?:encoder\.layer|layers)\.", f"{stack}.layers."),
        *((rf"\.{re.escape(theirs)}", f".{ours}") for ours, theirs in VIT_NAMES.items()),
        *((rf"\.{re.escape(theirs)}", f".{ours}") for ours, theirs in BERT_NAMES.items()),  # transformers 4
        *_VIT_PATTERNS,
    ]
    renamed = {substitute(name, patterns): value for name, value in state.items()}
    if (table := renamed.get("positions.0.table.weight")) is not None:
        renamed["positions.0.table.weight"] = table[0]  # (1, T, D) there
    return {name: value for name, value in renamed.items() if not name.startswith("pooler.")}
