"""Keys and values of words already decoded, so that the next word costs one column and not the whole square."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from vlcli.nn.layout import Layout

Place = tuple[int, bool]
Pair = tuple[Tensor, Tensor]


@dataclass
class KeyValueCache:
    """What a stack has seen: unrotated keys and values by (layer, whether crossing), and where their tokens stand.

    Keys are kept as projected; encodings that rotate them are applied after the cache, to all keys at once, with the
    state prepared for the whole layout. What beams or samples of one picture have in common (the picture, as a rule) is
    kept once for all of them: :meth:`select` is told how many rows come of one.

    Attributes:
        kept: (B, H, T, d) keys and values by place: the rows' own.
        layout: of all self-attention tokens so far, common ones first.
        shared: (A, H, P, d) keys and values of self-attention that ``per`` neighbouring rows have in common.
        per: rows that have them in common: B = A * per.
    """

    kept: dict[Place, Pair] = field(default_factory=dict)
    layout: Layout | None = None
    shared: dict[Place, Pair] = field(default_factory=dict)
    per: int = 1

    def __len__(self) -> int:
        """How many tokens are cached."""
        return self.length

    @property
    def length(self) -> int:
        """The same; a symbol where a graph is exported, which ``len`` would make a constant."""
        return 0 if self.layout is None else self.layout.route.shape[1]

    def grow(self, layout: Layout) -> Layout:
        """Append the places of new tokens; returns all of them. A stack calls it once, before its layers."""
        self.layout = layout if self.layout is None else self.layout + layout
        return self.layout

    def copy(self) -> KeyValueCache:
        """One that may grow while this one stays; the tensors are the same."""
        return replace(self, kept=dict(self.kept))

    def has(self, place: Place) -> bool:
        """Whether anything is kept there."""
        return place in self.kept or place in self.shared

    def get(self, place: Place) -> Pair:
        """Keys and values of a place, row by row: those in common are repeated."""
        if place not in self.shared:
            return self.kept[place]
        k, v = (tensor.repeat_interleave(self.per, 0) for tensor in self.shared[place])
        if place not in self.kept:
            return k, v
        own_k, own_v = self.kept[place]
        return torch.cat([k, own_k], 2), torch.cat([v, own_v], 2)

    def extend(self, place: Place, k: Tensor, v: Tensor) -> Pair:
        """Append keys and values (B, H, T, d); returns the rows' own."""
        if place in self.kept:
            old_k, old_v = self.kept[place]
            k, v = torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)
        self.kept[place] = (k, v)
        return k, v

    def truncate(self, length: int) -> None:
        """Forget the rows' own self-attention tokens from ``length`` on (a [MASK] that was only asked about)."""
        for place, (k, v) in self.kept.items():
            if not place[1]:
                own = length - (self.shared[place][0].shape[2] if place in self.shared else 0)
                self.kept[place] = (k[:, :, :own], v[:, :, :own])
        if self.layout is not None:
            self.layout = _first(self.layout, length)

    def select(self, rows: Tensor, per: int = 1) -> KeyValueCache:
        """The given rows of the batch, repeats allowed.

        Args:
            rows: which.
            per: each ``per`` neighbours of ``rows`` come of rows that have their first tokens in common (beams of one
                picture), or of one row; those tokens are then kept once.
        """
        layout = self.layout if self.layout is None or len(self.layout.route) == 1 else self.layout.select(rows)
        owners = rows[::per] // self.per
        if per > 1 and not self.shared:
            made = {place: pair for place, pair in self.kept.items() if not place[1]}
            crossing = {place: pair for place, pair in self.kept.items() if place[1]}
            return KeyValueCache(_chosen(crossing, rows), layout, _chosen(made, owners), per)
        return KeyValueCache(_chosen(self.kept, rows), layout, self._of(owners), per if self.shared else 1)

    def _of(self, owners: Tensor) -> dict[Place, Pair]:
        count = next((len(k) for k, _ in self.shared.values()), 0)
        if len(owners) == count and torch.equal(owners, torch.arange(count, device=owners.device)):
            return self.shared
        return _chosen(self.shared, owners)


def _chosen(pairs: dict[Place, Pair], rows: Tensor) -> dict[Place, Pair]:
    return {place: (_rows(k, rows), _rows(v, rows)) for place, (k, v) in pairs.items()}


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor.expand(len(rows), *tensor.shape[1:]) if len(tensor) == 1 else tensor.index_select(0, rows)


def _first(layout: Layout, length: int) -> Layout:
    return layout.cut(0, length)
