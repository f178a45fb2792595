"""What the equipped attentions of one stack share, and the attention that they call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.nn import Layout, PairwisePosition

if TYPE_CHECKING:
    from vlcli.foreign.places import TokenPlaces

Inputs = tuple[Tensor, Tensor, Tensor]


@dataclass
class Pass:
    """What is known during one forward pass of a stack, in one direction.

    Attributes:
        layouts: of queries and keys.
        state: what the encoding prepared.
    """

    layouts: tuple[Layout, Layout]
    state: Any


class Equipment:
    """What the attentions of one stack share: the encoding, and where the tokens at hand stand.

    Args:
        position: the encoding; None where the stack has another attention only.
        places: where its tokens stand.
    """

    def __init__(self, position: PairwisePosition | None, places: TokenPlaces) -> None:
        self.position, self.places = position, places
        self.shifts = position is not None and type(position).inputs is not PairwisePosition.inputs
        self.passes: dict[tuple[bool, int, int], Pass] = {}
        places.watch(self.forget)

    def forget(self) -> None:
        """Drop what belongs to the last batch; called when the tokens of a new one are made."""
        self.passes = {}

    def __getstate__(self) -> dict[str, Any]:
        """Copies do not take the last batch with them."""
        return {**self.__dict__, "passes": {}}

    def at(self, x: Tensor, y: Tensor, layer: int, whole: int | None = None) -> Pass:
        """What holds for queries ``x`` (B, Tq, dim) and keys ``y`` (B, Tk, dim): anew at the first layer.

        Only the sizes of ``y`` are read where keys are cached.

        Args:
            x: tokens that ask.
            y: tokens that are asked.
            layer: its number in the stack.
            whole: tokens until now, of which the keys are the last ones; None: all of them are keys.
        """
        turned, keys = self.places.turned(x, y), y.shape[1]
        whole = keys if whole is None else whole
        if layer == 0:
            self.passes = {known: one for known, one in self.passes.items() if known[0] != turned}
        key = (turned, keys, whole)
        if key not in self.passes:  # layers with and without a sliding window have their own
            layouts = self._layouts(x, y, turned, whole)
            state = None if self.position is None else self.position.prepare(x, y, *layouts)
            self.passes[key] = Pass(layouts, state)
        return self.passes[key]

    def _layouts(self, x: Tensor, y: Tensor, turned: bool, whole: int) -> tuple[Layout, Layout]:
        keys = y.shape[1]
        if whole == keys:
            return self.places.layouts(x, y, turned)
        asking, asked = self.places.layouts(x, y[:, -1:].expand(-1, whole, -1), turned)
        return asking, asked.cut(whole - keys, whole)


class EquippedAttention:
    """One attention's place in a stack; what an :class:`~vlcli.foreign.AttentionEquipper` has its module call.

    Args:
        equipment: of the stack.
        layer: its number there.

    Attributes:
        reads_tokens: whether something is done with tokens before they are projected.
    """

    def __init__(self, equipment: Equipment, layer: int) -> None:
        self.equipment, self.layer = equipment, layer
        self.reads_tokens = equipment.shifts or equipment.position is None
        self.tokens: tuple[Tensor, Tensor] | None = None
        self.earlier: int | None = None
        self.now: Pass | None = None
        self.shifted: Inputs | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Copies do not take the last batch with them."""
        return {**self.__dict__, "tokens": None, "now": None, "shifted": None}

    def begin(self, x: Tensor, y: Tensor, earlier: int | None = None) -> None:
        """Note the tokens of this call, before they are projected.

        Args:
            x: (B, Tq, dim) that ask.
            y: (B, Tk, dim) that are asked.
            earlier: tokens that a cache has seen before them, where it says so.
        """
        self.tokens, self.earlier, self.now, self.shifted = (x, y), earlier, None, None

    def during(self) -> Pass:
        """What holds in this call, where the projections must know it."""
        assert self.tokens is not None
        self.now = self.now or self.equipment.at(*self.tokens, self.layer)
        return self.now

    def inputs(self) -> Inputs:
        """What queries, keys and values are made from, as the encoding shifts it."""
        if self.shifted is None:
            assert self.tokens is not None
            assert self.equipment.position is not None
            (x, y), now = self.tokens, self.during()
            self.shifted = self.equipment.position.inputs(x, y, y, now.state, self.layer)
        return self.shifted

    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Tensor | None,
        *,
        scale: float,
        dropout: float,
        fused: bool = True,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention with the encoding, called between a module's projections.

        Args:
            q: (B, H, Tq, d) queries, not scaled; what the module does to them itself (norms, rotations) is done.
            k: (B, H or fewer, Tk, d) keys, those in a cache included.
            v: as ``k``.
            mask: numbers that are added to the scores, or bool, True where a query may look.
            scale: of the scores.
            dropout: of the probabilities; 0 in evaluation.
            fused: on ``scaled_dot_product_attention`` where the encoding reads no probabilities.

        Returns:
            (B, H, Tq, d), and the probabilities (B, H, Tq, Tk) where they were written out.
        """
        k, v, mask = self._filled(k, v, mask)
        k, v = (_shared(part, q.shape[1]) for part in (k, v))
        position, now, layer = self.equipment.position, self._now(q, k), self.layer
        added, more = None, None
        if position is not None:
            q, k = position.rotate(q, k, now.state, layer)
            added = position.logits(q, k, now.state, layer)
        added = joined(added, mask, q.dtype)
        # The fused kernels of a CPU know no mask that learns; what torch falls back on is slower than separate steps.
        learns = added is not None and added.requires_grad and q.device.type == "cpu"
        if fused and not learns and not (position is not None and position.uses_weights):
            return F.scaled_dot_product_attention(q, k, v, added, dropout, scale=scale), None
        scores = (q @ k.transpose(-1, -2)) * scale
        weights = F.dropout((scores if added is None else scores + added).softmax(-1), dropout)
        if position is not None:
            more = position.values(weights, now.state, layer)
        return (weights @ v if more is None else weights @ v + more), weights

    def _filled(self, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
        """Keys, values and mask without the places of a cache of fixed size that are empty yet."""
        whole = self._whole()
        if whole is None or k.shape[2] <= whole:
            return k, v, mask
        return k[:, :, :whole], v[:, :, :whole], None if mask is None else mask[..., :whole]

    def _whole(self) -> int | None:
        """Tokens until now, those of this call included; None without a cache."""
        return None if self.tokens is None or self.earlier is None else self.earlier + self.tokens[0].shape[1]

    def _now(self, q: Tensor, k: Tensor) -> Pass:
        x, y = self.tokens or (q.transpose(1, 2).flatten(2), k.transpose(1, 2).flatten(2))
        if y.shape[1] != k.shape[2]:  # earlier keys come from a cache: their tokens are gone, their number is not
            y = y[:, -1:].expand(-1, k.shape[2], -1)
        now = self.now or self.equipment.at(x, y, self.layer, self._whole())
        self.tokens, self.earlier, self.now, self.shifted = None, None, None, None
        return now


def joined(term: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """What is added to the scores: the encoding's term and the module's mask, which may be bool."""
    if mask is not None and mask.dtype == torch.bool:
        blank = torch.zeros(mask.shape, dtype=dtype, device=mask.device)
        mask = blank.masked_fill(~mask, torch.finfo(dtype).min)
    if term is None or mask is None:
        return mask if term is None else term
    return term + mask


def _shared(part: Tensor, heads: int) -> Tensor:
    """Keys or values that several heads of the queries share (grouped-query attention), one for each."""
    times = heads // part.shape[1]
    return part if times == 1 else part.repeat_interleave(times, 1)
