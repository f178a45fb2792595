"""Who may look at whom: built once per sequence, turned into a tensor late and once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class AttentionMask:
    """The rule for queries looking at keys.

    Attributes:
        keys: (B, Tk) bool, True at keys that exist; None: all do.
        causal: a query sees keys up to its own place only, counted from the end of the keys (cached decoding).
        prefix: with ``causal``: that many first keys are seen by every query and see only one another
            (sequence-to-sequence masks); an int or (B,) integers.
        window: a query sees keys at most this far from its own place.
        dense: (B, Tq, Tk) or (B, H, Tq, Tk) bool, True where looking is allowed; joined with the rest by "and".
    """

    keys: Tensor | None = None
    causal: bool = False
    prefix: int | Tensor = 0
    window: int | None = None
    dense: Tensor | None = None
    _made: dict[tuple[object, ...], Tensor | None] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def sequence_to_sequence(cls, valid: Tensor, prefix: int, causal: Tensor | None) -> AttentionMask:
        """The mask of rows of which some generate: a token behind the prefix sees the prefix and tokens up to itself.

        Args:
            valid: (B or 1, T) real tokens.
            prefix: first tokens, which see one another.
            causal: (B,) rows that generate; in the others all tokens are prefix. None: no row does.
        """
        if causal is None:
            return cls(valid)
        return cls(valid, causal=True, prefix=torch.where(causal, prefix, valid.shape[1]))

    def allowed(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        """(B or 1, 1 or H, Tq, Tk) bool, True where looking is allowed; None where everything is."""
        return self._once((queries, keys, device), lambda: self._build(queries, keys, device))

    def bias(self, queries: int, keys: int, device: torch.device, dtype: torch.dtype) -> Tensor | None:
        """The same as numbers to add to scores: 0 where allowed, the dtype's lowest elsewhere."""

        def make() -> Tensor | None:
            allowed = self.allowed(queries, keys, device)
            if allowed is None:
                return None
            blank = torch.zeros(allowed.shape, dtype=dtype, device=device)
            return blank.masked_fill(~allowed, torch.finfo(dtype).min)

        return self._once((queries, keys, device, dtype), make)

    def _once(self, place: tuple[object, ...], make: Callable[[], Tensor | None]) -> Tensor | None:
        if torch.compiler.is_exporting():  # lengths are symbols there, which no dictionary can hold
            return make()
        if place not in self._made:
            self._made[place] = make()
        return self._made[place]

    def select(self, rows: Tensor) -> AttentionMask:
        """For the given rows of the batch."""
        pick = _picker(rows)
        prefix = self.prefix[rows] if isinstance(self.prefix, Tensor) else self.prefix
        return AttentionMask(pick(self.keys), self.causal, prefix, self.window, pick(self.dense))

    def _build(self, queries: int, keys: int, device: torch.device) -> Tensor | None:
        parts = [self.keys[:, None, None, :]] if self.keys is not None else []
        if self.causal or self.window is not None:
            parts.append(self._places(queries, keys, device))
        if self.dense is not None:
            parts.append(self.dense if self.dense.dim() == 4 else self.dense[:, None])
        made: Tensor | None = None
        for part in parts:
            made = part if made is None else made & part
        return made

    def _places(self, queries: int, keys: int, device: torch.device) -> Tensor:
        own = torch.arange(keys - queries, keys, device=device)[:, None]  # (Tq, 1)
        other = torch.arange(keys, device=device)[None]  # (1, Tk)
        seen = torch.ones(1, queries, keys, dtype=torch.bool, device=device)
        if self.causal:
            prefix = torch.as_tensor(self.prefix, device=device).reshape(-1, 1, 1)
            inside = other[None] < prefix  # the prefix is seen by all; it sees only itself
            seen = inside | ((other <= own)[None] & (own[None] >= prefix))
        if self.window is not None:
            seen = seen & ((other - own).abs() <= self.window)[None]
        return seen[:, None]


def _picker(rows: Tensor) -> Callable[[Tensor | None], Tensor | None]:
    return lambda tensor: tensor if tensor is None or len(tensor) == 1 else tensor[rows]
