"""Groups attentions of a foreign model into stacks of layers, and finds the source of the positions of their tokens."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from vlcli import registry
from vlcli.foreign.equipment import AttentionEquipper
from vlcli.foreign.joint import CrossPlaces, RegionPlaces, WordsAndPatches
from vlcli.foreign.places import GridPlaces, PatchPlaces, TokenPlaces, WordPlaces, takes_arguments
from vlcli.nn import AttentionShape
from vlcli.nn.position import listed

CONVOLUTIONS = (
    "input_projection",
    "patch_embed.proj",
    "patch_embeddings.projection",
    "patch_embeddings",
    "patch_embedding",
    "conv_proj",
)
"""Names of the patch convolution in libraries."""
TABLES = ("word_embeddings", "tok_embeddings", "embed_tokens", "token_embedding")
"""Names of the word embeddings in libraries."""
OWN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
WANTED = "a patch convolution, patch coordinates, spatial shapes, boxes or a table of words"
"""The sources, for messages."""


class Sources:
    """Finds the positions of the tokens of stacks.

    Args:
        model: the whole model.
        special: ids of words without a position; None: those that the configuration names.
    """

    def __init__(self, model: nn.Module, special: tuple[int, ...] | None) -> None:
        self.model, self.special = model, special
        self.modules = dict(model.named_modules())

    def of(self, path: str, crosses: bool) -> TokenPlaces | None:
        """Returns the positions of the tokens of an attention at ``path``; None if nothing gives them."""
        places = self.nearest(path, crosses)
        if places is None or not crosses or isinstance(places, RegionPlaces):
            return places
        maps = [(module, name) for name, module in self.modules.items() if _is_convolution(name, module)]
        return CrossPlaces(places, GridPlaces(*maps[0])) if isinstance(places, WordPlaces) and len(maps) == 1 else None

    def nearest(self, path: str, crosses: bool) -> TokenPlaces | None:
        """Returns the positions that the innermost module around ``path`` gives."""
        outer = path
        while outer:
            outer = outer.rpartition(".")[0]  # the model itself is ""
            for find in (self._patches, self._drawn, self._regions, self._grid, self._words):
                places = find(outer, path, crosses)
                if places is not None:
                    return places
        return None

    def _below(self, outer: str, fits: Callable[[str, nn.Module], bool]) -> Iterator[tuple[str, nn.Module]]:
        prefix = f"{outer}." if outer else ""
        return ((path, one) for path, one in self.modules.items() if path.startswith(prefix) and fits(path, one))

    def _patches(self, outer: str, path: str, crosses: bool) -> TokenPlaces | None:
        for name, module in self._below(outer, lambda _, one: takes_arguments(one, "patch_coord", "patch_valid")):
            if hasattr(module, "dynamic_feat_size") and name != outer:
                return PatchPlaces(module, name, "naflex")
        for name, module in self._below(outer, lambda name, _: name.endswith("embeddings")):
            if takes_arguments(module, "pixel_values", "spatial_shapes"):
                return PatchPlaces(module, name, "shapes")
        return None

    def _drawn(self, outer: str, path: str, crosses: bool) -> TokenPlaces | None:
        for name, module in self._below(outer, lambda _, one: hasattr(one, "visual_embed")):
            return WordsAndPatches(module, name, self._ids(module))
        return None

    def _regions(self, outer: str, path: str, crosses: bool) -> TokenPlaces | None:
        model = self.modules[outer]
        if not takes_arguments(model, "input_ids", "visual_feats", "visual_pos", "visual_attention_mask"):
            return None
        words = WordPlaces(model, "`attention_mask`", self._ids(model))
        if crosses:
            layers = [one for _, one in self._below(outer, lambda _, one: hasattr(one, "visual_attention"))]
            return RegionPlaces(model, words, layers)
        return RegionPlaces(model, None, []) if re.search(r"r_layers|visn_self_att", path) else words

    def _grid(self, outer: str, path: str, crosses: bool) -> TokenPlaces | None:
        for name, module in self._below(outer, _is_convolution):
            return GridPlaces(module, name)
        return None

    def _words(self, outer: str, path: str, crosses: bool) -> TokenPlaces | None:
        owner = self.modules[outer]
        if not takes_arguments(owner, "attention_mask") or not takes_arguments(owner, "input_ids"):
            return None
        tables = self._below(outer, lambda name, one: isinstance(one, nn.Embedding) and name.endswith(TABLES))
        for name, _ in tables:
            return WordPlaces(owner, name, self._ids(owner))
        return None

    def _ids(self, owner: nn.Module) -> tuple[int, ...]:
        if self.special is not None:
            return self.special
        config: Any = getattr(owner, "config", None)
        named = [getattr(config, name, None) for name in OWN_IDS]
        return tuple(sorted({one for one in named if isinstance(one, int)}))


def _is_convolution(path: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and path.endswith(CONVOLUTIONS)


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
