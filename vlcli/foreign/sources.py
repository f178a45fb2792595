"""What tells where a stack's tokens stand: looked for from the attention outwards, until a module has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from vlcli.foreign.equipper import takes_arguments
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
"""What libraries call the convolution whose map becomes the tokens."""
TABLES = ("word_embeddings", "tok_embeddings", "embed_tokens", "token_embedding")
"""What libraries call the table of words."""
OWN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id")
WANTED = "a patch convolution, patch coordinates, spatial shapes, boxes or a table of words"
"""What is looked for, in words."""


class Sources:
    """Finds where the tokens of stacks stand.

    Args:
        model: all of it.
        special: ids of words that have no place; None: those that the configuration names.
    """

    def __init__(self, model: nn.Module, special: tuple[int, ...] | None) -> None:
        self.model, self.special = model, special
        self.modules = dict(model.named_modules())

    def of(self, path: str, crosses: bool) -> TokenPlaces | None:
        """The places of the tokens of an attention at ``path``; None where nothing tells them."""
        own = self.nearest(path, crosses)
        if own is None or not crosses or isinstance(own, RegionPlaces):
            return own
        other = self._single(GridPlaces)
        return CrossPlaces(own, other) if isinstance(own, WordPlaces) and other is not None else None

    def nearest(self, path: str, crosses: bool) -> TokenPlaces | None:
        """What the innermost module around ``path`` tells."""
        for outer in _outwards(path):
            for find in (self._patches, self._drawn, self._regions, self._grid, self._words):
                found = find(outer, path, crosses)
                if found is not None:
                    return found
        return None

    def _single(self, kind: type[GridPlaces]) -> GridPlaces | None:
        """The grid of the whole model, where it has one alone."""
        found = [path for path, module in self.modules.items() if _is_convolution(path, module)]
        return kind(self.modules[found[0]], found[0]) if len(found) == 1 else None

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
        """LXMERT, which is called with words, and with features and places of regions."""
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


def _outwards(path: str) -> Iterator[str]:
    """The paths of the modules around ``path``, from the inside; the model itself is ``""``."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def _is_convolution(path: str, module: nn.Module) -> bool:
    return isinstance(module, nn.Conv2d) and path.endswith(CONVOLUTIONS)
