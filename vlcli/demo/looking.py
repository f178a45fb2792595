"""Where the model looked: attention from the words of a text to the regions or patches of each picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vlcli.api import Loaded
from vlcli.drawings.pictures import token_boxes

MOST = 150_000
"""Numbers that are sent to the page for one picture; views of single heads and layers beyond are left out."""


def look(model: Loaded, text: str, pictures: Sequence[Any]) -> dict[str, Any] | None:
    """Attention from words to places of the pictures, as the page draws it; None where the model records none.

    Args:
        model: whose attention.
        text: question or sentence.
        pictures: of one request.

    Returns:
        ``words``, ``views`` (names: averages, layers, heads), and for each picture ``boxes`` (N, 4) in [0, 1] and
        ``weights`` (views, words, N).
    """
    if "fuse" not in model.model.capabilities or model.tokenizer is None:
        return None
    fused, attention = model.looked(text, list(pictures))
    words, places = _words(model.tokens(text))
    image, length = len(fused.image.layout), len(fused.text.layout)
    fits = _chosen(attention, length, image, len(pictures))
    if not fits or not places:
        return None
    found = []
    for number in range(len(pictures)):
        boxes, tokens = token_boxes(fused.image.layout, number)
        layers = {name: w[number][:, places][:, :, w.shape[-1] - image :][:, :, tokens] for name, w in fits.items()}
        if not len(tokens):
            return None
        found.append((boxes, views_of(layers)))
    views = list(found[0][1])
    return {
        "words": words,
        "views": views,
        "pictures": [
            {"boxes": _short(boxes), "weights": [_short(weights[view]) for view in views]} for boxes, weights in found
        ],
    }


def _words(pieces: Sequence[str]) -> tuple[list[str], list[int]]:
    """Word pieces without special tokens such as ``[CLS]``, and where they stand."""
    places = [place for place, piece in enumerate(pieces) if not (piece.startswith("[") and piece.endswith("]"))]
    return [pieces[place] for place in places], places


def _chosen(
    attention: dict[str, NDArray[np.float32]], text: int, image: int, pictures: int
) -> dict[str, NDArray[np.float32]]:
    """Probabilities from the text's tokens to those of each picture: of cross-attention, else of a joint sequence."""
    sides, joint = (text, image), (text + image, text + image)
    each = {name: weights for name, weights in attention.items() if weights.shape[0] == pictures}
    cross = {name: weights for name, weights in each.items() if "cross" in name and weights.shape[-2:] == sides}
    named = {name: weights for name, weights in cross.items() if name.endswith("text_to_image")}
    return named or cross or {name: weights for name, weights in each.items() if weights.shape[-2:] == joint}


def views_of(layers: dict[str, NDArray[np.float32]]) -> dict[str, NDArray[np.float32]]:
    """Averages over layers and heads, over heads, and single heads as far as :data:`MOST` allows."""
    stack = list(layers.values())
    made = {"all layers, all heads": np.mean([weights.mean(0) for weights in stack], 0)}
    size = made["all layers, all heads"].size
    if len(layers) > 1 and (len(layers) + 1) * size <= MOST:
        made |= {f"layer {number}, all heads": weights.mean(0) for number, weights in enumerate(stack, 1)}
    if (len(made) + sum(map(len, stack))) * size <= MOST:
        for number, weights in enumerate(stack, 1):
            made |= {f"layer {number}, head {head}": one for head, one in enumerate(weights, 1)}
    return made


def _short(values: NDArray[np.float32]) -> Any:
    return np.round(values.astype(np.float64), 4).tolist()
