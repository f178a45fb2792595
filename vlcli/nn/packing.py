"""Removes padding from everything that is computed token by token.

Linear layers, norms and feed-forwards run on one row of real tokens (1, K, D); only attention sees padded rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vlcli.nn.layout import Layout


@dataclass
class Packing:
    """Indices of the real tokens of a padded batch.

    Attributes:
        places: (K,) of the flattened (B * T).
        rows: B.
        length: T.
    """

    places: Tensor
    rows: int
    length: int

    @classmethod
    def of(cls, valid: Tensor, worth: float = 0.95) -> Packing | None:
        """Pack ``valid`` (B, T); None if over ``worth`` of it is real, or while a graph is traced."""
        if valid.is_meta or torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return None
        places = valid.flatten().nonzero()[:, 0]
        rows, length = valid.shape
        return None if len(places) > worth * rows * length else cls(places, rows, length)

    def pack(self, x: Tensor) -> Tensor:
        """Convert (B, T, ...) to (1, K, ...)."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def unpack(self, x: Tensor) -> Tensor:
        """Convert (1, K, ...) to (B, T, ...) with zeros at padding."""
        blank = x.new_zeros(self.rows * self.length, *x.shape[2:])
        out: Tensor = blank.index_copy(0, self.places, x[0]).unflatten(0, (self.rows, self.length))
        return out

    def pack_layout(self, layout: Layout) -> Layout:
        """Return the layout of the packed tokens, without a grid."""
        packed = layout.expand(self.rows).map(self.pack)
        packed.grid, packed.runs = None, None
        if layout.runs is not None and len({route for route, _ in layout.runs}) == 1:
            packed.runs = ((layout.runs[0][0], len(self.places)),)
        return packed

    def spread(self, heads: Tensor) -> Tensor:
        """Convert (1, H, K, d) to (B, H, T, d)."""
        return self.unpack(heads.transpose(1, 2)).transpose(1, 2)
