"""Renames and fits weights between vlcli's VLMo, its released files and BEiT."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vlcli.nn import PROJECTIONS, State, fit_weights, from_public, substitute, to_public, translate, without_prefix
from vlcli_vlmo.bias import VLMoBias

_EXPERTS = {"text": "text", "image": "imag", "fused": "vl"}  # our experts, and what the released code calls them
# Objectives whose head is the released ``itm_score``
MATCHING = ("contrast-matching", "matching", "hard-matching")
# Buffers in released files that are computed here
COMPUTED = ("text_embeddings.position_ids", *(f"{of}relative_position_index" for of in ("", "text_", "text_imag_")))
BIG = "relative_position_bias_table"
# Parts of the head ``vlmo-answer``, and their numbers in the ``nn.Sequential`` of released code
CLASSIFIER = {"inner": 0, "norm": 1, "outer": 3}

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
    **{f"objectives.answering.head.{part}.": f"vqa_classifier.{n}." for part, n in CLASSIFIER.items()},
    **{f"objectives.classification.head.{part}.": f"nlvr2_classifier.{n}." for part, n in CLASSIFIER.items()},
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
for _ours, _theirs in _EXPERTS.items():
    _BLOCK |= {
        f"feed.experts.{_ours}.norm.": f"norm2_{_theirs}.",
        f"feed.experts.{_ours}.inner.": f"mlp_{_theirs}.fc1.",
        f"feed.experts.{_ours}.outer.": f"mlp_{_theirs}.fc2.",
    }
_LAYER = re.compile(r"stack\.layers\.(\d+)\.(.+)")
_PROJECTION = re.compile(rf"attention\.attention\.({'|'.join(PROJECTIONS)})\.weight")


def released_name(name: str) -> tuple[str, int | None]:
    """Returns a parameter's released name, empty where there is none, and its third of a joint projection."""
    layer = _LAYER.match(name)
    if layer is None:
        return translate(name, _PLAIN) or "", None
    if projection := _PROJECTION.fullmatch(layer[2]):
        return f"transformer.blocks.{layer[1]}.attn.qkv.weight", PROJECTIONS.index(projection[1])
    inner = translate(layer[2], _BLOCK)
    return f"transformer.blocks.{layer[1]}.{inner}" if inner else "", None


def to_released(state: Mapping[str, Tensor]) -> State:
    """Returns weights of a model or training module by the released names; others are left out."""
    released = to_public({name.removeprefix("model."): value for name, value in state.items()}, released_name)
    released.pop("", None)
    if "transformer.pos_embed" in released:
        released["transformer.pos_embed"] = released["transformer.pos_embed"][None]  # (1, T, D)
    words = released.get("text_embeddings.position_embeddings.weight")
    if words is not None:
        released["text_embeddings.position_ids"] = torch.arange(len(words))[None]
    return released


def adapt(model: Any, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Returns weights by our names, VLMo's or BEiT's (its authors', timm's, transformers'), fitted to ``model``."""
    state = without_prefix(state, "module.", "model.")
    of_transformers = any(".layernorm_before." in name for name in state)
    if of_transformers or "blocks.0.attn.qkv.weight" in state:  # BEiT's or a plain ViT's
        state = from_beit(model, state, report)
    state = _renamed(model, state, report)
    parameters = dict(model.named_parameters())
    # Experts that the weights lack start as copies, where the model says so.
    for expert, source in model.starts.items():
        lacking = [name for name in parameters if f".experts.{expert}." in name and name not in state]
        sources = {name: name.replace(f".experts.{expert}.", f".experts.{source}.") for name in lacking}
        copies = {name: state[other].clone() for name, other in sources.items() if other in state}
        state |= copies
        report += [f"{len(copies)} weights of the {expert} experts: copies of the {source} experts'"] if copies else []
    state = fit_weights(model, state, report)
    for name in ("idle_positions.weight", "types.weight"):
        if name not in state or name not in parameters:
            continue
        rows, count = state[name], len(parameters[name])
        if len(rows) > count:
            report.append(f"{name}: the first {count} of {len(rows)} rows")
            state[name] = rows[:count]
        elif len(rows) < count and name == "types.weight":
            report.append(f"{name}: {count - len(rows)} more rows, each a copy of the last of {len(rows)}")
            state[name] = torch.cat([rows, rows[-1:].expand(count - len(rows), -1)])
    return state


def _renamed(model: Any, state: Mapping[str, Tensor], report: list[str]) -> State:
    dropped = [name for name in state if name in COMPUTED]
    heads = {theirs: ours for ours, theirs in reversed(_PLAIN.items()) if ours.startswith("objectives.")}
    plain = {translate(name, heads) or name: value for name, value in state.items() if name not in COMPUTED}
    renamed = from_public(plain, dict(model.named_parameters()), released_name)
    count = sum(name not in renamed for name in state) - len(dropped)
    report += [f"{count} weights had the names of a VLMo release"] if count else []
    report += [f"{', '.join(dropped)}: computed here, not read"] if dropped else []
    return renamed


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
    (r"\.attention\.attention\.(q|v)(?:uery|alue)\.bias$", r".attn.\1_bias"),
    (r"^blocks\.(\d+)\.attention\.attention\.(query|key|value)\.", r"stack.layers.\1.attention.attention.\2."),
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
# A plain vision transformer's; what it adds to keys is the same for all of them, so the softmax does not see it.
_JOINT_BIAS = re.compile(r"(blocks\.\d+\.attn)\.qkv\.bias")


def from_beit(model: Any, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Returns BEiT's weights by the released VLMo names: its feed-forwards become the image experts.

    Its tables, one or one a layer, fill the image's rows of the one table; the other rows stay ``model``'s.
    """
    parameters = dict(model.named_parameters())
    plain = {substitute(name, _TRANSFORMERS): value for name, value in state.items()}  # as the authors and timm
    if "blocks.0.gamma_1" in plain and not any(name.endswith("feed.scale") for name in parameters):
        plain = _folded(plain)
        report.append("factors on the blocks' outputs: multiplied into the weights before them")
    own_norms = not any(".feed.norm." in name for name in parameters)
    renamed: State = {}
    for name, value in plain.items():
        if bias := _JOINT_BIAS.fullmatch(name):
            query, _, of_value = value.chunk(3)
            renamed |= {f"transformer.{bias[1]}.q_bias": query, f"transformer.{bias[1]}.v_bias": of_value}
        elif "relative_position_" not in name and not name.endswith(".key.bias"):
            changed = name.replace(".mlp.", ".mlp_imag.")
            changed = changed.replace(".norm2.", ".norm2_imag.") if own_norms else changed
            outside = changed.startswith(("head.", "fc_norm.", "mask_token", "lm_head.", "stack."))
            renamed[changed if outside else f"transformer.{changed}"] = value
    if any(name.startswith("fc_norm.") for name in renamed):  # a classifier's file norms the mean of the tokens instead
        norms = {f"transformer.norm.{name}": value for name, value in model.stack.norm.named_parameters()}
        fresh = {name: value.detach().clone() for name, value in norms.items() if name not in renamed}
        report += ["the last norm: as the model drew it, a classifier's file has none"] if fresh else []
        renamed |= fresh
    kind = "a vision transformer" if any(map(_JOINT_BIAS.fullmatch, plain)) else "BEiT"
    report.append(f"weights of {kind}: its feed-forwards are the image experts")
    depth, position, shared = len(model.stack.layers), model.stack.position, plain.get(f"rel_pos_bias.{BIG}")
    by_layer = [shared if shared is not None else plain.get(f"blocks.{n}.attn.{BIG}") for n in range(depth)]
    tables = [table for table in by_layer if table is not None]
    if isinstance(position, VLMoBias) and len(tables) == depth:
        table = torch.cat(tables, 1)
        renamed[BIG] = torch.cat([table, position.table.detach()[position.image_rows :].to(table)])
        report.append(f"{BIG}: BEiT's {len(table)} rows, the others as they were")
    return renamed


def _folded(plain: State) -> State:
    folded = {name: value for name, value in plain.items() if ".gamma_" not in name}
    for name, value in plain.items():
        if factor := re.fullmatch(r"(blocks\.\d+)\.gamma_([12])", name):
            stem = f"{factor[1]}.{'attn.proj' if factor[2] == '1' else 'mlp.fc2'}"
            folded[f"{stem}.weight"] = value[:, None] * plain[f"{stem}.weight"]
            folded[f"{stem}.bias"] = value * plain[f"{stem}.bias"]
    return folded
