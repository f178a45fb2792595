"""Keys and values of words already decoded, so that the next word costs one column and not the whole square."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from vlcli.nn.layout import Layout

Place = tuple[int, bool]


@dataclass
class KeyValueCache:
    """What a stack has seen: unrotated keys and values by (layer, whether crossing), and where their tokens stand.

    Keys are kept as projected; encodings that rotate them are applied after the cache, to all keys at once, with the
    state prepared for the whole layout.

    Attributes:
        kept: (B, H, T, d) keys and values by place.
        layout: of all self-attention tokens so far.
    """

    kept: dict[Place, tuple[Tensor, Tensor]] = field(default_factory=dict)
    layout: Layout | None = None

    def __len__(self) -> int:
        """How many tokens are cached."""
        return 0 if self.layout is None else len(self.layout)

    def grow(self, layout: Layout) -> Layout:
        """Append the places of new tokens; returns all of them. A stack calls it once, before its layers."""
        self.layout = layout if self.layout is None else self.layout + layout
        return self.layout

    def has(self, place: Place) -> bool:
        """Whether anything is kept there."""
        return place in self.kept

    def get(self, place: Place) -> tuple[Tensor, Tensor]:
        """Keys and values of a place."""
        return self.kept[place]

    def extend(self, place: Place, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Append keys and values (B, H, T, d); returns all of them."""
        if place in self.kept:
            old_k, old_v = self.kept[place]
            k, v = torch.cat([old_k, k], 2), torch.cat([old_v, v], 2)
        self.kept[place] = (k, v)
        return k, v

    def truncate(self, length: int) -> None:
        """Forget every self-attention token from ``length`` on (a [MASK] that was only asked about)."""
        for place, (k, v) in self.kept.items():
            if not place[1]:
                self.kept[place] = (k[:, :, :length], v[:, :, :length])
        if self.layout is not None:
            self.layout = _first(self.layout, length)

    def select(self, rows: Tensor) -> KeyValueCache:
        """The given rows of the batch, repeats allowed (beams)."""
        kept = {place: (_rows(k, rows), _rows(v, rows)) for place, (k, v) in self.kept.items()}
        shared = self.layout is None or len(self.layout.route) == 1
        return KeyValueCache(kept, self.layout if shared or self.layout is None else self.layout.select(rows))


def _rows(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor.expand(len(rows), *tensor.shape[1:]) if len(tensor) == 1 else tensor.index_select(0, rows)


def _first(layout: Layout, length: int) -> Layout:
    return layout.cut(0, length)
