"""Weights of CLIP and SigLIP under the names of their files, and of towers with and without adapters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

_PREFIXES = {"text_model.": "text.network.", "vision_model.": "image.network."}


def adapt(model: nn.Module, state: dict[str, Tensor], report: list[str]) -> dict[str, Tensor]:
    """A file's weights by the model's names.

    Args:
        model: with ``text.network``, ``image.network`` and projections.
        state: of a dual model of transformers, or of a bundle.
        report: gets a line for each conversion.
    """
    own = model.state_dict()
    made = {_ours(name): value for name, value in state.items() if not name.endswith("position_ids")}
    if made.keys() != state.keys():
        report.append("names of transformers' dual model: text_model, vision_model")
    bases = {name.replace(".base_layer.", "."): name for name in own if ".base_layer." in name}
    made = {bases.get(name, name): value for name, value in made.items()}
    fresh = {name: value for name, value in own.items() if ".lora_" in name and name not in made}
    if fresh and any(name in made for name in bases.values()):
        report.append(f"{len(fresh)} weights of adapters begin where they change nothing")
        made |= fresh
    return made


def _ours(name: str) -> str:
    for theirs, mine in _PREFIXES.items():
        if name.startswith(theirs):
            return mine + name.removeprefix(theirs)
    return name


def released(model: Any, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A model's weights by the names of transformers' dual model, adapters merged into the weights beside them."""
    inside = {name for name in state if ".lora_" in name}
    made = {}
    for name, value in state.items():
        if name in inside:
            continue
        plain = name.replace(".base_layer.", ".")
        for theirs, mine in _PREFIXES.items():
            plain = theirs + plain.removeprefix(mine) if plain.startswith(mine) else plain
        made[plain] = value + _update(model, name, state) if ".base_layer.weight" in name else value
    return made


def _update(model: nn.Module, name: str, state: Mapping[str, Tensor]) -> Tensor:
    place = name.removesuffix(".base_layer.weight")
    layer: Any = model.get_submodule(place)
    down, up = (state[f"{place}.lora_{side}.default.weight"] for side in ("A", "B"))
    return (up @ down) * float(layer.scaling["default"])
