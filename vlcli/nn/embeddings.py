"""Embeddings of words and features, the tokens of the first layer."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from vlcli.nn.batch import Images, Text
from vlcli.nn.layout import Layout
from vlcli.nn.model import DataSpec


class TextEmbeddings(nn.Module):
    """BERT's embeddings: word + segment + position, normalised.

    Args:
        positions: token encodings, applied to the sum before the norm.
        segments: rows of the segment table; 0 for none.
        frozen_padding: row 0 of the tables gets no gradient, as in LXMERT's code.

    Attributes:
        words: the word table, an ``nn.Embedding``: what ``Model.word_table`` returns.
        segments: the segment table; None without one.
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
        padding = data_spec.pad_id if frozen_padding else None
        self.words = nn.Embedding(data_spec.vocab_size, dim, padding_idx=padding)
        self.segments = nn.Embedding(segments, dim, padding_idx=0 if frozen_padding else None) if segments else None
        self.positions = nn.ModuleList(positions)
        self.norm = nn.LayerNorm(dim, eps=eps)
        self.drop = nn.Dropout(dropout)

    def forward(self, text: Text, layout: Layout | None = None) -> tuple[Tensor, Layout]:
        # Tokens have the shape (N, T, D).
        layout = text_layout(text) if layout is None else layout
        x = self.words(text.ids)  # (N, T, D)
        if self.segments is not None:
            which = torch.zeros_like(text.ids) if text.segments is None else text.segments
            x = x + self.segments(which)
        for position in self.positions:
            x = position(x, layout)
        return self.drop(self.norm(x)), layout


def text_layout(text: Text, *, source: int = 0) -> Layout:
    """Lay out a text, with its position ids."""
    layout = Layout.for_text(text.mask, text.special, source=source)
    if text.positions is not None:
        layout.index = text.positions
    return layout


class FeatureEmbeddings(nn.Module):
    """Projected and normalised features with their positions: LXMERT's object embedding with the encoding ``box``.

    Args:
        features: width of a feature.
        positions: token encodings, applied after the norm.
    """

    def __init__(
        self,
        features: int,
        dim: int,
        positions: Iterable[nn.Module] = (),
        *,
        eps: float = 1e-12,
        dropout: float = 0.1,
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
        out: Tensor = self.drop(x)
        return out


class Pooler(nn.Module):
    """BERT's pooler: tanh of a linear layer on the first token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dense = nn.Linear(dim, dim)

    def forward(self, hidden: Tensor) -> Tensor:
        # (N, T, D) -> (N, D)
        return torch.tanh(self.dense(hidden[:, 0]))


def hide(patches: Tensor, images: Images) -> Tensor:
    """Replace embedded patches (M, cells, D) in ``images.hidden`` by the mask's embedding; called before positions.

    A model that calls it has the capability ``hide`` and a ``grid``.
    """
    if images.hidden is None or images.blank is None:
        return patches
    return torch.where(images.hidden[..., None], images.blank[:, None].to(patches.dtype), patches)
