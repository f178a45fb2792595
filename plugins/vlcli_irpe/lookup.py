"""Looks tables up by bucket (paper Eq. 27): the base of iRPE and of the encodings it is compared with.

    z = q P            (T, K)     once per bucket, not once per pair
    logits[i, j] = z[i, id(i, j)]
    values[i]    = sum over buckets of (sum of a[i, j] whose id is that bucket) P[bucket]

A look-up and the sum per bucket are each other's transpose, so the gradient of one is the other and nothing but the ids
is kept for it.
"""

from collections.abc import Iterable
from dataclasses import replace
from functools import reduce
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vlcli.nn import AttentionShape, Layout, PairwisePosition, Slot, Sort, within
from vlcli_irpe.blocks import LEAST, blocked_attention, grid_blocks
from vlcli_irpe.buckets import BucketRule
from vlcli_irpe.relative_index import Align, AxisIndex, Indices, RelativeIndex, bucket_ids

Side = Literal["query", "key", "value"]
Init = Literal["zero", "xavier", "normal"]
OffPlane = Literal["bucket", "nothing"]
# Tokens that lie on a picture, and so have offsets from one another
PLANE: tuple[Sort, Sort] = ("cell", "box")
LETTERS: dict[Side, str] = {"query": "rpe_q", "key": "rpe_k", "value": "rpe_v"}


class LookupTable(nn.Module):
    """Encodings per bucket, under the names of the released code.

    ``shape`` is (heads or 1, d, buckets) on queries and keys, (heads or 1, buckets, d) on values, (heads, buckets) for
    a scalar per bucket.
    """

    def __init__(self, shape: tuple[int, ...], init: Init) -> None:
        super().__init__()
        self.name = "lookup_table_weight" if len(shape) == 3 else "lookup_table_bias"
        table = torch.zeros(shape)
        if init == "xavier":
            nn.init.xavier_uniform_(table)
        elif init == "normal":
            nn.init.normal_(table, std=0.02)
        self.register_parameter(self.name, nn.Parameter(table))


class BucketPosition(PairwisePosition):
    """Base of encodings with a table for each layer, looked up by bucket.

    Args:
        rule: maps offsets to buckets.
        sides: tokens that have tables.
        contextual: vectors that meet the tokens, or scalars.
        scaled: divide by sqrt(d).
        mirrored: the term on queries looks up key minus query, as in the released iRPE.
        align: of grids of two sizes.
        width: of the vectors; 0: of a head.
        shared_heads: one table for all heads of a layer.
        off_plane: for pairs of which one token has no place: a bucket of their own, or nothing.
        cells: cells per side on which centres of boxes are measured.
        init: of the tables.
    """

    def __init__(
        self,
        shape: AttentionShape,
        rule: BucketRule,
        sides: tuple[Side, ...] = ("key",),
        contextual: bool = True,
        scaled: bool = True,
        mirrored: bool = False,
        align: Align = "cells",
        width: int = 0,
        *,
        shared_heads: bool = True,
        off_plane: OffPlane = "bucket",
        cells: int = 14,
        init: Init = "zero",
    ) -> None:
        super().__init__(shape)
        self.rule, self.sides, self.contextual, self.mirrored = rule, sides, contextual, mirrored
        self.align, self.off_plane, self.cells = align, off_plane, cells
        self.scale = shape.head_dim**-0.5 if scaled else 1.0
        self.uses_weights = "value" in sides
        self.encodes = within("word", "cell") if rule.method == "sequence" else within(*PLANE)
        heads, count = 1 if shared_heads else shape.heads, rule.buckets + (off_plane == "bucket")
        self.layers = nn.ModuleList()
        for _ in range(shape.layers):
            layer = nn.ModuleDict()
            for side in sides:
                inner = (width or shape.head_dim, count) if contextual else (count,)
                size = (heads, *(inner[::-1] if side == "value" else inner))
                rows, *columns = (LookupTable(size, init) for _ in range(rule.tables))
                layer[LETTERS[side]] = nn.ModuleDict({"rp_rows": rows, "rp_cols": columns[0]}) if columns else rows
            self.layers.append(layer)

    def objection(self, slot: Slot) -> str:
        return box_objection(self.rule, slot) or super().objection(slot)

    def layer_parts(self, layer: int) -> dict[str, nn.Module]:
        return dict(self.layers[layer].named_children())

    def tables(self, layer: int, side: Side) -> tuple[Tensor, ...]:
        """Returns the tables of one layer that ``side`` reads: one, or two with the cross method."""
        part: Any = self.layers[layer][LETTERS[side]]  # type: ignore[index]
        parts = [part] if isinstance(part, LookupTable) else [part["rp_rows"], part["rp_cols"]]
        return tuple(getattr(one, one.name) for one in parts)

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> RelativeIndex:
        reads = "query" in self.sides
        ids = bucket_ids(
            self.rule,
            x_layout,
            y_layout,
            mirrored=reads and self.mirrored,
            cells=self.cells,
            align=self.align,
            queries=reads,
            axes=True,
        )
        return ids if isinstance(ids.keys, AxisIndex) or ids.queries else replace(ids, queries=ids.keys)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        # In blocks where that is faster: on large grids, on a CPU, without a gradient.
        plain = type(self).logits is BucketPosition.logits and type(self).values is BucketPosition.values
        fits = self.rule.method == "product" and self.contextual and self.sides != ("value",)
        fast = q.device.type == "cpu" and q.dtype == torch.float32 and not torch.is_grad_enabled()
        if state.grid is None or not (plain and fits and fast and q.shape[2] >= LEAST):
            return None
        blocks, terms = grid_blocks(self.rule, state.grid, self.mirrored), []
        tables = {side: self.tables(layer, side)[0] for side in self.sides}
        for side, stretches, tokens in (("key", blocks.keys, q), ("query", blocks.queries, k)):
            if side in tables:
                z = self.scores(tokens, tables[side], state)  # (B, H, T, K)
                terms.append((stretches, z if z.shape[-1] > self.rule.buckets else with_blank(z)))
        return blocked_attention(q, k, v, blocks, terms, tables.get("value"))

    def logits(self, q: Tensor, k: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        terms = []
        if "key" in self.sides:
            scores = [self.scores(q, table, state) for table in self.tables(layer, "key")]  # (B or 1, H, Tq, K)
            terms.append(look_up(scores, state.keys))  # (B or 1, H, Tq, Tk)
        if "query" in self.sides:
            scores = [self.scores(k, table, state) for table in self.tables(layer, "query")]  # (B or 1, H, Tk, K)
            terms.append(look_up(scores, state.queries, by_keys=True))  # (B or 1, H, Tq, Tk)
        return added(terms) if terms else None

    def values(self, weights: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        # iRPE Eq. 17: the sum over keys j of a_ij r_ij. Pairs of one bucket share a vector, so probabilities are summed
        # per bucket first; with the cross method the terms of rows and columns are added.
        if not self.uses_weights:
            return None
        count = self.rule.buckets + (self.off_plane == "bucket" or state.outside)
        if isinstance(state.keys, AxisIndex):
            sums = bucket_sums_axes(weights, state.keys, count)
        else:
            sums = [bucket_sums(weights, part, count) for part in state.keys]  # each (B, H, Tq, K)
        pairs = zip(self.tables(layer, "value"), sums, strict=True)
        return added(part[..., : table.shape[-2]] @ table.to(weights.dtype) for table, part in pairs)  # (B, H, Tq, d)

    def fit_weight(self, name: str, value: Tensor, wanted: Tensor, report: list[str]) -> Tensor:
        # Tables start at zero, so a missing bucket of pairs off the plane is filled with zeros.
        if ".lookup_table_" not in name or value.dim() != wanted.dim():
            return value
        sizes = enumerate(zip(value.shape, wanted.shape, strict=True))
        (axis, more), *others = [(at, have - want) for at, (have, want) in sizes if have != want] or [(0, 0)]
        if others or axis == 0 or abs(more) != 1:
            return value
        if more == 1:
            report.append(f"{name}: the bucket of pairs off the plane dropped")
            return value.narrow(axis, 0, wanted.shape[axis])
        report.append(f"{name}: a zero bucket for pairs off the plane added")
        return torch.cat([value, torch.zeros_like(value.narrow(axis, 0, 1))], axis)

    def scores(self, tokens: Tensor, table: Tensor, state: RelativeIndex) -> Tensor:
        """Returns the scaled score of each token (B, H, T, d) and bucket: (B, H, T, K), or (1, H, T, K) of scalars."""
        table = table.to(tokens.dtype) * self.scale
        if not self.contextual:
            z = table[None, :, None].expand(-1, -1, tokens.shape[2], -1)  # (1, H, T, K)
        elif len(table) == 1:  # one product over all heads; projections lie as (B, T, H, d), so nothing is copied
            z = (tokens.transpose(1, 2) @ table[0]).transpose(1, 2)  # (B, H, T, K)
        else:
            z = tokens @ table  # (B, H, T, K)
        return with_blank(z) if self.off_plane == "nothing" and state.outside else z


def box_objection(rule: BucketRule, slot: Slot) -> str:
    """Returns why a one-dimensional rule does not fit where boxes are; empty where it does."""
    numbered = rule.method == "sequence" and "box" in slot.holds | slot.keys
    return "it numbers tokens in line, and boxes have no order: use plane: image" if numbered else ""


def with_blank(z: Tensor) -> Tensor:
    """Appends a bucket of zeros to ``z`` (..., K), for pairs off the plane that get nothing."""
    return F.pad(z, (0, 1))


def added(terms: Iterable[Tensor]) -> Tensor:
    """Adds in place: look-ups keep nothing of their result for the gradient, and a (Tq, Tk) copy is spared."""
    return reduce(Tensor.add_, terms)


def by_query(z: Tensor, ids: Tensor) -> Tensor:
    """``out[b, h, i, j] = z[b, h, i, ids[b, i, j]]`` of z (B or 1, H, Tq, K) and int64 ids (B or 1, 1, Tq, Tk)."""
    rows = z.shape[0] if ids.shape[0] == 1 else ids.shape[0]  # len() and max() would fix the batch of an exported graph
    return z.expand(rows, -1, -1, -1).gather(-1, ids.expand(rows, z.shape[1], -1, -1))  # (B, H, Tq, Tk)


def by_key(z: Tensor, ids: Tensor) -> Tensor:
    """``out[b, h, i, j] = z[b, h, j, ids[b, i, j]]`` of z (B or 1, H, Tk, K) and int64 ids (B or 1, 1, Tq, Tk)."""
    rows = z.shape[0] if ids.shape[0] == 1 else ids.shape[0]  # len() and max() would fix the batch of an exported graph
    # Gathering along the bucket axis writes rows of queries in order: no transposed copy of the (Tq, Tk) result.
    return z.transpose(-1, -2).expand(rows, -1, -1, -1).gather(-2, ids.expand(rows, z.shape[1], -1, -1))


def look_up(scores: list[Tensor], ids: Indices | AxisIndex, by_keys: bool = False) -> Tensor:
    """Return the score of every pair (B, H, Tq, Tk) from each table's (B or 1, H, T, K) of queries, or ``by_keys``."""
    if isinstance(ids, AxisIndex):
        pairs = _by_query_axes(ids, *scores)
        return pairs.transpose(-1, -2) if by_keys else pairs
    look = by_key if by_keys else by_query
    return added(look(z, part) for z, part in zip(scores, ids, strict=True))


def _by_query_axes(ids: AxisIndex, rows: Tensor, columns: Tensor) -> Tensor:
    # Two small look-ups and one sum over all pairs, of scores (B or 1, H, T, K) of row and of column buckets.
    plane = (by_query(rows, ids.rows)[..., :, None] + by_query(columns, ids.columns)[..., None, :]).flatten(-2)
    if not ids.other.outside:
        return plane  # (B, H, T, Tk)
    off = (rows[..., -1:] + columns[..., -1:]).expand(*plane.shape[:-1], -1)  # (B, H, T, 1): the extra bucket
    front, back = (off.expand(*off.shape[:-1], count) for count in (ids.other.front, ids.other.back))
    return torch.cat([front, plane, back], -1)


def bucket_sums(weights: Tensor, ids: Tensor, buckets: int) -> Tensor:
    """``out[b, h, i, k]`` = the sum of ``weights[b, h, i, j]`` over the j whose id is k, in float32 at least.

    Probabilities are (B, H, Tq, Tk), ids (B or 1, 1, Tq, Tk) int64, the result (B, H, Tq, K).
    """
    exact = weights if weights.dtype in (torch.float32, torch.float64) else weights.float()
    blank = exact.new_zeros(*exact.shape[:-1], buckets)
    return blank.scatter_add(-1, ids.expand_as(exact), exact).to(weights.dtype)


def bucket_sums_axes(weights: Tensor, ids: AxisIndex, buckets: int) -> list[Tensor]:
    """Sum probabilities (B, H, Tq, Tk) per row bucket and per column bucket: two of (B, H, Tq, K).

    They are summed over columns and rows of the keys' grid first. K includes the extra bucket if tokens lie off the
    plane.
    """
    front, cells = ids.other.front, ids.other.rows * ids.other.columns
    plane = weights[..., front : front + cells].unflatten(-1, (ids.other.rows, ids.other.columns))  # (B, H, Tq, h, w)
    sums = [bucket_sums(plane.sum(-1), ids.rows, buckets), bucket_sums(plane.sum(-2), ids.columns, buckets)]
    if ids.other.outside:
        off = weights[..., :front].sum(-1) + weights[..., front + cells :].sum(-1)  # (B, H, Tq)
        for part in sums:
            part[..., -1].add_(off)
    return sums
