"""Batches without their padding: what works token by token sees real tokens alone, attention alone sees rows.

Linear layers, norms and feed-forwards are most of a step's work and know no neighbours, so they run on one long row of
real tokens (1, K, D); only between projection and output do tokens return to their rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from vlcli.nn.layout import Layout


@dataclass
class Packing:
    """Where the real tokens of a padded batch are.

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
        """For ``valid`` (B, T); None where over ``worth`` of it is real, or where lengths must not depend on data."""
        if valid.is_meta or torch.compiler.is_compiling() or torch.compiler.is_exporting():
            return None
        places = valid.flatten().nonzero()[:, 0]
        rows, length = valid.shape
        return None if len(places) > worth * rows * length else cls(places, rows, length)

    def pack(self, x: Tensor) -> Tensor:
        """(B, T, ...) as (1, K, ...)."""
        return x.flatten(0, 1).index_select(0, self.places)[None]

    def unpack(self, x: Tensor) -> Tensor:
        """(1, K, ...) as (B, T, ...), zeros at padding."""
        blank = x.new_zeros(self.rows * self.length, *x.shape[2:])
        out: Tensor = blank.index_copy(0, self.places, x[0]).unflatten(0, (self.rows, self.length))
        return out

    def pack_layout(self, layout: Layout) -> Layout:
        """The places of the packed tokens; a grid does not survive."""
        packed = layout.expand(self.rows).map(self.pack)
        packed.grid, packed.runs = None, None
        if layout.runs is not None and len({route for route, _ in layout.runs}) == 1:
            packed.runs = ((layout.runs[0][0], len(self.places)),)
        return packed

    def spread(self, heads: Tensor) -> Tensor:
        """(1, H, K, d) by row: (B, H, T, d)."""
        return self.unpack(heads.transpose(1, 2)).transpose(1, 2)
