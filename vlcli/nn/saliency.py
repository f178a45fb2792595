"""Grad-CAM on recorded attention from words to a picture."""

import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vlcli.errors import UsageError
from vlcli.nn.layout import Layout
from vlcli.nn.model import Recorder

_TO_IMAGE = "text_to_image"  # ending of the names of cross-attention from words to a picture


def word_layers(record: Recorder, text: int, image: int) -> list[str]:
    """Return the names of recorded attention from ``text`` tokens to ``image`` tokens, in the order of the layers.

    Without cross-attention these are layers over both in one sequence, words first.
    """
    shapes = {name: tuple(weights.shape[-2:]) for name, weights in record.attention.items()}
    across = [name for name, shape in shapes.items() if shape == (text, image)]
    joint = [name for name, shape in shapes.items() if shape == (text + image, text + image)]
    return [name for name in across if name.endswith(_TO_IMAGE)] or across or joint


def choose_layer(names: Iterable[str], pattern: str | None, where: str, share: float = 0.5) -> str:
    """Return the last layer that matches a pattern (``cross.2.*``), or without one that at ``share`` of the depth.

    A ``share`` of 0.5 is the middle, of two the lower (ALBEF: the third of six). Raises UsageError if none matches.
    """
    known = list(names)
    fits = [name for name in known if pattern is None or fnmatch.fnmatchcase(name, pattern)]
    if not fits:
        what, expected = "No such attention from words to a picture.", ", ".join(known) or "(the model records none)"
        raise UsageError(what, where=f"{where}, layer", got=str(pattern), expected=expected)
    return fits[int((len(fits) - 1) * share)] if pattern is None else fits[-1]


def grad_cam(weights: Tensor, score: Tensor, head: int | None = None, again: bool = False) -> Tensor:
    """Multiply attention by the positive part of its gradient: (P, T, R); UsageError if there is no such head.

    ``weights`` (P, H, T, R) are recorded probabilities, of which ``score`` (P,) is a function. Without ``head`` the
    result is the mean of all.
    """
    if head is not None and not 0 <= head < weights.shape[1]:
        raise UsageError("No such head.", where="head", got=str(head), expected=f"0 to {weights.shape[1] - 1}")
    (gradient,) = torch.autograd.grad(score.sum(), weights, retain_graph=again)
    maps = weights.detach() * gradient.clamp(min=0)  # (P, H, T, R)
    return maps.mean(1) if head is None else maps[:, head]


@dataclass
class WordMaps:
    """Grad-CAM ``maps`` (P, T, R) of P pairs by word and image token, in the layer ``name``.

    ``words`` (P, T) bool marks real tokens of the sentence, ``special`` (P, T) class tokens and separators; ``image``
    is the layout of the image tokens.
    """

    maps: Tensor
    words: Tensor
    special: Tensor
    image: Layout
    name: str

    def whole(self, specials: bool = True) -> Tensor:
        """Return (P, R), the mean over a sentence's tokens, with class tokens and separators if ``specials``."""
        counted = (self.words if specials else self.words & ~self.special)[..., None].to(self.maps.dtype)  # (P, T, 1)
        return (self.maps * counted).sum(1) / counted.sum(1).clamp(min=1)


def word_maps(
    step: Any, score: Tensor, *, layer: str | None = None, head: int | None = None, where: str = "grad-cam"
) -> WordMaps:
    """Compute Grad-CAM of each example's fused pair in one layer; UsageError if there is no such layer or head.

    Arguments are as in :func:`image_maps`, with one picture per example; without ``layer`` it is the middle one.
    """
    fused = step.fused()
    (rows, count), regions = fused.text.hidden.shape[:2], fused.image.hidden.shape[1]
    name = choose_layer(word_layers(step.record, count, regions), layer, where)
    maps = grad_cam(step.record.attention[name], score, head)[:, :count, -regions:]
    text = fused.text.layout.expand(rows)
    return WordMaps(maps, text.valid, text.special, fused.image.layout, name)


def image_maps(
    step: Any, score: Tensor, *, layer: str | None = None, head: int | None = None, where: str = "grad-cam"
) -> tuple[Tensor, Layout]:
    """Compute Grad-CAM of each example's score on its picture's class token: (B, R), and the R tokens' layout.

    Examples of one picture share its pass, not its gradient: they are differentiated in turns.

    Args:
        step: passes recorded with gradients (``Recorder(gradients=True)``).
        score: (B,), such as the cosine of text and picture, of the same passes.
        layer: a pattern; None: at three quarters of the depth (ALBEF: the ninth of twelve).
        head: one head; None: all. UsageError: no such layer or head.
    """
    states, rows = step.image(), step.pairs()[1]
    tokens, kept = states.hidden.shape[1], step.record.attention
    names = [name for name, probs in kept.items() if name.startswith("image.") and probs.shape[-1] == tokens]
    weights = kept[choose_layer(names, layer, where, share=0.75)]  # (M, H, R, R)
    maps = torch.zeros(len(rows), weights.shape[-1], dtype=weights.dtype, device=weights.device)
    pictures = rows.tolist()
    turns = [pictures[:number].count(picture) for number, picture in enumerate(pictures)]
    for turn in range(max(turns) + 1):
        chosen = torch.tensor([number for number, other in enumerate(turns) if other == turn], device=rows.device)
        maps[chosen] = grad_cam(weights, score[chosen], head, again=turn < max(turns))[rows[chosen], 0]
    return maps, states.select(rows).layout
