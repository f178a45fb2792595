"""Renames and fits weights between single-stream models and the files of VLP, UniLM, BERT and a detector's fc7."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from vlcli.nn import BERT_NAMES, PROJECTIONS, State, modern_norms, translate

_PLAIN = {
    "words.": "bert.embeddings.word_embeddings.",
    "places.": "bert.embeddings.position_embeddings.",
    "segments.": "bert.embeddings.token_type_embeddings.",
    "norm.": "bert.embeddings.LayerNorm.",
    "pooler.dense.": "bert.pooler.dense.",
    "word_head.transform.dense.": "cls.predictions.transform.dense.",
    "word_head.transform.norm.": "cls.predictions.transform.LayerNorm.",
    "word_head.bias": "cls.predictions.bias",
    "regions.appearance.": "vis_embed.",
    "regions.place.0.": "vis_pe_embed.0.",
    "objectives.image-sentence.head.": "cls.seq_relationship.",
}
_ATTENTION = "self_attention.attention."
_LAYER = {ours: theirs for ours, theirs in BERT_NAMES.items() if ours != _ATTENTION}
_LAYER |= {f"{_ATTENTION}{part}.": f"attention.self.{part}." for part in PROJECTIONS}  # further sets have no name
_FUSED = re.compile(r"(stack\.layers\.\d+\.self_attention\.attention\.)((?:query|key|value)\.(?:weight|bias))")
_FC7 = re.compile(r"(?:.*\.)?fc7(?:_(?P<blob>[wb])|\.(?P<name>weight|bias))(?:\.pkl)?")
# Beginnings of names whose weights are tied or not needed.
_IDLE = ("cls.predictions.decoder.", "crit_mask_lm_smoothed.", "bert.embeddings.position_ids")
# Projections of a UniLM file with ``relax_projection``, of which sequence to sequence is the last
TASKS = 4


def vlp_name(name: str) -> str | None:
    """Returns VLP's name of a parameter; None where VLP has none."""
    if layer := re.fullmatch(r"stack\.layers\.(\d+)\.(.+)", name):
        inner = translate(layer[2], _LAYER)
        return inner and f"bert.encoder.layer.{layer[1]}.{inner}"
    return translate(name, _PLAIN)


def our_name(name: str) -> str | None:
    """Returns our name of a parameter of VLP, UniLM or BERT; None where we have none."""
    name = _unwrapped(name)
    if fc7 := _FC7.fullmatch(name):
        return f"regions.appearance.0.{fc7['name'] or {'w': 'weight', 'b': 'bias'}[fc7['blob']]}"
    outside, inside = ({theirs: ours for ours, theirs in table.items()} for table in (_PLAIN, _LAYER))
    if layer := re.fullmatch(r"bert\.encoder\.layer\.(\d+)\.(.+)", name):
        inner = translate(layer[2], inside)
        return inner and f"stack.layers.{layer[1]}.{inner}"
    return translate(name, outside)


def to_vlp(state: Mapping[str, Tensor]) -> State:
    """Returns the weights of a model, or of a training module, by VLP's names, tied decoder included."""
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    renamed = {theirs: value for name, value in plain.items() if (theirs := vlp_name(name)) is not None}
    if "words.weight" in plain:
        renamed["cls.predictions.decoder.weight"] = plain["words.weight"]
    return renamed


def adapt(model: Any, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Returns our weights, or those of VLP, UniLM, BERT (bare too) or a detector's fc7, fitted to ``model``."""
    parameters = dict(model.named_parameters())
    renamed: State = {}
    for name, value in state.items():
        if name in parameters or name.startswith("objectives."):
            renamed[name] = value
        elif not _unwrapped(name).startswith(_IDLE):
            renamed[our_name(name) or name] = value
    # UniLM's num_qkv: several sets of projections in one layer, one after another.
    fused = [n for n in renamed if n in parameters and _FUSED.fullmatch(n) and len(renamed[n]) > len(parameters[n])]
    for name in fused:
        renamed[name], *others = renamed[name].split(len(parameters[name]))
        renamed |= {_FUSED.sub(rf"\1others.{number}.\2", name): part for number, part in enumerate(others)}
    if fused:
        report.append(f"{len(fused)} fused projections taken apart by set")
    for name in [name for name in renamed if name.startswith("word_head.transform.") and name in parameters]:
        if len(renamed[name]) == TASKS * len(parameters[name]):  # UniLM's relax_projection
            renamed[name] = renamed[name].chunk(TASKS)[-1]
            report.append(f"{name}: the last of {TASKS} tasks' rows")
    table, count = renamed.get("segments.weight"), len(parameters["segments.weight"])
    if table is not None and len(table) != count:  # BERT has 2 rows, VLP and UniLM 6, roles are 3
        usual = [0, 1, 0, 0, 0, 1] if len(table) == 2 else None
        rows = model.segment_sources.get(len(table)) if count == 3 else usual
        if rows is not None:
            renamed["segments.weight"] = table[rows]
            report.append(f"segments.weight: {count} rows from rows {rows} of {len(table)}")
    table, positions = renamed.get("places.weight"), parameters["places.weight"]
    if table is not None and len(table) != len(positions) and table.shape[1] == positions.shape[1]:
        rest = positions.detach()[len(table) :].to(table)
        renamed["places.weight"] = torch.cat([table[: len(positions)], rest])
        report.append(f"places.weight: {len(positions) - len(rest)} of {len(table)} rows, {len(rest)} new")
    return renamed


def _unwrapped(name: str) -> str:
    # Without wrappers, with today's norm names and the prefix that a bare BERT lacks.
    return re.sub(r"^(embeddings|encoder|pooler)\.", r"bert.\1.", modern_norms(name.removeprefix("module.")))
