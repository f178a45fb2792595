"""ALBEF's and LAVIS' files, timm's ViT and transformers' BERT as weights of our model, at its sizes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor, nn

from vlcli.nn import CrossEncoder, LearnedPosition, Stack, from_vit, has_vit_names
from vlcli_albef.decoder import WordDecoder
from vlcli_albef.weights import HEADS, PARTS, TEXTUAL, VISUAL, State, albef_name

_COPIES = re.compile(r"^(visual_encoder|text_encoder|text_decoder|vision_proj|text_proj|cls_head)_m\.")
_TIED = ("embeddings.position_ids", "predictions.decoder.weight", "predictions.decoder.bias")
_NEEDLESS = re.compile(
    r"(.*\.)?(pooler\.dense|seq_relationship|fc_norm|head|head_dist|pre_logits)\.(.*\.)?(weight|bias)$"
)
TYPES = 2
"""Rows of BERT's table of token types."""
WORD_HEAD = "objectives.distilled-mlm.head."
"""Where ALBEF's word head goes, and what a decoder's head starts from."""


class Loadable(Protocol):
    """The parts of :class:`vlcli_albef.ALBEF` that decide how weights fit; ``model`` imports this module.

    Attributes:
        images: pictures an example.
        image: the image encoder.
        text: the text encoder.
        cross: the cross encoder.
        positions: encodings of the image encoder's tokens.
        decoder: the answer decoder, if there is one.
    """

    images: int
    image: Stack
    text: Stack
    cross: CrossEncoder
    positions: nn.ModuleList
    decoder: WordDecoder | None

    def state_dict(self) -> dict[str, Any]:
        """All weights and buffers by name."""

    def named_modules(self) -> Iterator[tuple[str, nn.Module]]:
        """All parts with their names."""

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters with their names."""


def adapt(model: Loadable, state: Mapping[str, Tensor], report: list[str]) -> State:
    """Foreign or our own weights under our names, at the sizes of ``model``.

    Names that begin with ``teacher.`` are those of a momentum copy.

    Args:
        model: what they are for.
        state: by our names or ALBEF's (bare, or with the prefixes of its downstream models and of LAVIS), or a ViT of
            timm or transformers, or a BERT of transformers (its first layers are used).
        report: gets a line on everything that was done.
    """
    own = model.state_dict()
    state = from_vit(state, "image") if has_vit_names(state) else state
    plain = {name if name in own else plain_name(name): value for name, value in state.items()}
    copies = {_COPIES.sub(r"\1.", name): value for name, value in plain.items() if _COPIES.match(name)}
    made = _fitted(model, {name: value for name, value in plain.items() if not _COPIES.match(name)}, report)
    far = _fitted(model, copies, []) if copies else {}
    report += [f"{len(copies)} weights are a momentum copy's"] if copies else []
    for name, value in far.items():
        head = re.fullmatch(r"(objectives\.[^.]+\.[^.]+)(\..+)", name)
        made[f"{head[1]}_copy{head[2]}" if head else f"teacher.{name}"] = value
    return made


def plain_name(name: str) -> str:
    """ALBEF's pre-training name of a weight, whatever file it is from."""
    name = name.removeprefix("module.")
    if re.match(r"(blocks\.|patch_embed\.|pos_embed$|cls_token$|dist_token$|norm\.(weight|bias)$)", name):
        return f"{VISUAL}{name}"  # a bare ViT
    name = re.sub(r"^(bert\.)?(embeddings|encoder\.layer)\.", rf"{TEXTUAL}\2.", name)
    name = re.sub(r"^cls\.predictions", "text_encoder.cls.predictions", name)
    name = re.sub(r"^(text_encoder|text_decoder)(_m)?\.(embeddings|encoder)\.", r"\1\2.bert.\3.", name)
    return re.sub(r"\.gamma$", ".weight", re.sub(r"\.beta$", ".bias", name))


def _fitted(model: Loadable, state: State, report: list[str]) -> State:
    made = _renamed(model, _without_dist(_layers(model, state, report), report), report)
    made = _doubled(model, _interpolated(model, made, report), report)
    return _with_decoder(model, _with_types(made, report), report)


def _with_types(made: State, report: list[str]) -> State:
    for place in ("embed.", "decoder.embed."):
        words, types = made.get(f"{place}words.weight"), f"{place}segments.weight"
        if words is not None and types not in made:
            made = {**made, types: words.new_zeros(TYPES, words.shape[1])}
            report.append(f"{types}: the file has no token types, so they are zero")
    return made


def _layers(model: Loadable, state: State, report: list[str]) -> State:
    blocks = re.compile(rf"{VISUAL}blocks\.(\d+)\.")
    numbers = {int(found[1]) for name in state if (found := blocks.match(name))}
    own, there = len(model.image.layers), len(numbers)
    if there <= own:
        return state
    report.append(f"image encoder: the first {own} of {there} layers are taken")
    return {n: v for n, v in state.items() if not ((found := blocks.match(n)) and int(found[1]) >= own)}


def _without_dist(state: State, report: list[str]) -> State:
    token, table = f"{VISUAL}dist_token", f"{VISUAL}pos_embed"
    if token not in state:
        return state
    report.append("the distillation token and its place are left out")
    made = {name: value for name, value in state.items() if name != token}
    made[table] = state[table][:, [0, *range(2, state[table].shape[1])]]
    return made


def _renamed(model: Loadable, state: State, report: list[str]) -> State:
    depth = len(model.text.layers)
    names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
    table = {theirs: name for name in names if (theirs := albef_name(name, depth)) is not None}
    made: State = {}
    renamed, dropped, needless = 0, 0, 0
    for key, value in state.items():
        joint = re.fullmatch(rf"{re.escape(VISUAL)}blocks\.(\d+)\.attn\.qkv\.(weight|bias)", key)
        if joint:
            stem = f"image.layers.{joint[1]}.self_attention.attention."
            made |= {f"{stem}{part}.{joint[2]}": rows for part, rows in zip(PARTS, value.chunk(3), strict=True)}
            renamed += 1
        elif key.endswith(_TIED):
            dropped += 1  # numbered or tied here
        elif _NEEDLESS.match(key) and key not in names and not key.startswith("objectives."):
            needless += 1
        else:
            ours = table.get(key) or _more(key, depth, table) or key
            renamed += ours != key
            made[ours] = value
    report += [f"{renamed} weights had ALBEF's names"] if renamed else []
    report += [f"{dropped} weights are computed or tied here, not read"] if dropped else []
    report += [f"{needless} weights of poolers and classifiers are not needed"] if needless else []
    return made


def _more(key: str, depth: int, table: Mapping[str, str]) -> str | None:
    head = next((ours + key[len(theirs) :] for ours, theirs in HEADS.items() if key.startswith(theirs)), None)
    found = re.match(rf"({re.escape(TEXTUAL)}encoder\.layer\.)(\d+)(\..+)", key)
    if head is not None or found is None:
        return head
    first = table.get(f"{found[1]}{depth}{found[3]}")
    return None if first is None else first.replace("cross.text.0.", f"cross.text.{int(found[2]) - depth}.")


def _interpolated(model: Loadable, made: State, report: list[str]) -> State:
    for name, position in model.named_modules():
        table = made.get(f"{name}.table.weight")
        if table is not None and isinstance(position, LearnedPosition) and position.grid is not None:
            made = {**made, f"{name}.table.weight": _at_grid(name, table, position, report)}
    return made


def _at_grid(name: str, table: Tensor, position: LearnedPosition, report: list[str]) -> Tensor:
    table = table[0] if table.dim() == 3 else table
    side = round((len(table) - position.specials) ** 0.5)
    if position.grid is None or (side, side) == position.grid:
        return table
    rows, columns = position.grid
    report.append(f"{name}.table.weight: {side}x{side} places interpolated to {rows}x{columns}")
    return position.resize_state({"table.weight": table}, (side, side), position.grid)["table.weight"]


def _doubled(model: Loadable, made: State, report: list[str]) -> State:
    layer = re.compile(r"cross\.text\.(\d+)\.(.+)")
    found = {name: match for name in made if (match := layer.fullmatch(name))}
    there, own = 1 + max((int(match[1]) for match in found.values()), default=-1), len(model.cross.text)
    if model.images == 1 or not there or there * model.images != own:
        return made
    report.append(f"{there} cross layers, each used for {model.images} pictures")
    rest = {name: value for name, value in made.items() if name not in found}
    for name, match in found.items():
        for picture in range(model.images):
            rest[f"cross.text.{int(match[1]) * model.images + picture}.{match[2]}"] = made[name]
    return rest


def _with_decoder(model: Loadable, made: State, report: list[str]) -> State:
    if model.decoder is None or any(name.startswith(("decoder.layers.", "decoder.embed.")) for name in made):
        return made
    count = len(model.decoder.layers)
    upper = re.compile(r"cross\.text\.(\d+)\.(.+)")
    started: State = {}
    for name, value in made.items():
        found = upper.fullmatch(name)
        if found and int(found[1]) < count:
            started[f"decoder.layers.{found[1]}.{found[2]}"] = value
        elif name.startswith("embed."):
            started[f"decoder.{name}"] = value
        elif name.startswith(WORD_HEAD):
            started[f"decoder.head.{name.removeprefix(WORD_HEAD)}"] = value
    report += [f"decoder: {len(started)} weights start as the cross encoder's and the words'"] if started else []
    return {**made, **started}
