"""Renames and fits weights between vlcli's VLMo, its released files and BEiT."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vlcli.nn import PROJECTIONS, State, fit_weights, substitute, translate, without_prefix
from vlcli_vlmo.bias import VLMoBias

EXPERTS = {"text": "text", "image": "imag", "fused": "vl"}
"""Our experts, and what the released code calls them."""
MATCHING = ("contrast-matching", "matching", "hard-matching")
"""Objectives whose head is the released ``itm_score``."""
INDICES = ("relative_position_index", "text_relative_position_index", "text_imag_relative_position_index")
"""Buffers in released files that are computed here."""
BIG = "relative_position_bias_table"

_PLAIN = {
    "text.words.": "text_embeddings.word_embeddings.",
    "text.segments.": "text_embeddings.token_type_embeddings.",
    "text.norm.": "text_embeddings.LayerNorm.",
    "text.positions.0.table.": "text_embeddings.position_embeddings.",
    "idle_positions.": "text_embeddings.position_embeddings.",
    "types.": "token_type_embeddings.",
    "patch.": "transformer.patch_embed.proj.",
    "cls_token": "transformer.cls_token",
    "positions.0.table.weight": "transformer.pos_embed",
    "stack.position.table": BIG,
    "stack.norm.": "transformer.norm.",
    "pooler.dense.": "pooler.dense.",
    "objectives.mlm.head.transform.dense.": "mlm_score.transform.dense.",
    "objectives.mlm.head.transform.norm.": "mlm_score.transform.LayerNorm.",
    "objectives.mlm.head.decoder.weight": "mlm_score.decoder.weight",
    "objectives.mlm.head.decoder.bias": "mlm_score.bias",
    "objectives.contrast.text.": "itc_text_proj.fc.",
    "objectives.contrast.image.": "itc_image_proj.fc.",
    "objectives.contrast.fused_text.": "itc_vl_text_proj.fc.",
    "objectives.contrast.fused_image.": "itc_vl_image_proj.fc.",
    "objectives.contrast.scale": "logit_scale",
    "objectives.contrast.fused_scale": "logit_vl_scale",
    **{f"objectives.{name}.head.": "itm_score.fc." for name in MATCHING},
    "objectives.answering.head.inner.": "vqa_classifier.0.",
    "objectives.answering.head.norm.": "vqa_classifier.1.",
    "objectives.answering.head.outer.": "vqa_classifier.3.",
    "objectives.classification.head.inner.": "nlvr2_classifier.0.",
    "objectives.classification.head.norm.": "nlvr2_classifier.1.",
    "objectives.classification.head.outer.": "nlvr2_classifier.3.",
    "objectives.masked-image.blank": "mask_token",  # these two are BEiT's
    "objectives.masked-image.head.": "lm_head.",
}
_BLOCK = {
    "attention.norm.": "norm1.",
    "attention.scale": "gamma_1",
    "attention.attention.dense.": "attn.proj.",
    "attention.attention.query.bias": "attn.q_bias",
    "attention.attention.value.bias": "attn.v_bias",
    "feed.scale": "gamma_2",
    "feed.norm.": "norm2.",
}
for _ours, _theirs in EXPERTS.items():
    _BLOCK |= {
        f"feed.experts.{_ours}.norm.": f"norm2_{_theirs}.",
        f"feed.experts.{_ours}.inner.": f"mlp_{_theirs}.fc1.",
        f"feed.experts.{_ours}.outer.": f"mlp_{_theirs}.fc2.",
    }
_LAYER = re.compile(r"stack\.layers\.(\d+)\.(.+)")
_JOINT = re.compile(r"transformer\.blocks\.(\d+)\.attn\.qkv\.weight")


def released_name(name: str) -> str | None:
    """Returns the released name of a parameter; None where there is none, or where several of ours make one."""
    layer = _LAYER.match(name)
    if layer is None:
        return translate(name, _PLAIN)
    inner = translate(layer[2], _BLOCK)
    return None if inner is None else f"transformer.blocks.{layer[1]}.{inner}"


def to_released(state: Mapping[str, Tensor]) -> State:
    """Returns the weights of a model, or of a training module, by the released names; others are left out."""
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    released = {theirs: value for name, value in plain.items() if (theirs := released_name(name)) is not None}
    for name in plain:
        if query := re.fullmatch(r"stack\.layers\.(\d+)\.attention\.attention\.query\.weight", name):
            parts = [plain[name.replace("query", part)] for part in PROJECTIONS]
            released[f"transformer.blocks.{query[1]}.attn.qkv.weight"] = torch.cat(parts)
    if "transformer.pos_embed" in released:
        released["transformer.pos_embed"] = released["transformer.pos_embed"][None]  # (1, T, D)
    words = released.get("text_embeddings.position_embeddings.weight")
    if words is not None:
        released["text_embeddings.position_ids"] = torch.arange(len(words))[None]
    return released


def adapt(model: Any, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Returns foreign or own weights under our names, at the sizes of ``model``.

    Args:
        state: by our names, by those of a VLMo release, or by those of BEiT (its authors', timm's, transformers').
    """
    state = without_prefix(state, "module.", "model.")
    if is_beit(state):
        state = from_beit(model, state, report)
    state = _renamed(model, state, report)
    parameters = dict(model.named_parameters())
    # Experts that the weights lack start as copies, where the model says so.
    for expert, source in model.starts.items():
        lacking = [name for name in parameters if f".experts.{expert}." in name and name not in state]
        sources = {name: name.replace(f".experts.{expert}.", f".experts.{source}.") for name in lacking}
        copies = {name: state[other].clone() for name, other in sources.items() if other in state}
        state |= copies
        if copies:
            report.append(f"{len(copies)} weights of the {expert} experts: copies of the {source} experts'")
    state = fit_weights(model, state, report)
    name = "idle_positions.weight"
    if name in state and name in parameters and len(state[name]) > len(parameters[name]):
        report.append(f"{name}: the first {len(parameters[name])} of {len(state[name])} rows")
        state[name] = state[name][: len(parameters[name])]
    types, count = state.get("types.weight"), len(parameters["types.weight"])
    if types is not None and len(types) < count:
        report.append(f"types.weight: {count - len(types)} more rows, each a copy of the last of {len(types)}")
        state["types.weight"] = torch.cat([types, types[-1:].expand(count - len(types), -1)])
    elif types is not None and len(types) > count:
        report.append(f"types.weight: the first {count} of {len(types)} rows")
        state["types.weight"] = types[:count]
    return state


def _renamed(model: Any, state: Mapping[str, Tensor], report: list[str]) -> State:
    heads = {theirs: ours for ours, theirs in reversed(_PLAIN.items()) if ours.startswith("objectives.")}
    names = [name for name, _ in model.named_parameters()]
    known = {theirs: name for name in names if (theirs := released_name(name)) is not None}
    renamed: State = {}
    count, dropped = 0, []
    for key, value in state.items():
        if joint := _JOINT.fullmatch(key):
            stem = f"stack.layers.{joint[1]}.attention.attention."
            renamed |= {f"{stem}{part}.weight": rows for part, rows in zip(PROJECTIONS, value.chunk(3), strict=True)}
            count += 1
        elif key in (*INDICES, "text_embeddings.position_ids"):
            dropped.append(key)
        else:
            name = known.get(key) or translate(key, heads) or key
            count += name != key
            renamed[name] = value
    report += [f"{count} weights had the names of a VLMo release"] if count else []
    report += [f"{', '.join(dropped)}: computed here, not read"] if dropped else []
    return renamed


def is_beit(state: Mapping[str, Tensor]) -> bool:
    """True for weights of a BEiT or a plain ViT: the authors', timm's or transformers'."""
    return "blocks.0.attn.qkv.weight" in state or any(".layernorm_before." in name for name in state)


_TRANSFORMERS = (
    (r"^vit\.", ""),
    (r"^(beit\.)?embeddings\.cls_token", "cls_token"),
    (r"^(beit\.)?embeddings\.mask_token", "mask_token"),
    (r"^(beit\.)?embeddings\.position_embeddings", "pos_embed"),
    (r"^(beit\.)?embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^(beit\.)?(encoder\.relative|shared)_position_bias\.relative_position_", "rel_pos_bias.relative_position_"),
    (r"^(beit\.)?(encoder\.layer|layers)\.(\d+)\.", r"blocks.\3."),
    (r"^blocks\.(\d+)\.relative_position_bias\.", r"blocks.\1.attn."),
    (r"\.attention\.([qkv])_proj\.", lambda part: f".attention.attention.{PROJECTIONS['qkv'.index(part[1])]}."),
    (r"\.attention\.o_proj\.", ".attn.proj."),
    (r"\.lambda_(\d)$", r".gamma_\1"),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.attention\.output\.dense\.", ".attn.proj."),
    (r"\.attention\.(attention\.)?relative_position_bias\.", ".attn."),
    (r"\.intermediate\.dense\.", ".mlp.fc1."),
    (r"\.output\.dense\.", ".mlp.fc2."),
    (r"^(beit\.)?layernorm\.", "norm."),
    (r"^(beit\.)?pooler\.layernorm\.", "fc_norm."),
    (r"^classifier\.", "head."),
)
_JOINT_BIAS = re.compile(r"(blocks\.\d+\.attn)\.qkv\.bias")
"""A plain vision transformer's; what it adds to keys is the same for all of them, so the softmax does not see it."""


def from_beit(model: Any, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Returns BEiT's weights by the released VLMo names: its feed-forwards become the image experts.

    Tables per layer, or one shared by all, fill the image's rows of the one table; its other rows stay ``model``'s.
    """
    parameters = dict(model.named_parameters())
    plain = _beit_names(state)
    if "blocks.0.gamma_1" in plain and not any(name.endswith("feed.scale") for name in parameters):
        plain = _folded(plain)
        report.append("factors on the blocks' outputs: multiplied into the weights before them")
    own_norms = not any(".feed.norm." in name for name in parameters)
    renamed: State = {}
    for name, value in plain.items():
        if name.startswith("rel_pos_bias.") or "relative_position_" in name:
            continue
        if (bias := _JOINT_BIAS.fullmatch(name)) is not None:
            query, _, of_value = value.chunk(3)
            renamed |= {f"transformer.{bias[1]}.q_bias": query, f"transformer.{bias[1]}.v_bias": of_value}
            continue
        changed = name.replace(".mlp.", ".mlp_imag.")
        changed = changed.replace(".norm2.", ".norm2_imag.") if own_norms else changed
        outside = changed.startswith(("head.", "fc_norm.", "mask_token", "lm_head."))
        renamed[changed if outside else f"transformer.{changed}"] = value
    if any(name.startswith("fc_norm.") for name in renamed):  # a classifier's file norms the mean of the tokens instead
        norms = {f"transformer.norm.{kind}": parameters.get(f"stack.norm.{kind}") for kind in ("weight", "bias")}
        fresh = {name: one.detach().clone() for name, one in norms.items() if name not in renamed and one is not None}
        report += ["the last norm: as the model drew it, a classifier's file has none"] if fresh else []
        renamed |= fresh
    kind = "a vision transformer" if any(map(_JOINT_BIAS.fullmatch, plain)) else "BEiT"
    report.append(f"weights of {kind}: its feed-forwards are the image experts")
    depth, position = len(model.stack.layers), model.stack.position
    shared, tables = plain.get(f"rel_pos_bias.{BIG}"), [plain.get(f"blocks.{n}.attn.{BIG}") for n in range(depth)]
    if isinstance(position, VLMoBias) and (shared is not None or all(table is not None for table in tables)):
        table = torch.cat([one for one in tables if one is not None], 1) if shared is None else shared.repeat(1, depth)
        rest = position.table.detach()[position.image_rows :].to(table)
        renamed[BIG] = torch.cat([table, rest])
        report.append(f"{BIG}: BEiT's {len(table)} rows, the others as they were")
    return renamed


def _folded(plain: State) -> State:
    folded = {name: value for name, value in plain.items() if ".gamma_" not in name}
    for name, value in plain.items():
        if (factor := re.fullmatch(r"(blocks\.\d+)\.gamma_([12])", name)) is not None:
            stem = f"{factor[1]}.{'attn.proj' if factor[2] == '1' else 'mlp.fc2'}"
            folded[f"{stem}.weight"] = value[:, None] * plain[f"{stem}.weight"]
            folded[f"{stem}.bias"] = value * plain[f"{stem}.bias"]
    return folded


def _beit_names(state: Mapping[str, Tensor]) -> State:
    # Transformers' names as those of the authors and timm; query, key and value joined.
    renamed = {substitute(name, _TRANSFORMERS): value for name, value in state.items()}
    for name in list(renamed):
        if layer := re.fullmatch(r"blocks\.(\d+)\.attention\.attention\.query\.weight", name):
            stem, block = name.removesuffix("query.weight"), f"blocks.{layer[1]}.attn."
            renamed[f"{block}qkv.weight"] = torch.cat([renamed.pop(f"{stem}{part}.weight") for part in PROJECTIONS])
            renamed[f"{block}q_bias"] = renamed.pop(f"{stem}query.bias")
            renamed[f"{block}v_bias"] = renamed.pop(f"{stem}value.bias")
            renamed.pop(f"{stem}key.bias", None)
    return renamed
