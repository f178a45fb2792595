"""Renames weights between vlcli's LXMERT, the authors' (airsplay/lxmert, ``bert.``) and transformers' (``lxmert.``)."""

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

from vlcli.nn import PROJECTIONS, State, modern_norms, substitute, translate

_STACKS = {"language": "layer", "objects": "r_layers", "cross": "x_layers"}
_LAYER: dict[str, str] = {}
for _ours, _theirs, _inner in (
    ("self_attention", "attention", "self"),
    ("cross", "visual_attention", "att"),
    ("language_self", "lang_self_att", "self"),
    ("object_self", "visn_self_att", "self"),
):
    _LAYER |= {f"{_ours}.attention.{part}.": f"{_theirs}.{_inner}.{part}." for part in PROJECTIONS}
    _LAYER[f"{_ours}.attention.dense."] = f"{_theirs}.output.dense."
    _LAYER[f"{_ours}.norm."] = f"{_theirs}.output.LayerNorm."
for _ours, _theirs, _inner in (
    ("feed_forward", "", "intermediate"),
    ("language_feed", "lang_", "inter"),
    ("object_feed", "visn_", "inter"),
):
    _LAYER[f"{_ours}.inner."] = f"{_theirs}{_inner}.dense."
    _LAYER[f"{_ours}.outer."] = f"{_theirs}output.dense."
    _LAYER[f"{_ours}.norm."] = f"{_theirs}output.LayerNorm."
_FIXED = {
    "text.words.": "bert.embeddings.word_embeddings.",
    "text.positions.0.table.": "bert.embeddings.position_embeddings.",
    "text.segments.": "bert.embeddings.token_type_embeddings.",
    "text.norm.": "bert.embeddings.LayerNorm.",
    "image.project.": "bert.encoder.visn_fc.visn_fc.",
    "image.norm.": "bert.encoder.visn_fc.visn_layer_norm.",
    "image.positions.0.project.": "bert.encoder.visn_fc.box_fc.",
    "image.positions.0.norm.": "bert.encoder.visn_fc.box_layer_norm.",
    "pooler.dense.": "bert.pooler.dense.",
    "objectives.mlm.head.transform.dense.": "cls.predictions.transform.dense.",
    "objectives.mlm.head.transform.norm.": "cls.predictions.transform.LayerNorm.",
    "objectives.mlm.head.bias": "cls.predictions.bias",
    "objectives.matching.head.": "cls.seq_relationship.",
    "objectives.masked-object.transform.dense.": "obj_predict_head.transform.dense.",
    "objectives.masked-object.transform.norm.": "obj_predict_head.transform.LayerNorm.",
    "objectives.masked-object.decoders.label.": "obj_predict_head.decoder_dict.obj.",
    "objectives.masked-object.decoders.attribute.": "obj_predict_head.decoder_dict.attr.",
    "objectives.masked-object.decoders.feature.": "obj_predict_head.decoder_dict.feat.",
}
# Objectives whose head has the public answer head's names: fine-tuned, pre-trained, and NLVR2's for two pictures.
_ANSWERERS = ("answering", "image-qa", "classification")
for _objective in _ANSWERERS:
    for _ours, _row in (("inner", 0), ("norm", 2), ("outer", 3)):
        _FIXED[f"objectives.{_objective}.head.{_ours}."] = f"answer_head.logit_fc.{_row}."
# Prefixes of public names, and those of the release.
_PREFIXES = (
    (r"^(?:module\.|lxrt_encoder\.model\.|model\.)+", ""),
    (r"^lxmert\.", "bert."),
    (r"^(embeddings|encoder|pooler)\.", r"bert.\1."),  # a bare LxmertModel
    (r"^logit_fc\.", "answer_head.logit_fc."),
)
_TIED = "cls.predictions.decoder.weight"
_BERT_LAYER = re.compile(r"\bencoder\.layer\.(\d+)\.")


def airsplay_name(name: str) -> str | None:
    """Returns the authors' name of a parameter; None where they have no such thing."""
    if layer := re.match(r"(language|objects|cross)\.layers\.(\d+)\.(.+)", name):
        inner = translate(layer[3], _LAYER)
        return inner and f"bert.encoder.{_STACKS[layer[1]]}.{layer[2]}.{inner}"
    return translate(name, _FIXED)


def from_public(state: Mapping[str, Tensor], names: Iterable[str], report: list[str]) -> State:
    """Returns public weights under our names; unknown names, and our own, pass through.

    Args:
        state: the authors' or transformers' weights, or our own; heads become ``objectives.NAME...``.
    """
    plain = {key: modern_norms(substitute(key, _PREFIXES)) for key in state}
    shapes = {plain[key]: value.shape for key, value in state.items()}
    wide, pooler = (shapes.get(name) for name in ("answer_head.logit_fc.0.weight", "bert.pooler.dense.weight"))
    pairs = wide is not None and pooler is not None and wide[-1] == 2 * pooler[-1]  # NLVR2's head reads two vectors
    answerer = f"objectives.{'classification' if pairs else 'answering'}."
    known = {theirs: ours for ours in names if (theirs := airsplay_name(ours)) is not None}
    heads = {
        theirs: ours
        for ours, theirs in _FIXED.items()
        if ours.startswith("objectives.") and (not theirs.startswith("answer_head.") or ours.startswith(answerer))
    }
    renamed = {key: known.get(name) or translate(name, heads) or key for key, name in plain.items() if name != _TIED}
    if changed := sum(key != name for key, name in renamed.items()):
        report.append(f"{changed} weights had the names of a public LXMERT release")
    return {name: state[key] for key, name in renamed.items()}


def last_layers(state: Mapping[str, Tensor], count: int, report: list[str]) -> State:
    """Returns a BERT's weights with the last ``count`` of its layers alone, numbered from 0."""
    numbers = {key: int(layer[1]) for key in state if (layer := _BERT_LAYER.search(key))}
    left = max(numbers.values(), default=-1) + 1 - count
    if left <= 0:
        return dict(state)
    report.append(f"language encoder: the last {count} of {left + count} layers are taken")
    kept = {key: value for key, value in state.items() if numbers.get(key, left) >= left}
    return {_BERT_LAYER.sub(lambda layer: f"encoder.layer.{int(layer[1]) - left}.", key): kept[key] for key in kept}


def to_airsplay(state: Mapping[str, Tensor]) -> State:
    """Returns weights of a model or training module by the authors' names."""
    renamed = {airsplay_name(key.removeprefix("model.")) or key: value for key, value in state.items()}
    if "cls.predictions.bias" in renamed:
        renamed[_TIED] = renamed["bert.embeddings.word_embeddings.weight"]
    return renamed


def to_transformers(state: Mapping[str, Tensor]) -> State:
    """Returns weights of a model or training module by the names of transformers."""
    return {re.sub(r"^bert\.", "lxmert.", key): value for key, value in to_airsplay(state).items()}
