"""Groups attentions of a foreign model into stacks of layers, and finds the source of the positions of their tokens."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from vlcli import registry
from vlcli.foreign.equipment import AttentionEquipper
from vlcli.foreign.joint import CrossPlaces, RegionPlaces, WordsAndPatches
from vlcli.foreign.places import GridPlaces, PatchPlaces, TokenPlaces, WordPlaces, takes_arguments
from vlcli.nn import AttentionShape
from vlcli.nn.position import listed

# Names of the patch convolution in libraries
CONVOLUTIONS = (
    "input_projection",
    "patch_embed.proj",
    "patch_embeddings.projection",
    "patch_embeddings",
    "patch_embedding",
    "conv_proj",
)
# Names of the word embeddings in libraries
TABLES = ("word_embeddings", "tok_embeddings", "embed_tokens", "token_embedding")
OWN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
WANTED = "a patch convolution, patch coordinates, spatial shapes, boxes or a table of words"


class Sources:
    """Finds the positions of stacks' tokens; ``special`` are ids without one, None: those of the configuration."""

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
            if (places := next(self._inside(outer, path, crosses), None)) is not None:
                return places
        return None

    def _inside(self, outer: str, path: str, crosses: bool) -> Iterator[TokenPlaces]:
        owner = self.modules[outer]
        below = [(name, one) for name, one in self.modules.items() if name.startswith(f"{outer}." if outer else "")]
        for name, module in below:
            coordinates = takes_arguments(module, "patch_coord", "patch_valid")
            if coordinates and hasattr(module, "dynamic_feat_size") and name != outer:
                yield PatchPlaces(module, name, "naflex")
        for name, module in below:
            if name.endswith("embeddings") and takes_arguments(module, "pixel_values", "spatial_shapes"):
                yield PatchPlaces(module, name, "shapes")
        for name, module in below:
            if hasattr(module, "visual_embed"):
                yield WordsAndPatches(module, name, self._ids(module))
        if takes_arguments(owner, "input_ids", "visual_feats", "visual_pos", "visual_attention_mask"):
            words = WordPlaces(owner, "`attention_mask`", self._ids(owner))
            if crosses:
                yield RegionPlaces(owner, words, [one for _, one in below if hasattr(one, "visual_attention")])
            yield RegionPlaces(owner, None, []) if re.search(r"r_layers|visn_self_att", path) else words
        for name, module in below:
            if _is_convolution(name, module):
                yield GridPlaces(module, name)
        tables = [name for name, one in below if isinstance(one, nn.Embedding) and name.endswith(TABLES)]
        if tables and takes_arguments(owner, "attention_mask", "input_ids"):
            yield WordPlaces(owner, tables[0], self._ids(owner))

    def _ids(self, owner: nn.Module) -> tuple[int, ...]:
        if self.special is not None:
            return self.special
        config: Any = getattr(owner, "config", None)
        named = [getattr(config, name, None) for name in OWN_IDS]
        return tuple(sorted({one for one in named if isinstance(one, int)}))


def _is_convolution(path: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and path.endswith(CONVOLUTIONS)


@dataclass
class AttentionStack:
    """The same attention of every layer of a model.

    Attributes:
        name: path, with ``*`` for the number of the layer.
        layers: path and module of each, in order.
        equipper: of their style; an instance of the base class if no style fits.
        places: gives the layouts of the tokens; an instance of the base class if nothing does.
        crosses: cross-attention: keys are another sequence than the queries.
        refusal: why the stack cannot be equipped; empty if it can.
    """

    name: str
    layers: list[tuple[str, nn.Module]] = field(default_factory=list)
    equipper: AttentionEquipper = field(default_factory=AttentionEquipper)
    places: TokenPlaces = field(default_factory=TokenPlaces)
    crosses: bool = False
    refusal: str = ""

    def __str__(self) -> str:
        what = f"{self.name}  {len(self.layers)} x {type(self.layers[0][1]).__name__}"
        if self.refusal:
            return f"{what}: cannot be equipped: {self.refusal}"
        keys = f" looking at {listed(self.places.keys)}" if self.places.keys else ""
        return f"{what}: {listed(self.places.holds)}{keys}, told by {self.places.told_by}"

    def shape(self) -> AttentionShape:
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
        stack = AttentionStack(re.sub(r"\d+", "*", path))
        if fitting := [one for one in equippers if one.takes(module)]:
            stack.equipper = fitting[0]
        else:
            stack.refusal = _refusal(module, equippers)
        if fitting or stack.refusal:
            stacks.setdefault(stack.name, stack).layers.append((path, module))
    for stack in stacks.values():
        if not stack.refusal:
            _place(stack, tokens, sources)
    return list(stacks.values())


def _place(stack: AttentionStack, tokens: TokenPlaces | None, sources: Sources) -> None:
    path, first = stack.layers[0]
    stack.crosses = stack.equipper.crosses(path, first)
    sizes = {stack.equipper.heads(module) for _, module in stack.layers}
    if "*" not in stack.name:
        stack.refusal = "it is one attention by itself (a pooling head), no stack of layers"
    elif "decoder" in path.split(".") and any(part in path for part in ("self_attn", "encoder_attn")):
        stack.refusal = "its tokens are queries for objects, which lie nowhere"
    elif len(sizes) > 1:
        stack.refusal = f"its layers differ in heads and width of a head: {sorted(sizes)}"
    else:
        places = sources.of(path, stack.crosses) if tokens is None or stack.crosses else tokens
        stack.places = places or stack.places
        if places is None and stack.crosses:
            given = "it looks at tokens that the model is given"
            stack.refusal = f"{given}, and nothing tells where they stand: give `keys`"
        elif places is None:
            stack.refusal = f"nothing tells where its tokens stand ({WANTED} was looked for): give `tokens`"


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
