"""Embeddings of words and features, the tokens of the first layer."""

from collections.abc import Iterable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError, DataError
from vlcli.nn.batch import Images, Text
from vlcli.nn.layout import Layout
from vlcli.nn.records import DataSpec, EncoderOutput


class TextEmbeddings(nn.Module):
    """BERT's embeddings: word + segment + position, normalised.

    ``positions`` are token encodings, added before the norm; ``segments`` is the number of rows of the segment table, 0
    for none. With ``frozen_padding`` row 0 of the tables gets no gradient, as in LXMERT's code.
    """

    def __init__(
        self,
        data_spec: DataSpec,
        dim: int,
        positions: Iterable[nn.Module] = (),
        *,
        segments: int = 2,
        eps: float = 1e-12,
        dropout: float = 0.1,
        frozen_padding: bool = False,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(data_spec.vocab_size, dim, data_spec.pad_id if frozen_padding else None)
        self.segments = nn.Embedding(segments, dim, padding_idx=0 if frozen_padding else None) if segments else None
        self.positions = nn.ModuleList(positions)
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.drop = nn.Dropout(dropout)

    def forward(self, text: Text, layout: Layout | None = None) -> tuple[Tensor, Layout]:
        # Tokens have the shape (N, T, D).
        layout = text_layout(text) if layout is None else layout
        x = self.words(text.ids)  # (N, T, D)
        if self.segments is not None:
            x = x + self.segments(torch.zeros_like(text.ids) if text.segments is None else text.segments)
        for position in self.positions:
            x = position(x, layout)
        return self.drop(self.norm(x)), layout


def text_layout(text: Text, *, source: int = 0) -> Layout:
    """Lay out a text, with its position ids."""
    layout = Layout.for_text(text.mask, text.special, source=source)
    return layout if text.positions is None else replace(layout, index=text.positions)


class FeatureEmbeddings(nn.Module):
    """Projected and normalised features with their positions: LXMERT's object embedding with the encoding ``box``.

    The token encodings ``positions`` are applied after the norm.
    """

    def __init__(
        self, features: int, dim: int, positions: Iterable[nn.Module] = (), *, eps: float = 1e-12, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.project = nn.Linear(features, dim)
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.positions = nn.ModuleList(positions)
        self.drop = nn.Dropout(dropout)

    def forward(self, features: Tensor, layout: Layout) -> Tensor:
        # (M, R, F) -> (M, R, D)
        x = self.norm(self.project(features.to(self.project.weight.dtype)))
        for position in self.positions:
            x = position(x, layout)
        return cast("Tensor", self.drop(x))


class Pooler(nn.Module):
    """BERT's pooler: tanh of a linear layer on the first token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        # (N, T, D) -> (N, D)
        return torch.tanh(self.dense(hidden[:, 0]))


def image_grid(image: str, image_size: int, patch: int, grid: tuple[int, int], model: str) -> tuple[int, int]:
    """Return rows and columns of ``grid``, or of patches of ``pixels``; ComponentError unless these fill the image."""
    if image != "pixels":
        return int(grid[0]), int(grid[1])
    if image_size % patch:
        got = f"image_size {image_size}, patch {patch}"
        raise ComponentError("The image is no multiple of the patch.", where=f"model {model}", got=got)
    return image_size // patch, image_size // patch


def patch_embedding(image: str, patch: int, region_dim: int, hidden: int, dropout: float) -> nn.Module:
    """Return the convolution over the patches of ``pixels``, or the projection of stored features."""
    if image == "pixels":
        return nn.Conv2d(3, hidden, patch, stride=patch)
    return FeatureEmbeddings(region_dim, hidden, eps=1e-6, dropout=dropout)


def embed_grid(
    images: Images,
    patch: nn.Module,
    token: Tensor,
    positions: Iterable[nn.Module],
    grid: tuple[int, int],
    model: str,
    size: int | None = None,
) -> EncoderOutput:
    """Embed M images behind a class token as tokens (M, 1 + cells, D): hide what is masked, and add positions.

    Raises DataError if the batch has no pixels or features, or they are of another size.

    Args:
        patch: a convolution over pixels, or :class:`FeatureEmbeddings` of a stored grid of features.
        token: the class token (1, 1, D).
        positions: token encodings.
        grid: rows and columns of the cells.
        model: its registered name, for messages.
        size: height and width that pixels must have.
    """
    layout = Layout.for_grid(*grid, skip=1, device=token.device)
    if isinstance(patch, nn.Conv2d):
        pixels = images.pixels_for(model)  # (M, 3, H, W)
        if size is not None and pixels.shape[-2:] != (size, size) and not torch.compiler.is_exporting():
            got, expected = "x".join(map(str, pixels.shape[-2:])), f"{size}x{size}"
            raise DataError("The picture has another size.", where=f"model {model}", got=got, expected=expected)
        x = patch(pixels.to(token.dtype)).flatten(2).transpose(1, 2)  # (M, cells, D)
    else:
        regions = images.regions
        if regions is None or regions.features.shape[1] != grid[0] * grid[1]:
            what = "The model reads a grid of features, and the store holds something else."
            got = "none" if regions is None else f"{regions.features.shape[1]} a picture"
            hint = "extract with boxes: grid, and name the same grid in the model"
            expected = f"{grid[0]} x {grid[1]} cells"
            raise DataError(what, where=f"model {model}", got=got, expected=expected, hint=hint)
        x = patch(regions.features, Layout.for_grid(*grid, device=regions.features.device))  # (M, cells, D)
    x = torch.cat([token.expand(x.shape[0], -1, -1), hide(x, images)], 1)  # (M, 1 + cells, D)
    for position in positions:
        x = position(x, layout)
    return EncoderOutput(x, layout)


def hide(patches: Tensor, images: Images) -> Tensor:
    """Replace embedded patches (M, cells, D) in ``images.hidden`` by the mask's embedding; called before positions.

    A model that calls it has the capability ``hide`` and a ``grid``.
    """
    if images.hidden is None or images.blank is None:
        return patches
    return torch.where(images.hidden[..., None], images.blank[:, None].to(patches.dtype), patches)
