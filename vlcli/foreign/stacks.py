"""Groups the attentions of a foreign model into stacks of layers."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from torch import nn

from vlcli import registry
from vlcli.foreign.equipper import AttentionEquipper
from vlcli.foreign.places import TokenPlaces
from vlcli.foreign.sources import WANTED, Sources
from vlcli.nn import AttentionShape
from vlcli.nn.position import listed

OBJECTS = "its tokens are queries for objects, which lie nowhere"


@dataclass
class AttentionStack:
    """The same attention of every layer of a model.

    Attributes:
        name: path, with ``*`` for the number of the layer.
        layers: path and module of each, in order.
        equipper: of their style; None if no style fits.
        places: gives the layouts of the tokens; None if nothing does.
        crosses: cross-attention: keys are another sequence than the queries.
        refusal: why the stack cannot be equipped; empty if it can.
    """

    name: str
    layers: list[tuple[str, nn.Module]] = field(default_factory=list)
    equipper: AttentionEquipper | None = None
    places: TokenPlaces | None = None
    crosses: bool = False
    refusal: str = ""

    def __str__(self) -> str:
        what = f"{self.name}  {len(self.layers)} x {type(self.layers[0][1]).__name__}"
        if self.refusal or self.places is None:
            return f"{what}: cannot be equipped: {self.refusal}"
        keys = f" looking at {listed(self.places.keys)}" if self.places.keys else ""
        return f"{what}: {listed(self.places.holds)}{keys}, told by {self.places.told_by}"

    def shape(self) -> AttentionShape:
        """Returns the sizes that an encoding is built for."""
        assert self.equipper is not None
        heads, width = self.equipper.heads(self.layers[0][1])
        return AttentionShape(heads * width, heads, len(self.layers), cross=self.crosses)


def find_stacks(
    model: nn.Module, tokens: TokenPlaces | None, special_ids: tuple[int, ...] | None
) -> list[AttentionStack]:
    """Returns every stack of attention with its style and the positions of its tokens, or a refusal."""
    equippers = [registry.of(AttentionEquipper).build(name) for name in registry.names("equippers")]
    sources = Sources(model, special_ids)
    stacks: dict[str, AttentionStack] = {}
    for path, module in model.named_modules():
        fitting = next((one for one in equippers if one.takes(module)), None)
        reason = "" if fitting else _refusal(module, equippers)
        if fitting is not None or reason:
            name = re.sub(r"\d+", "*", path)
            stacks.setdefault(name, AttentionStack(name, [], fitting, refusal=reason)).layers.append((path, module))
    for stack in stacks.values():
        path, first = stack.layers[0]
        if stack.equipper is None:
            continue
        stack.crosses = stack.equipper.crosses(path, first)
        stack.refusal = _unfit(stack, stack.equipper)
        if not stack.refusal:
            stack.places = tokens if tokens is not None and not stack.crosses else sources.of(path, stack.crosses)
        if not stack.refusal and stack.places is None:
            stack.refusal = (
                "it looks at tokens that the model is given, and nothing tells where they stand: give `keys`"
                if stack.crosses
                else f"nothing tells where its tokens stand ({WANTED} was looked for): give `tokens`"
            )
    return list(stacks.values())


def _unfit(stack: AttentionStack, equipper: AttentionEquipper) -> str:
    path = stack.layers[0][0]
    if "*" not in stack.name:
        return "it is one attention by itself (a pooling head), no stack of layers"
    if "decoder" in path.split(".") and any(part in path for part in ("self_attn", "encoder_attn")):
        return OBJECTS
    sizes = {equipper.heads(module) for _, module in stack.layers}
    if len(sizes) > 1:
        return f"its layers differ in heads and width of a head: {sorted(sizes)}"
    return ""


def _refusal(module: nn.Module, equippers: list[AttentionEquipper]) -> str:
    # Why an attention fits no style; empty if a module is no attention at all.
    reasons = [reason for one in equippers if (reason := one.refusal(module))]
    if reasons:
        return reasons[0]
    inner = list(module.modules())[1:]
    holder = any("ttention" in type(part).__name__ for part in inner)
    projects = sum(isinstance(part, nn.Linear) for part in inner) > 1  # an output layer alone is no attention
    if "ttention" not in type(module).__name__ or holder or not projects:
        return ""
    return f"{type(module).__name__} is of no known style"
