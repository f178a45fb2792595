"""Caches keys and values of decoded words, so that the next word costs one column of attention."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from vlcli.nn.layout import Layout

Key = tuple[int, bool]
Pair = tuple[Tensor, Tensor]


@dataclass
class KeyValueCache:
    """Keys and values by (layer, whether in cross-attention), and the layout of their tokens.

    Keys are kept as projected: encodings that rotate them run after the cache, on all keys at once, with the state of
    the whole layout. Tokens that beams or samples of one picture have in common (the picture) are kept once.

    Attributes:
        kept: (B, H, T, d) keys and values of each row.
        layout: of all self-attention tokens so far, common ones first.
        shared: (A, H, P, d) keys and values of self-attention that ``per`` neighbouring rows have in common.
        per: rows that have them in common: B = A * per.
    """

    kept: dict[Key, Pair] = field(default_factory=dict)
    layout: Layout | None = None
    shared: dict[Key, Pair] = field(default_factory=dict)
    per: int = 1

    def __len__(self) -> int:
        return self.length

    @property
    def length(self) -> int:
        """Cached tokens; a symbol while a graph is exported, which ``len`` would make a constant."""
        return 0 if self.layout is None else self.layout.route.shape[1]

    def grow(self, layout: Layout) -> Layout:
        """Append the layout of new tokens and return that of all; a stack calls it once, before its layers."""
        self.layout = layout if self.layout is None else self.layout + layout
        return self.layout

    def copy(self) -> KeyValueCache:
        return replace(self, kept=dict(self.kept))

    def has(self, key: Key) -> bool:
        return key in self.kept or key in self.shared

    def get(self, key: Key) -> Pair:
        """Return keys and values row by row; those in common are repeated."""
        if key not in self.shared:
            return self.kept[key]
        k, v = (tensor.repeat_interleave(self.per, 0) for tensor in self.shared[key])
        return _joined((k, v), self.kept[key]) if key in self.kept else (k, v)

    def extend(self, key: Key, k: Tensor, v: Tensor) -> Pair:
        """Append keys and values (B, H, T, d), and return those that rows do not share."""
        self.kept[key] = _joined(self.kept[key], (k, v)) if key in self.kept else (k, v)
        return self.kept[key]

    def truncate(self, length: int) -> None:
        """Forget self-attention tokens from ``length`` on (a [MASK] whose word was asked for)."""
        for key, (k, v) in self.kept.items():
            if not key[1]:
                count = length - (self.shared[key][0].shape[2] if key in self.shared else 0)
                self.kept[key] = (k[:, :, :count], v[:, :, :count])
        if self.layout is not None:
            self.layout = self.layout.cut(0, length)

    def select(self, rows: Tensor, per: int = 1) -> KeyValueCache:
        """Return the cache of ``rows`` of the batch, repeats allowed.

        ``per`` neighbours in ``rows`` have their first tokens in common (beams of one picture), or are one row; those
        tokens are then kept once.
        """
        layout = self.layout if self.layout is None or len(self.layout.route) == 1 else self.layout.select(rows)
        owners = rows[::per] // self.per
        if per > 1 and not self.shared:
            common = {key: pair for key, pair in self.kept.items() if not key[1]}
            crossing = {key: pair for key, pair in self.kept.items() if key[1]}
            return KeyValueCache(_chosen(crossing, rows), layout, _chosen(common, owners), per)
        return KeyValueCache(_chosen(self.kept, rows), layout, self._of(owners), per if self.shared else 1)

    def _of(self, owners: Tensor) -> dict[Key, Pair]:
        count = next((len(k) for k, _ in self.shared.values()), 0)
        if len(owners) == count and torch.equal(owners, torch.arange(count, device=owners.device)):
            return self.shared
        return _chosen(self.shared, owners)


def _joined(first: Pair, then: Pair) -> Pair:
    return torch.cat([first[0], then[0]], 2), torch.cat([first[1], then[1]], 2)


def _chosen(pairs: dict[Key, Pair], rows: Tensor) -> dict[Key, Pair]:
    return {key: (_rows(k, rows), _rows(v, rows)) for key, (k, v) in pairs.items()}


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor.expand(len(rows), *tensor.shape[1:]) if len(tensor) == 1 else tensor.index_select(0, rows)
