"""Gathers states of all processes, and draws negatives that do not depend on the number of processes."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vlcli.nn.layout import Layout, Runs
from vlcli.nn.model import EncoderOutput

Gather = Callable[[Tensor], Tensor]
_LAYOUT = ("route", "source", "index", "centre", "special", "valid", "boxes")


def ids_of(keys: Sequence[str], rows: Tensor) -> Tensor:
    """Return a number for each row's key (B,), the same in every process and run."""
    hashes = [hashlib.blake2b(key.encode(), digest_size=8).digest() for key in keys]
    numbers = [int.from_bytes(digest, "big", signed=True) for digest in hashes]
    return torch.tensor([numbers[row] for row in rows.tolist()], dtype=torch.long, device=rows.device)


def gather_states(states: EncoderOutput, gather: Gather) -> EncoderOutput:
    """Return the rows of all processes in rank order, padded to the longest; the gradient goes back."""
    longest = int(gather(torch.tensor([states.hidden.shape[1]], device=states.hidden.device)).max())
    missing, layout = longest - states.hidden.shape[1], states.layout
    if not _is_shared(layout):
        layout = _padded(layout.expand(len(states.hidden)), missing)
        fields = {name: value for name in _LAYOUT if (value := getattr(layout, name)) is not None}
        gathered: dict[str, Any] = {name: gather(value.detach().contiguous()) for name, value in fields.items()}
        layout = replace(layout, runs=_runs(layout), **gathered)
    pooled = None if states.pooled is None else gather(states.pooled)
    return EncoderOutput(gather(F.pad(states.hidden, (0, 0, 0, missing))), layout, pooled)


def stack_states(parts: Sequence[EncoderOutput]) -> EncoderOutput:
    """Join rows, shorter sequences padded; a layout that all parts share stays shared."""
    longest = max(part.hidden.shape[1] for part in parts)
    missing = [longest - part.hidden.shape[1] for part in parts]
    hidden = torch.cat([F.pad(part.hidden, (0, 0, 0, more)) for part, more in zip(parts, missing, strict=True)])
    vectors = [part.pooled for part in parts if part.pooled is not None]
    pooled = torch.cat(vectors) if len(vectors) == len(parts) else None
    if not any(missing) and all(_is_shared(part.layout) for part in parts):
        return EncoderOutput(hidden, parts[0].layout, pooled)
    layouts = [_padded(part.layout.expand(len(part.hidden)), more) for part, more in zip(parts, missing, strict=True)]
    fields = {name: [getattr(layout, name) for layout in layouts] for name in _LAYOUT}
    joined: dict[str, Any] = {n: torch.cat(rows) for n, rows in fields.items() if all(v is not None for v in rows)}
    return EncoderOutput(hidden, replace(layouts[0], runs=_runs(layouts[0]), **joined), pooled)


def _is_shared(layout: Layout) -> bool:
    # a full grid of one row lies alike in all pictures; one row of text is that sentence's alone
    return layout.grid is not None and len(layout.route) == 1


def _padded(layout: Layout, missing: int) -> Layout:
    if missing == 0:
        return layout
    end = layout.map(lambda tensor: tensor[:, -1:].expand(-1, missing, *tensor.shape[2:]))
    end.index, end.centre = torch.full_like(end.index, -1), torch.full_like(end.centre, torch.nan)
    end.special = end.valid = torch.zeros_like(end.valid)
    end.boxes, end.runs = None, None if layout.runs is None else ((layout.runs[-1][0], missing),)
    return replace(layout, grid=None) + replace(end, grid=None)


def _runs(layout: Layout) -> Runs | None:
    # rows of other batches may mix routes in another way; those of one route cannot
    return layout.runs if layout.runs is not None and len(layout.runs) == 1 else None


def gumbel(rows: Tensor, candidates: Tensor) -> Tensor:
    """Return Gumbel noise (B, N) that follows from the numbers of rows (B,) and candidates (N,) alone, in any process.

    Drawing the largest of score plus noise is drawing in proportion to exp(score).
    """
    mixed = _mix(_mix(rows)[:, None] ^ candidates[None])
    uniform = ((mixed >> 11) & 0x1FFFFFFFFFFFFF).double().add(0.5) / 2**53  # in (0, 1), never 0 nor 1
    return -torch.log(-torch.log(uniform))


def _mix(number: Tensor) -> Tensor:
    # scatters the bits of 64-bit integers (the finaliser of splitmix64; products wrap around)
    number = (number ^ _shift(number, 30)) * -4658895280553007687
    number = (number ^ _shift(number, 27)) * -7723592293110705685
    return number ^ _shift(number, 31)


def _shift(number: Tensor, bits: int) -> Tensor:
    return (number >> bits) & ((1 << (64 - bits)) - 1)  # logical, of signed integers


def draw(scores: Tensor, allowed: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return the rows (K,) that have any allowed candidate, and one (K,) for each, drawn in proportion to exp(score).

    Scores, ``allowed`` and the noise of :func:`gumbel` are (B, N); without noise the best are taken.
    """
    rows = allowed.any(1).nonzero()[:, 0]
    total = scores.detach().double() if noise is None else scores.detach().double() + noise
    return rows, total.masked_fill(~allowed, -torch.inf)[rows].argmax(1)
