"""Parameter names: ours, those of the authors' release (airsplay/lxmert) and those of transformers.

The two public layouts differ in the prefix of the backbone alone (``bert.`` and ``lxmert.``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

_ATTENTION = {
    r"\.attention\.dense\.": ".output.dense.",
    r"\.attention\.(query|key|value)\.": r".self.\1.",
    r"\.norm\.": ".output.LayerNorm.",
}
_BLOCKS = {"cross": "visual_attention", "language_self": "lang_self_att", "object_self": "visn_self_att"}
_STACKS = {"language": "layer", "objects": "r_layers", "cross": "x_layers"}
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
_ANSWER = {"head.inner.": "answer_head.logit_fc.0.", "head.norm.": "answer_head.logit_fc.2."}
_ANSWER["head.outer."] = "answer_head.logit_fc.3."
_ANSWERERS = ("answering", "image-qa", "classification")
"""Objectives whose head has the public answer head's names: fine-tuned, pre-trained, and NLVR2's for two pictures."""
for _objective in _ANSWERERS:
    _FIXED |= {f"objectives.{_objective}.{ours}": theirs for ours, theirs in _ANSWER.items()}
_TIED = "cls.predictions.decoder.weight"
_WRAPPERS = ("module.", "lxrt_encoder.model.", "model.")


def airsplay_name(name: str) -> str | None:
    """The authors' name of one of our parameters; None where they have no such thing."""
    for ours, theirs in _FIXED.items():
        if name.startswith(ours):
            return theirs + name[len(ours) :]
    found = re.match(r"(language|objects|cross)\.layers\.(\d+)\.(\w+)\.(.+)", name)
    if found is None:
        return None
    stack, number, block, rest = found.groups()
    inside = _feed_name(block, rest) if "feed" in block else _attention_name(block, rest)
    return None if inside is None else f"bert.encoder.{_STACKS[stack]}.{number}.{inside}"


def _feed_name(block: str, rest: str) -> str | None:
    side = {"feed_forward": "", "language_feed": "lang_", "object_feed": "visn_"}[block]
    inner = "inter" if side else "intermediate"
    table = {"inner.": f"{side}{inner}.dense.", "outer.": f"{side}output.dense.", "norm.": f"{side}output.LayerNorm."}
    return next((theirs + rest[len(ours) :] for ours, theirs in table.items() if rest.startswith(ours)), None)


def _attention_name(block: str, rest: str) -> str | None:
    name = f".{rest}"
    for ours, theirs in _ATTENTION.items():
        name, count = re.subn(f"^{ours}", theirs, name)
        if count:
            block = "attention" if block == "self_attention" else _BLOCKS[block]
            return (block + name).replace("visual_attention.self.", "visual_attention.att.")
    return None


def from_public(state: Mapping[str, Tensor], own: Iterable[str], report: list[str]) -> dict[str, Tensor]:
    """Public weights under our names.

    Args:
        state: the authors' or transformers' weights, or our own.
        own: our parameter names of the backbone.
        report: gets a line on what was done.

    Returns:
        Backbone weights by our names, heads as ``objectives.NAME...``, anything unknown as it came (our own names pass
        through, so the function may be applied to them too).
    """
    table = {theirs: ours for ours in own if (theirs := airsplay_name(ours)) is not None}
    made: dict[str, Tensor] = {}
    renamed, pairs = 0, _answers_pairs(state)
    for key, value in state.items():
        plain = _plain(key)
        if plain == _TIED:
            continue
        ours = table.get(plain) or _head_name(plain, "classification" if pairs else "answering")
        renamed += ours is not None and ours != key
        made[ours or key] = value
    if renamed:
        report.append(f"{renamed} weights had the names of a public LXMERT release")
    return made


def to_airsplay(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights (of a model, or of a training module with ``model.`` and ``objectives.``) by the authors' names."""
    made = {}
    for key, value in state.items():
        theirs = airsplay_name(key.removeprefix("model."))
        made[theirs or key] = value
    if "cls.predictions.bias" in made:
        made[_TIED] = made["bert.embeddings.word_embeddings.weight"]
    return made


def to_transformers(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The same by the names of transformers."""
    return {re.sub(r"^bert\.", "lxmert.", key): value for key, value in to_airsplay(state).items()}


def _plain(key: str) -> str:
    stripped = True
    while stripped:
        stripped = False
        for wrapper in _WRAPPERS:
            if key.startswith(wrapper):
                key, stripped = key[len(wrapper) :], True
    key = re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", key))
    key = re.sub(r"^lxmert\.", "bert.", key)
    if re.match(r"(embeddings|encoder|pooler)\.", key):  # a bare LxmertModel
        key = f"bert.{key}"
    return re.sub(r"^logit_fc\.", "answer_head.logit_fc.", key)


def _answers_pairs(state: Mapping[str, Tensor]) -> bool:
    wide = next((v for k, v in state.items() if _plain(k) == "answer_head.logit_fc.0.weight"), None)
    one = next((v for k, v in state.items() if _plain(k) == "bert.pooler.dense.weight"), None)
    return wide is not None and one is not None and wide.shape[-1] == 2 * one.shape[-1]


def _head_name(plain: str, answerer: str) -> str | None:
    for ours, theirs in _FIXED.items():
        other = any(ours.startswith(f"objectives.{name}.") for name in _ANSWERERS if name != answerer)
        if ours.startswith("objectives.") and not other and plain.startswith(theirs):
            return ours + plain[len(theirs) :]
    return None
