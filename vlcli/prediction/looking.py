"""Attention from the words of a text to the regions or patches of each picture."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcli.drawings.base import token_boxes

Weights = NDArray[np.float32]
# Numbers that are sent to the page for one picture; views of single heads and layers beyond are left out
MOST = 150_000


def look(model: Any, text: str, pictures: Sequence[Any]) -> dict[str, Any] | None:
    """Return a ``vlcli.Loaded``'s attention from words to pictures of one request; None where it records none.

    The mapping has ``words``, ``views`` (names: averages, layers, heads), and in ``pictures`` for each ``boxes`` (N, 4)
    in [0, 1] and ``weights`` (views, words, N).
    """
    if "fuse" not in model.model.capabilities or model.tokenizer is None:
        return None
    fused, attention = model.looked(text, list(pictures))
    pieces = model.tokens(text)
    words = [n for n, piece in enumerate(pieces) if not (piece.startswith("[") and piece.endswith("]"))]  # not [CLS]
    image, length = len(fused.image.layout), len(fused.text.layout)
    chosen = _chosen(attention, length, image, len(pictures))
    if not chosen or not words:
        return None
    shown: list[tuple[Any, dict[str, Weights]]] = []
    for number in range(len(pictures)):
        boxes, tokens = token_boxes(fused.image.layout, number)
        if not len(tokens):
            return None
        layers = [w[number][:, words][:, :, w.shape[-1] - image :][:, :, tokens] for w in chosen]
        shown.append((_short(boxes), views_of(layers)))
    views = [view for view in shown[0][1] if all(view in weights for _, weights in shown)]
    documents = [{"boxes": boxes, "weights": [_short(weights[view]) for view in views]} for boxes, weights in shown]
    return {"words": [pieces[n] for n in words], "views": views, "pictures": documents}


def _chosen(attention: dict[str, Weights], text: int, image: int, pictures: int) -> list[Weights]:
    # probabilities from text to pictures (pictures, heads, queries, keys): cross-attention, else joint
    sides, joint = (text, image), (text + image, text + image)
    each = {name: weights for name, weights in attention.items() if weights.shape[0] == pictures}
    cross = {name: weights for name, weights in each.items() if "cross" in name and weights.shape[-2:] == sides}
    named = [weights for name, weights in cross.items() if name.endswith("text_to_image")]
    return named or list(cross.values()) or [weights for weights in each.values() if weights.shape[-2:] == joint]


def views_of(layers: Sequence[Weights]) -> dict[str, Weights]:
    """Return averages (words, regions) of layers (heads, words, regions), and single heads if :data:`MOST` allows."""
    views = {"all layers, all heads": np.mean([weights.mean(0) for weights in layers], 0)}  # (words, regions)
    size = views["all layers, all heads"].size
    if len(layers) > 1 and (len(layers) + 1) * size <= MOST:
        views |= {f"layer {number}, all heads": weights.mean(0) for number, weights in enumerate(layers, 1)}
    if (len(views) + sum(map(len, layers))) * size <= MOST:
        for number, weights in enumerate(layers, 1):
            views |= {f"layer {number}, head {head}": one for head, one in enumerate(weights, 1)}
    return views


def _short(values: Weights) -> Any:
    return values.astype(np.float64).round(4).tolist()
