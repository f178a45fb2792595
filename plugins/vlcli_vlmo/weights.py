"""Weights of the released VLMo files and of BEiT under our names, and ours under theirs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn

from vlcli.nn import LearnedPosition
from vlcli_vlmo.bias import VLMoBias
from vlcli_vlmo.blocks import MoMEStack

State = dict[str, Tensor]
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
_PROJECTIONS = ("query", "key", "value")
_LAYER = re.compile(r"stack\.layers\.(\d+)\.(.+)")
_JOINT = re.compile(r"transformer\.blocks\.(\d+)\.attn\.qkv\.weight")


def released_name(name: str) -> str | None:
    """The released name of one of our parameters; None where there is none, or where several of ours make one."""
    found = _LAYER.match(name)
    if found is not None:
        number, rest = found.groups()
        inner = _translate(rest, _BLOCK)
        return None if inner is None else f"transformer.blocks.{number}.{inner}"
    return _translate(name, _PLAIN)


def _translate(name: str, table: Mapping[str, str]) -> str | None:
    return next((theirs + name[len(ours) :] for ours, theirs in table.items() if name.startswith(ours)), None)


def to_released(state: Mapping[str, Tensor]) -> State:
    """Our weights (of a training module: ``model.`` and ``objectives.``) by the released names; others are left out."""
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    made = {theirs: value for name, value in plain.items() if (theirs := released_name(name)) is not None}
    for name in plain:
        found = re.fullmatch(r"stack\.layers\.(\d+)\.attention\.attention\.query\.weight", name)
        if found:
            parts = [plain[name.replace("query", part)] for part in _PROJECTIONS]
            made[f"transformer.blocks.{found[1]}.attn.qkv.weight"] = torch.cat(parts)
    if "transformer.pos_embed" in made:
        made["transformer.pos_embed"] = made["transformer.pos_embed"][None]
    places = made.get("text_embeddings.position_embeddings.weight")
    if places is not None:
        made["text_embeddings.position_ids"] = torch.arange(len(places))[None]
    return made


class Loadable(Protocol):
    """The parts of :class:`vlcli_vlmo.VLMo` that decide how weights fit; ``model`` imports this module.

    Attributes:
        starts: for each expert that weights may lack, the expert it is copied from.
        stack: the layers, with the relative position encoding.
        positions: encodings of image tokens.
    """

    starts: dict[str, str]
    stack: MoMEStack
    positions: nn.ModuleList

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters with their names."""


def adapt(model: Loadable, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Foreign or our own weights under our names, at the sizes of ``model``.

    Args:
        model: what they are for.
        state: by our names, by those of a VLMo release, or by those of BEiT (its authors', timm's, transformers').
        report: gets a line on everything that was done.
    """
    state = _unwrapped(state)
    if is_beit(state):
        state = from_beit(model, state, report)
    made = _renamed(model, state, report)
    _start_experts(model, made, report)
    _fit_grid(model, made, report)
    _fit_rows(model, made, report)
    return made


def _start_experts(model: Loadable, state: State, report: list[str]) -> None:
    for wanted, source in model.starts.items():
        own = [name for name, _ in model.named_parameters() if f".experts.{wanted}." in name and name not in state]
        copied = {
            name: given
            for name in own
            if (given := name.replace(f".experts.{wanted}.", f".experts.{source}.")) in state
        }
        state.update({name: state[given].clone() for name, given in copied.items()})
        if copied:
            report.append(f"{len(copied)} weights of the {wanted} experts: copies of the {source} experts'")


def _unwrapped(state: Mapping[str, Tensor]) -> State:
    prefix = next((p for p in ("module.", "model.") if state and all(name.startswith(p) for name in state)), "")
    return {name.removeprefix(prefix): value for name, value in state.items()}


def _renamed(model: Loadable, state: Mapping[str, Tensor], report: list[str]) -> State:
    own = [name for name, _ in model.named_parameters()]
    heads = [name for name in _PLAIN if name.startswith("objectives.")]
    table = {theirs: name for name in own if (theirs := released_name(name)) is not None}
    made: State = {}
    renamed, dropped = 0, []
    for key, value in state.items():
        joint = _JOINT.fullmatch(key)
        if joint:
            parts = value.chunk(3)
            made |= {
                f"stack.layers.{joint[1]}.attention.attention.{n}.weight": p
                for n, p in zip(_PROJECTIONS, parts, strict=True)
            }
            renamed += 1
        elif key in (*INDICES, "text_embeddings.position_ids"):
            dropped.append(key)
        else:
            ours = table.get(key) or _head_name(key, heads)
            renamed += ours not in (None, key)
            made[ours or key] = value
    table_name = "positions.0.table.weight"
    if table_name in made and made[table_name].dim() == 3:
        made[table_name] = made[table_name][0]
    report += [f"{renamed} weights had the names of a VLMo release"] if renamed else []
    report += [f"{', '.join(dropped)}: computed here, not read"] if dropped else []
    return made


def _head_name(key: str, heads: list[str]) -> str | None:
    return next((name + key[len(_PLAIN[name]) :] for name in heads if key.startswith(_PLAIN[name])), None)


def _fit_grid(model: Loadable, state: State, report: list[str]) -> None:
    for name, encoding in (("stack.position.", model.stack.position), ("positions.0.", _first(model.positions))):
        key = "table" if isinstance(encoding, VLMoBias) else "table.weight"
        value = state.get(name + key)
        if value is None or not isinstance(encoding, VLMoBias | LearnedPosition) or encoding.grid is None:
            continue
        old = _old_grid(encoding, len(value))
        if old is not None and old != encoding.grid:
            state[name + key] = encoding.resize_state({key: value}, old, encoding.grid)[key]
            report.append(
                f"{name}{key}: {old[0]}x{old[1]} places interpolated to {encoding.grid[0]}x{encoding.grid[1]}"
            )


def _first(modules: torch.nn.ModuleList) -> torch.nn.Module | None:
    return next(iter(modules), None)


def _old_grid(encoding: VLMoBias | LearnedPosition, rows: int) -> tuple[int, int] | None:
    if isinstance(encoding, LearnedPosition):
        side = round((rows - encoding.specials) ** 0.5)
        return (side, side) if side * side == rows - encoding.specials else None
    places = rows - 3 - 2 * encoding.length - 2
    side = (round(max(places, 0) ** 0.5) + 1) // 2
    return (side, side) if (2 * side - 1) ** 2 == places else None


def _fit_rows(model: Loadable, state: State, report: list[str]) -> None:
    own = dict(model.named_parameters())
    for name in ("text.positions.0.table.weight", "idle_positions.weight"):
        if name in state and name in own and len(state[name]) > len(own[name]):
            report.append(f"{name}: the first {len(own[name])} of {len(state[name])} rows")
            state[name] = state[name][: len(own[name])]
    types, wanted = state.get("types.weight"), len(own["types.weight"])
    if types is not None and len(types) < wanted:
        report.append(f"types.weight: {wanted - len(types)} more rows, each a copy of the last of {len(types)}")
        state["types.weight"] = torch.cat([types, types[-1:].expand(wanted - len(types), -1)])
    elif types is not None and len(types) > wanted:
        report.append(f"types.weight: the first {wanted} of {len(types)} rows")
        state["types.weight"] = types[:wanted]


def is_beit(state: Mapping[str, Tensor]) -> bool:
    """Whether these are the weights of a BEiT or a plain ViT: the authors', timm's or transformers'."""
    return "blocks.0.attn.qkv.weight" in state or any(".layernorm_before." in name for name in state)


_TRANSFORMERS: dict[str, str | Callable[[re.Match[str]], str]] = {
    r"^vit\.": "",
    r"^(beit\.)?embeddings\.cls_token": "cls_token",
    r"^(beit\.)?embeddings\.mask_token": "mask_token",
    r"^(beit\.)?embeddings\.position_embeddings": "pos_embed",
    r"^(beit\.)?embeddings\.patch_embeddings\.projection\.": "patch_embed.proj.",
    r"^(beit\.)?(encoder\.relative|shared)_position_bias\.relative_position_": "rel_pos_bias.relative_position_",
    r"^(beit\.)?(encoder\.layer|layers)\.(\d+)\.": r"blocks.\3.",
    r"^blocks\.(\d+)\.relative_position_bias\.": r"blocks.\1.attn.",
    r"\.attention\.([qkv])_proj\.": lambda found: f".attention.attention.{_PROJECTIONS['qkv'.index(found[1])]}.",
    r"\.attention\.o_proj\.": ".attn.proj.",
    r"\.lambda_(\d)$": r".gamma_\1",
    r"\.layernorm_before\.": ".norm1.",
    r"\.layernorm_after\.": ".norm2.",
    r"\.attention\.output\.dense\.": ".attn.proj.",
    r"\.attention\.(attention\.)?relative_position_bias\.": ".attn.",
    r"\.intermediate\.dense\.": ".mlp.fc1.",
    r"\.output\.dense\.": ".mlp.fc2.",
    r"^(beit\.)?layernorm\.": "norm.",
}
_JOINT_BIAS = re.compile(r"(blocks\.\d+\.attn)\.qkv\.bias")
"""A plain vision transformer's; what it adds to keys is the same for all of them, so the softmax does not see it."""
_ATTENTION = re.compile(r"blocks\.(\d+)\.attention\.attention\.(query|key|value)\.(weight|bias)")


def _fresh_last_norm(model: Loadable, made: State, report: list[str]) -> State:
    own = {f"transformer.norm.{kind}": f"stack.norm.{kind}" for kind in ("weight", "bias")}
    values = {name: value.detach().clone() for name, value in model.named_parameters() if name in own.values()}
    fresh = {theirs: values[ours] for theirs, ours in own.items() if theirs not in made and ours in values}
    if fresh:
        report.append("the last norm: as the model drew it, a classifier's file has none")
    return fresh


def from_beit(model: Loadable, state: Mapping[str, Tensor], report: list[str]) -> State:
    """BEiT's weights by the released VLMo names: its feed-forwards become the image experts.

    Tables per layer, or one shared by all, fill the image's rows of the one table; its other rows stay ``model``'s.
    """
    plain = _folded(model, _beit_names(state), report)
    own_norms = not any(".feed.norm." in name for name, _ in model.named_parameters())
    made: State = {}
    for name, value in plain.items():
        if name.startswith("rel_pos_bias.") or "relative_position_" in name:
            continue
        if (bias := _JOINT_BIAS.fullmatch(name)) is not None:
            query, _, of_value = value.chunk(3)
            made |= {f"transformer.{bias[1]}.q_bias": query, f"transformer.{bias[1]}.v_bias": of_value}
            continue
        changed = re.sub(r"\.mlp\.", ".mlp_imag.", name)
        changed = re.sub(r"\.norm2\.", ".norm2_imag.", changed) if own_norms else changed
        made[
            changed if changed.startswith(("head.", "fc_norm.", "mask_token", "lm_head.")) else f"transformer.{changed}"
        ] = value
    if any(name.startswith("fc_norm.") for name in made):
        made |= _fresh_last_norm(model, made, report)
    kind = "a vision transformer" if any(map(_JOINT_BIAS.fullmatch, plain)) else "BEiT"
    report.append(f"weights of {kind}: its feed-forwards are the image experts")
    table = _beit_table(model, plain)
    if table is not None and isinstance(model.stack.position, VLMoBias):
        made[BIG] = _grown(model.stack.position, table)
        report.append(f"{BIG}: BEiT's {len(table)} rows, the others as they were")
    return made


def _folded(model: Loadable, plain: State, report: list[str]) -> State:
    if "blocks.0.gamma_1" not in plain or any(name.endswith("feed.scale") for name, _ in model.named_parameters()):
        return plain
    made = {name: value for name, value in plain.items() if ".gamma_" not in name}
    for name, value in plain.items():
        if (found := re.fullmatch(r"(blocks\.\d+)\.gamma_([12])", name)) is not None:
            stem = f"{found[1]}.{'attn.proj' if found[2] == '1' else 'mlp.fc2'}"
            made[f"{stem}.weight"] = value[:, None] * plain[f"{stem}.weight"]
            made[f"{stem}.bias"] = value * plain[f"{stem}.bias"]
    report.append("factors on the blocks' outputs: multiplied into the weights before them")
    return made


def _beit_names(state: Mapping[str, Tensor]) -> State:
    made: State = {}
    for name, value in state.items():
        changed = name
        for pattern, new in _TRANSFORMERS.items():
            changed = re.sub(pattern, new, changed)
        made[changed] = value
    for name in [n for n in made if (f := _ATTENTION.fullmatch(n)) and f[2] == "query" and f[3] == "weight"]:
        number = name.split(".")[1]
        stem = f"blocks.{number}.attention.attention."
        made[f"blocks.{number}.attn.qkv.weight"] = torch.cat([made.pop(f"{stem}{p}.weight") for p in _PROJECTIONS])
        made[f"blocks.{number}.attn.q_bias"] = made.pop(f"{stem}query.bias")
        made[f"blocks.{number}.attn.v_bias"] = made.pop(f"{stem}value.bias")
        made.pop(f"{stem}key.bias", None)
    return made


def _beit_table(model: Loadable, plain: State) -> Tensor | None:
    depth = len(model.stack.layers)
    shared = plain.get(f"rel_pos_bias.{BIG}")
    if shared is not None:
        return shared.repeat(1, depth)
    own = [plain.get(f"blocks.{number}.attn.{BIG}") for number in range(depth)]
    return torch.cat([table for table in own if table is not None], 1) if all(t is not None for t in own) else None


def _grown(encoding: VLMoBias, table: Tensor) -> Tensor:
    rest = encoding.table.detach()[encoding.image_rows :].to(table.dtype)
    return torch.cat([table, rest.to(table.device)])
