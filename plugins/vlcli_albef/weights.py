"""Renames and fits weights between vlcli's ALBEF and the files of ALBEF, LAVIS, timm's ViT and transformers' BERT."""

import re
from collections.abc import Mapping
from functools import partial
from typing import Any

from torch import Tensor

import vlcli.nn as vl

VISUAL, TEXTUAL, SAID = "visual_encoder.", "text_encoder.bert.", "text_decoder."
_TEXT = {
    "embed.words.": "embeddings.word_embeddings.",
    "embed.positions.0.table.": "embeddings.position_embeddings.",
    "embed.segments.": "embeddings.token_type_embeddings.",
    "embed.norm.": "embeddings.LayerNorm.",
}
_BLOCK = dict(vl.BERT_NAMES)
for _ours, _theirs in (("itself", "attention"), ("other", "crossattention")):
    _BLOCK |= {
        f"{_ours}.attention.dense.": f"{_theirs}.output.dense.",
        f"{_ours}.attention.": f"{_theirs}.self.",
        f"{_ours}.norm.": f"{_theirs}.output.LayerNorm.",
    }
_WORDS = {
    "transform.dense.": "cls.predictions.transform.dense.",
    "transform.norm.": "cls.predictions.transform.LayerNorm.",
    "bias": "cls.predictions.bias",
}
# Heads by the names of ALBEF's pre-training and fine-tuning
HEADS = {
    **{f"objectives.distilled-mlm.head.{ours}": f"text_encoder.{theirs}" for ours, theirs in _WORDS.items()},
    "objectives.momentum-contrast.image.": "vision_proj.",
    "objectives.momentum-contrast.text.": "text_proj.",
    "objectives.momentum-contrast.temperature": "temp",
    "objectives.momentum-contrast.image_queue": "image_queue",
    "objectives.momentum-contrast.text_queue": "text_queue",
    "objectives.momentum-contrast.place": "queue_ptr",
    "objectives.contrast-matching.head.": "itm_head.",
    "objectives.distilled-classification.head.": "cls_head.",
    "objectives.text-assignment.head.": "ta_head.",
}
_OUTSIDE_LAYERS = {
    **{ours: f"{TEXTUAL}{theirs}" for ours, theirs in _TEXT.items()},
    "cls_token": f"{VISUAL}cls_token",
    "positions.0.table.weight": f"{VISUAL}pos_embed",
    "patch.": f"{VISUAL}patch_embed.proj.",
    "image.norm.": f"{VISUAL}norm.",
    **HEADS,
    **{f"decoder.{ours}": f"{SAID}bert.{theirs}" for ours, theirs in _TEXT.items()},
    **{f"decoder.head.{ours}": f"{SAID}{theirs}" for ours, theirs in _WORDS.items()},
}
_LAYER = re.compile(r"(text|cross\.text|image|decoder)\.(?:layers\.)?(\d+)\.(.+)")
_PROJECTION = re.compile(rf"self_attention\.attention\.({'|'.join(vl.PROJECTIONS)})\.(weight|bias)")
_COPIES = re.compile(r"^(visual_encoder|text_encoder|text_decoder|vision_proj|text_proj|cls_head)_m\.")
_TIED = ("embeddings.position_ids", "predictions.decoder.weight", "predictions.decoder.bias")
_NEEDLESS = re.compile(
    r"(.*\.)?(pooler\.dense|seq_relationship|fc_norm|head|head_dist|pre_logits)\.(.*\.)?(weight|bias)$"
)
# Rows of BERT's table of token types
TYPES = 2
_WORD_HEAD = "objectives.distilled-mlm.head."  # the name of ALBEF's word head here; a decoder's head starts from it
# Names of a bare ViT, a bare BERT and the downstream files, as those of ALBEF's pre-training.
_PLAIN_NAMES = (
    (r"^module\.", ""),
    (r"^(blocks\.|patch_embed\.|pos_embed$|cls_token$|dist_token$|norm\.(?:weight|bias)$)", rf"{VISUAL}\1"),
    (r"^(?:bert\.)?(embeddings|encoder\.layer)\.", rf"{TEXTUAL}\1."),
    (r"^cls\.predictions", "text_encoder.cls.predictions"),
    (r"^(text_encoder|text_decoder)(_m)?\.(embeddings|encoder)\.", r"\1\2.bert.\3."),
)


def albef_name(name: str, text_layers: int) -> tuple[str, int | None]:
    """Returns a parameter's name in ALBEF, empty where there is none, and its third of a joint projection."""
    layer = _LAYER.match(name)
    if layer is None:
        return vl.translate(name, _OUTSIDE_LAYERS) or "", None
    stack, number, rest = layer[1], int(layer[2]), layer[3]
    if stack == "image" and (projection := _PROJECTION.fullmatch(rest)):
        return f"{VISUAL}blocks.{number}.attn.qkv.{projection[2]}", vl.PROJECTIONS.index(projection[1])
    inner = vl.translate(rest, vl.TIMM_NAMES if stack == "image" else _BLOCK)
    block = f"{SAID}bert.encoder.layer." if stack == "decoder" else f"{TEXTUAL}encoder.layer."
    block = f"{VISUAL}blocks." if stack == "image" else block
    number += text_layers if stack == "cross.text" else 0
    return f"{block}{number}.{inner}" if inner else "", None


def to_albef(state: Mapping[str, Tensor], text_layers: int) -> vl.State:
    """Returns weights of a model or training module by ALBEF's names; those without one are left out."""
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    renamed = vl.to_public(plain, partial(albef_name, text_layers=text_layers))
    renamed.pop("", None)
    table = f"{VISUAL}pos_embed"
    return renamed | ({table: renamed[table][None]} if table in renamed else {})  # (1, T, D) there


def adapt(model: Any, state: Mapping[str, Tensor], report: list[str]) -> vl.State:
    """Returns weights under our names, at the sizes of ``model``; those of a momentum copy begin with ``teacher.``.

    Read are our names, ALBEF's (bare, of its downstream models or LAVIS), a ViT of timm or transformers, or a BERT of
    transformers (its first layers are used).
    """
    names = model.state_dict().keys()
    state = vl.from_vit(state, "image") if vl.has_vit_names(state) else state
    plain = {
        name if name in names else vl.modern_norms(vl.substitute(name, _PLAIN_NAMES)): value
        for name, value in state.items()
    }
    copies = {_COPIES.sub(r"\1.", name): value for name, value in plain.items() if _COPIES.match(name)}
    adapted = _fitted(model, {name: value for name, value in plain.items() if not _COPIES.match(name)}, report)
    report += [f"{len(copies)} weights are a momentum copy's"] if copies else []
    for name, value in (_fitted(model, copies, []) if copies else {}).items():
        head = re.fullmatch(r"(objectives\.[^.]+\.[^.]+)(\..+)", name)
        adapted[f"{head[1]}_copy{head[2]}" if head else f"teacher.{name}"] = value
    return adapted


def _fitted(model: Any, state: vl.State, report: list[str]) -> vl.State:
    block = re.compile(rf"{VISUAL}blocks\.(\d+)\.")
    numbers = {name: int(layer[1]) for name in state if (layer := block.match(name))}
    count, stored = len(model.image.layers), len(set(numbers.values()))
    if stored > count:
        report.append(f"image encoder: the first {count} of {stored} layers are taken")
        state = {name: value for name, value in state.items() if numbers.get(name, 0) < count}
    token, table = f"{VISUAL}dist_token", f"{VISUAL}pos_embed"
    if token in state:
        report.append("the distillation token and its place are left out")
        state = {name: value for name, value in state.items() if name != token}
        state[table] = state[table][:, [0, *range(2, state[table].shape[1])]]
    state = _doubled(model, vl.fit_weights(model, _renamed(model, state, report), report), report)
    for prefix in ("embed.", "decoder.embed."):
        words, types = state.get(f"{prefix}words.weight"), f"{prefix}segments.weight"
        if words is not None and types not in state:  # LAVIS adds none
            state[types] = words.new_zeros(TYPES, words.shape[1])
            report.append(f"{types}: the file has no token types, so they are zero")
    return _with_decoder(model, state, report)


def _renamed(model: Any, state: vl.State, report: list[str]) -> vl.State:
    depth, heads = len(model.text.layers), {theirs: ours for ours, theirs in HEADS.items()}
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    tied = {name for name in state if name.endswith(_TIED)}  # numbered or tied here
    foreign = {name for name in state if name not in names and not name.startswith("objectives.")}
    needless = {name for name in foreign - tied if _NEEDLESS.match(name)}
    read = {vl.translate(name, heads) or name: state[name] for name in state if name not in tied | needless}
    renamed = vl.from_public(read, names, partial(albef_name, text_layers=depth))
    of_first = {albef_name(name, depth)[0]: name for name in names if name.startswith("cross.text.0.")}
    for name in [name for name in renamed if name.startswith(f"{TEXTUAL}encoder.layer.")]:
        # A cross layer above those the model has, which may be used for several pictures.
        number, rest = name.removeprefix(f"{TEXTUAL}encoder.layer.").split(".", 1)
        if first := of_first.get(f"{TEXTUAL}encoder.layer.{depth}.{rest}"):
            renamed[first.replace("cross.text.0.", f"cross.text.{int(number) - depth}.")] = renamed.pop(name)
    count = sum(name not in renamed for name in state) - len(tied | needless)
    report += [f"{count} weights had ALBEF's names"] if count else []
    report += [f"{len(tied)} weights are computed or tied here, not read"] if tied else []
    report += [f"{len(needless)} weights of poolers and classifiers are not needed"] if needless else []
    return renamed


def _doubled(model: Any, state: vl.State, report: list[str]) -> vl.State:
    # Cross layers of one picture, repeated for each of several.
    layers = {name: layer for name in state if (layer := re.fullmatch(r"cross\.text\.(\d+)\.(.+)", name))}
    stored = 1 + max((int(layer[1]) for layer in layers.values()), default=-1)
    if model.images == 1 or not stored or stored * model.images != len(model.cross.text):
        return state
    report.append(f"{stored} cross layers, each used for {model.images} pictures")
    return {name: value for name, value in state.items() if name not in layers} | {
        f"cross.text.{int(layer[1]) * model.images + picture}.{layer[2]}": state[name]
        for name, layer in layers.items()
        for picture in range(model.images)
    }


def _with_decoder(model: Any, state: vl.State, report: list[str]) -> vl.State:
    # A decoder that the file lacks starts as the cross encoder, with the words' embeddings and head (ALBEF's VQA).
    if model.decoder is None or any(name.startswith(("decoder.layers.", "decoder.embed.")) for name in state):
        return state
    sources = {f"cross.text.{number}.": f"decoder.layers.{number}." for number in range(len(model.decoder.layers))}
    sources |= {"embed.": "decoder.embed.", _WORD_HEAD: "decoder.head."}
    started = {start: value for name, value in state.items() if (start := vl.translate(name, sources))}
    report += [f"decoder: {len(started)} weights start as the cross encoder's and the words'"] if started else []
    return {**state, **started}
