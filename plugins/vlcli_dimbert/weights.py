"""Weights of VLP, UniLM and BERT under our names, ours under VLP's, and fc7 of a detector."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from vlcli_dimbert.stream import SingleStream

State = dict[str, Tensor]
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
_LAYER = {
    "self_attention.attention.query.": "attention.self.query.",
    "self_attention.attention.key.": "attention.self.key.",
    "self_attention.attention.value.": "attention.self.value.",
    "self_attention.attention.dense.": "attention.output.dense.",
    "self_attention.norm.": "attention.output.LayerNorm.",
    "feed_forward.inner.": "intermediate.dense.",
    "feed_forward.outer.": "output.dense.",
    "feed_forward.norm.": "output.LayerNorm.",
}
_OURS, _THEIRS = re.compile(r"stack\.layers\.(\d+)\.(.+)"), re.compile(r"bert\.encoder\.layer\.(\d+)\.(.+)")
_FUSED = re.compile(r"(stack\.layers\.\d+\.self_attention\.attention\.)(query|key|value)\.(weight|bias)")
_FC7 = re.compile(r"(?:.*\.)?fc7(?:_(?P<blob>[wb])|\.(?P<name>weight|bias))(?:\.pkl)?")
_TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")
_IDLE = ("crit_mask_lm_smoothed.", "bert.embeddings.position_ids", "embeddings.position_ids")
TASKS = 4
"""Projections of a UniLM file with ``relax_projection``, of which sequence to sequence is the last."""


def vlp_name(name: str) -> str | None:
    """VLP's name of one of our parameters; None where VLP has none."""
    found = _OURS.fullmatch(name)
    if found is None:
        return _translate(name, _PLAIN)
    inner = _translate(found[2], _LAYER)
    return None if inner is None else f"bert.encoder.layer.{found[1]}.{inner}"


def our_name(name: str) -> str | None:
    """Our name of a parameter of VLP, UniLM or BERT; None where we have none."""
    name = _unwrapped(name)
    fc7 = _FC7.fullmatch(name)
    if fc7 is not None:
        return f"regions.appearance.0.{fc7['name'] or {'w': 'weight', 'b': 'bias'}[fc7['blob']]}"
    found = _THEIRS.fullmatch(name)
    if found is None:
        return _translate(name, {theirs: ours for ours, theirs in _PLAIN.items()})
    inner = _translate(found[2], {theirs: ours for ours, theirs in _LAYER.items()})
    return None if inner is None else f"stack.layers.{found[1]}.{inner}"


def to_vlp(state: Mapping[str, Tensor]) -> State:
    """Our weights (of a training module or of a model) by VLP's names, tied decoder included; others are left out."""
    plain = {name.removeprefix("model."): value for name, value in state.items()}
    made = {theirs: value for name, value in plain.items() if (theirs := vlp_name(name)) is not None}
    if "words.weight" in plain:
        made["cls.predictions.decoder.weight"] = plain["words.weight"]
    return made


def adapt(model: SingleStream, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Foreign or our own weights under our names, at the sizes of ``model``.

    Args:
        model: what they are for.
        state: by our names, or by those of VLP, UniLM, BERT (``bert.`` or bare) or a detector's fc7.
        report: gets a line on everything that was done.
    """
    own = dict(model.named_parameters())
    made: State = {}
    for name, value in state.items():
        if name in own or name.startswith("objectives."):
            made[name] = value
        elif _unwrapped(name) not in _TIED and not _unwrapped(name).startswith(_IDLE):
            made[our_name(name) or name] = value
    _split_fused(made, own, report)
    _choose_task(made, own, report)
    _grow_segments(model, made, own, report)
    _cut_places(made, own, report)
    return made


def _unwrapped(name: str) -> str:
    name = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name.removeprefix("module.")))
    return f"bert.{name}" if re.match(r"(embeddings|encoder|pooler)\.", name) else name


def _translate(name: str, table: Mapping[str, str]) -> str | None:
    return next((theirs + name[len(ours) :] for ours, theirs in table.items() if name.startswith(ours)), None)


def _split_fused(made: State, own: Mapping[str, Tensor], report: list[str]) -> None:
    split = 0
    for name in list(made):
        found = _FUSED.fullmatch(name)
        wanted = own.get(name)
        if found is None or wanted is None or len(made[name]) <= len(wanted):
            continue
        parts = made[name].split(len(wanted))
        prefix, kind, what = found.groups()
        made[name] = parts[0]
        made |= {f"{prefix}others.{number}.{kind}.{what}": part for number, part in enumerate(parts[1:])}
        split += 1
    if split:
        report.append(f"{split} fused projections taken apart by set")


def _choose_task(made: State, own: Mapping[str, Tensor], report: list[str]) -> None:
    for name in [name for name in made if name.startswith("word_head.transform.") and name in own]:
        if len(made[name]) == TASKS * len(own[name]):
            made[name] = made[name].chunk(TASKS)[-1]
            report.append(f"{name}: the last of {TASKS} tasks' rows")


def _grow_segments(model: SingleStream, made: State, own: Mapping[str, Tensor], report: list[str]) -> None:
    table, wanted = made.get("segments.weight"), len(own["segments.weight"])
    if table is None or len(table) == wanted:
        return
    rows = model.segment_sources.get(len(table)) if wanted == 3 else [0, 1, 0, 0, 0, 1] if len(table) == 2 else None
    if rows is not None:
        made["segments.weight"] = table[rows]
        report.append(f"segments.weight: {wanted} rows from rows {rows} of {len(table)}")


def _cut_places(made: State, own: Mapping[str, Tensor], report: list[str]) -> None:
    table, wanted = made.get("places.weight"), own["places.weight"]
    if table is None or len(table) == len(wanted) or table.shape[1] != wanted.shape[1]:
        return
    rest = wanted.detach()[len(table) :].to(table)
    made["places.weight"] = torch.cat([table[: len(wanted)], rest])
    report.append(f"places.weight: {min(len(table), len(wanted))} of {len(table)} rows, {len(rest)} new")
