"""Finds the module that gives the positions of a stack's tokens: the innermost one around the attention."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from vlcli.foreign.arguments import takes_arguments
from vlcli.foreign.joint import CrossPlaces, RegionPlaces, WordsAndPatches
from vlcli.foreign.places import GridPlaces, PatchPlaces, TokenPlaces, WordPlaces

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
