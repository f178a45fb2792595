"""Attention masks, built when they are first needed, and the removal of padding from what is computed token by token.

Linear layers, norms and feed-forwards run on one row of real tokens (1, K, D); only attention sees padded rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import and_

import torch
from torch import Tensor

from vlcli.nn.layout import Layout


@dataclass
class Packing:
    """Indices ``places`` (K,) of the real tokens of a padded batch, flattened from ``rows`` x ``length``."""

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
        return torch.unflatten(blank.index_copy(0, self.places, x[0]), 0, (self.rows, self.length))

    def pack_layout(self, layout: Layout) -> Layout:
        """Return the layout of the packed tokens, without a grid."""
        routes = {route for route, _ in layout.runs or ()}
        runs = ((routes.pop(), len(self.places)),) if len(routes) == 1 else None
        return replace(layout.expand(self.rows).map(self.pack), grid=None, runs=runs)

    def spread(self, heads: Tensor) -> Tensor:
        """Convert (1, H, K, d) to (B, H, T, d)."""
        return self.unpack(heads.transpose(1, 2)).transpose(1, 2)


@dataclass
class AttentionMask:
    """Keys that each query may attend to.

    Attributes:
        keys: (B, Tk) bool, False at padding; None: no padding.
        causal: queries attend to no later key; the last query has the place of the last key (cached decoding).
        prefix: with ``causal``: number or (B,) numbers of first keys to which every query attends, and which attend
            only to one another (sequence-to-sequence masks).
        window: a query attends to keys at most this far from its place.
        dense: (B, Tq, Tk) or (B, H, Tq, Tk) bool, True where attention is allowed by this too.
    """

    keys: Tensor | None = None
    causal: bool = False
    prefix: int | Tensor = 0
    window: int | None = None
    dense: Tensor | None = None
    _tensors: dict[tuple[object, ...], Tensor | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def sequence_to_sequence(cls, valid: Tensor, prefix: int, causal: Tensor | None) -> AttentionMask:
        """Return the mask of rows, some of which generate: tokens behind the prefix see it and earlier tokens.

        ``valid`` (B or 1, T) are real tokens, the first ``prefix`` of which see one another. Rows that are not
        ``causal`` (B,) are all prefix; None: no row generates.
        """
        if causal is None:
            return cls(valid)
        return cls(valid, causal=True, prefix=torch.where(causal, prefix, valid.shape[1]))

    def allowed(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """Return (B or 1, 1 or H, Tq, Tk) bool, True where attention is allowed; None if it is everywhere."""
        return self._once((queries, keys, device), lambda: self._build(queries, keys, device))

    def bias(self, queries: int, keys: int, device: torch.device, dtype: torch.dtype) -> Tensor | None:
        """Return the term to add to scores: 0 where attention is allowed, the dtype's lowest number elsewhere."""

        def make() -> Tensor | None:
            if (allowed := self.allowed(queries, keys, device)) is None:
                return None
            return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill(~allowed, torch.finfo(dtype).min)

        return self._once((queries, keys, device, dtype), make)

    def _once(self, key: tuple[object, ...], make: Callable[[], Tensor | None]) -> Tensor | None:
        if torch.compiler.is_exporting():  # lengths are symbols there, which no dictionary can hold
            return make()
        if key not in self._tensors:
            self._tensors[key] = make()
        return self._tensors[key]

    def select(self, rows: Tensor) -> AttentionMask:
        def pick(tensor: Tensor | None) -> Tensor | None:
            return tensor if tensor is None or len(tensor) == 1 else tensor[rows]

        prefix = self.prefix[rows] if isinstance(self.prefix, Tensor) else self.prefix
        return AttentionMask(pick(self.keys), self.causal, prefix, self.window, pick(self.dense))

    def _build(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        parts = [self.keys[:, None, None, :]] if self.keys is not None else []
        if self.causal or self.window is not None:
            parts.append(self._places(queries, keys, device))
        if self.dense is not None:
            parts.append(self.dense if self.dense.dim() == 4 else self.dense[:, None])
        return reduce(and_, parts) if parts else None

    def _places(self, queries: int, keys: int, device: torch.device) -> Tensor:
        query = torch.arange(keys - queries, keys, device=device)[:, None]  # (Tq, 1)
        key = torch.arange(keys, device=device)[None]  # (1, Tk)
        seen = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        if self.causal:
            prefix = torch.as_tensor(self.prefix, device=device).reshape(-1, 1, 1)
            seen = (key[None] < prefix) | ((key <= query)[None] & (query[None] >= prefix))  # (B or 1, Tq, Tk)
        if self.window is not None:
            seen = seen & ((key - query).abs() <= self.window)[None]
        return seen[:, None]
