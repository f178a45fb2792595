"""Reads where the tokens of transformers' vision-language models lie: words with patches or regions."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.foreign.places import (
    PICTURE,
    SENTENCE,
    WHERE,
    Forget,
    PerBatch,
    TokenPlaces,
    WordPlaces,
    missing,
    numbered,
    own_layouts,
    patch_layout,
    watch,
)
from vlcli.nn import Layout, Sort


class CrossPlaces(TokenPlaces):
    """Words (queries) in cross-attention to another sequence: the text model of BLIP, a decoder of BERT."""

    def __init__(self, words: WordPlaces, others: TokenPlaces) -> None:
        self.words, self.others = words, others
        self.holds, self.keys = words.holds, others.holds
        self.told_by = f"{words.told_by} and {others.told_by}"

    def watch(self, forget: Forget) -> None:
        self.words.watch(forget)
        self.others.watch(forget)

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        there = self.others.layouts(y, y, False)[1]
        return numbered(self.words.of(x.shape[1], x.device), *SENTENCE), numbered(there, *PICTURE)


class RegionPlaces(TokenPlaces):
    """LXMERT: regions, or cross-attention of words and regions by one module in both directions.

    ``model`` is called with ``visual_pos``; the cross-attention of ``layers`` serves both directions. A stack of
    regions has no ``words`` and no ``layers``.
    """

    per_batch = ("boxes", "mask", "pictures")

    told_by = "`visual_pos` and `attention_mask`"

    def __init__(self, model: nn.Module, words: WordPlaces | None, layers: list[nn.Module]) -> None:
        self.model, self.words, self.layers = model, words, layers
        self.both_ways = bool(layers)
        boxes: frozenset[Sort] = frozenset({"box"})
        self.holds, self.keys = (boxes, frozenset()) if words is None else (words.holds, boxes)
        self.boxes: Tensor | None = None
        self.mask: Tensor | None = None
        self.pictures: Tensor | None = None

    def watch(self, forget: Forget) -> None:
        self.model.register_forward_pre_hook(partial(watch, self.see, forget), with_kwargs=True)
        for layer in self.layers:
            layer.register_forward_pre_hook(self.see_pair, with_kwargs=True)
        if self.words is not None:
            self.words.watch(forget)

    def see(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        """Reads the arguments of LxmertModel."""
        self.boxes, self.mask = arguments.get("visual_pos"), arguments.get("visual_attention_mask")

    def see_pair(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Reads the arguments of each LxmertXLayer: words, mask, regions."""
        self.pictures = kwargs["visual_feats"] if "visual_feats" in kwargs else args[2]

    def turned(self, x: Tensor, y: Tensor) -> bool:
        return x is self.pictures

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        if self.boxes is None:
            raise missing("boxes")
        mask = torch.ones_like(self.boxes[..., 0]) if self.mask is None else self.mask
        regions = numbered(Layout.for_boxes(self.boxes[..., :4], mask.bool()), *PICTURE)
        if self.words is None:
            return regions, regions
        words = numbered(self.words.of((y if turned else x).shape[1], x.device), *SENTENCE)
        return (regions, words) if turned else (words, regions)


class Kept(PerBatch):
    """Calls a bound method of a model and keeps its last result.

    ViLT draws the patches that it keeps, and returns their positions to the caller of this method alone.
    """

    per_batch = ("result",)

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        self.result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.result = self.method(*args, **kwargs)
        return self.result


class WordsAndPatches(TokenPlaces):
    """ViLT: a sentence, a class token and drawn patches in one sequence, as the module ``embeds`` embeds them."""

    per_batch = ("valid",)

    holds = frozenset({"word", "cell"})

    def __init__(self, embeds: Any, name: str, special: tuple[int, ...]) -> None:
        self.embeds, self.told_by = embeds, f"the words and patches of {name}"
        self.words = WordPlaces(embeds, name, special)
        self.drawn: Any = None
        self.valid: Tensor | None = None

    def watch(self, forget: Forget) -> None:
        if not isinstance(self.embeds.visual_embed, Kept):
            self.embeds.visual_embed = Kept(self.embeds.visual_embed)
        self.drawn = self.embeds.visual_embed
        self.words.watch(forget)
        self.embeds.register_forward_hook(partial(watch, self.see, forget), with_kwargs=True)

    def see(self, module: nn.Module, arguments: dict[str, Any], output: Any) -> None:
        """Forward hook: keeps the token mask, the second output of ViltEmbeddings."""
        self.valid = output[1].bool()

    def layouts(self, x: Tensor, y: Tensor, turned: bool) -> tuple[Layout, Layout]:
        if self.drawn.result is None or self.valid is None:
            what = "ViLT was given embedded patches, so it is not known where they stand."
            raise ComponentError(what, where=WHERE, hint="give it pixel_values")
        places = self.drawn.result[2][0].float()  # (B, N, 2)
        count = y.shape[1] - places.shape[1] - 1
        sentence = self.words.of(count, y.device).expand(len(places))
        picture = patch_layout(places, places.shape[1] + 1)
        picture.valid = self.valid[:, count:]
        return own_layouts(numbered(sentence, *SENTENCE) + numbered(picture, *PICTURE), x)
