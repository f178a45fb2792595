"""Encodings that look a table up by bucket: the base of iRPE and of the encodings it is compared with."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch
from torch import Tensor, nn

from vlcli.nn import AttentionShape, Layout, PairwisePosition, Slot, Sort, within
from vlcli_irpe.blocks import LEAST, BlockedAttention, Stretches, grid_blocks
from vlcli_irpe.buckets import BucketRule
from vlcli_irpe.ops import bucket_sums, bucket_sums_axes, by_key, by_query, by_query_axes, with_blank
from vlcli_irpe.relative_index import Align, AxisIndex, Indices, RelativeIndex, bucket_ids

Side = Literal["query", "key", "value"]
Init = Literal["zero", "xavier", "normal"]
OffPlane = Literal["bucket", "nothing"]
PLANE: tuple[Sort, Sort] = ("cell", "box")
"""Tokens that lie on a picture, and so have offsets from one another."""
LETTERS: dict[Side, str] = {"query": "rpe_q", "key": "rpe_k", "value": "rpe_v"}


@dataclass(frozen=True)
class BucketPlan:
    """How an encoding of buckets works.

    Attributes:
        rule: which bucket an offset falls into.
        sides: what has tables.
        contextual: vectors that meet the tokens, or scalars.
        scaled: divide by sqrt(d).
        shared_heads: one table for all heads of a layer.
        mirrored: the term on queries looks up key minus query, as in the released iRPE.
        off_plane: pairs without an offset share a bucket, or get nothing.
        cells: cells per side on which centres of boxes are measured.
        align: grids of two sizes.
        init: of the tables.
        width: of the vectors; 0: of a head.
    """

    rule: BucketRule
    sides: tuple[Side, ...] = ("key",)
    contextual: bool = True
    scaled: bool = True
    shared_heads: bool = True
    mirrored: bool = False
    off_plane: OffPlane = "bucket"
    cells: int = 14
    align: Align = "cells"
    init: Init = "zero"
    width: int = 0


@dataclass(frozen=True)
class TableSize:
    """What a table is made for.

    Attributes:
        heads: 1 where heads share it.
        head_dim: width of a head; 0 for a scalar per bucket (bias mode).
        buckets: its ids, the extra one included.
        init: of its values.
    """

    heads: int
    head_dim: int
    buckets: int
    init: Init


class LookupTable(nn.Module):
    """Encodings per bucket, under the names of the released code.

    Args:
        size: shape and initial values.
        side: queries and keys keep (heads, d, buckets), values (heads, buckets, d), bias (heads, buckets).
    """

    def __init__(self, size: TableSize, side: Side) -> None:
        super().__init__()
        inner = (size.head_dim, size.buckets) if side != "value" else (size.buckets, size.head_dim)
        table = nn.Parameter(torch.zeros(size.heads, *(inner if size.head_dim else (size.buckets,))))
        self.name = "lookup_table_weight" if size.head_dim else "lookup_table_bias"
        self.register_parameter(self.name, table)
        if size.init == "xavier":
            nn.init.xavier_uniform_(table)
        elif size.init == "normal":
            nn.init.normal_(table, std=0.02)

    @property
    def table(self) -> Tensor:
        """The parameter."""
        out: Tensor = getattr(self, self.name)
        return out

    def tables(self) -> tuple[Tensor, ...]:
        """All tables of this side."""
        return (self.table,)


class CrossTables(nn.Module):
    """Two tables, of rows and of columns (the Cross method)."""

    def __init__(self, size: TableSize, side: Side) -> None:
        super().__init__()
        self.rp_rows, self.rp_cols = LookupTable(size, side), LookupTable(size, side)

    def tables(self) -> tuple[Tensor, ...]:
        """Rows, columns."""
        return self.rp_rows.table, self.rp_cols.table


class LayerTables(nn.Module):
    """The tables of one layer: ``rpe_q``, ``rpe_k``, ``rpe_v`` as far as they are used."""

    def __init__(self, sides: Iterable[Side], size: TableSize, crossed: bool) -> None:
        super().__init__()
        for side in sides:
            self.add_module(LETTERS[side], (CrossTables if crossed else LookupTable)(size, side))

    def of(self, side: Side) -> tuple[Tensor, ...]:
        """The tables of a side."""
        out: tuple[Tensor, ...] = getattr(self, LETTERS[side]).tables()
        return out


def pairs_of(rule: BucketRule) -> frozenset[tuple[Sort, Sort]]:
    """The pairs of tokens that a rule measures: those of one picture, or of one line."""
    return within("word", "cell") if rule.method == "sequence" else within(*PLANE)


def box_objection(rule: BucketRule, slot: Slot) -> str:
    """Why a one-dimensional rule cannot stand where boxes are; empty where it can."""
    numbered = rule.method == "sequence" and "box" in slot.holds | slot.keys
    return "it numbers tokens in line, and boxes have no order: use plane: image" if numbered else ""


class BucketPosition(PairwisePosition):
    """Base: tables per layer, looked up by bucket.

    Args:
        shape: of the stack it serves.
        plan: how it works.
    """

    def __init__(self, shape: AttentionShape, plan: BucketPlan) -> None:
        super().__init__(shape)
        self.plan, self.rule = plan, plan.rule
        self.scale = shape.head_dim**-0.5 if plan.scaled else 1.0
        self.uses_weights = "value" in plan.sides
        self.encodes = pairs_of(plan.rule)
        self.layers = nn.ModuleList(self._layer() for _ in range(shape.layers))

    def objection(self, slot: Slot) -> str:
        return box_objection(self.rule, slot) or super().objection(slot)

    def _layer(self) -> nn.Module:
        plan = self.plan
        count = plan.rule.buckets + (plan.off_plane == "bucket")
        heads = 1 if plan.shared_heads else self.shape.heads
        width = (plan.width or self.shape.head_dim) if plan.contextual else 0
        return LayerTables(plan.sides, TableSize(heads, width, count, plan.init), plan.rule.tables == 2)

    def layer_parts(self, layer: int) -> dict[str, nn.Module]:
        return dict(self.layers[layer].named_children())

    def tables(self, layer: int, side: Side) -> tuple[Tensor, ...]:
        """The tables of one layer that ``side`` reads: one, or two with the cross method."""
        return cast("LayerTables", self.layers[layer]).of(side)

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> RelativeIndex:
        plan = self.plan
        reads = "query" in plan.sides
        ids = bucket_ids(
            plan.rule,
            x_layout,
            y_layout,
            mirrored=reads and plan.mirrored,
            cells=plan.cells,
            align=plan.align,
            queries=reads,
            axes=True,
        )
        return ids if isinstance(ids.keys, AxisIndex) or ids.queries else replace(ids, queries=ids.keys)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        if state.grid is None or not self._blocked(q):
            return None
        blocks = grid_blocks(self.rule, state.grid, self.plan.mirrored)
        sides: tuple[tuple[Side, Stretches, Tensor], ...] = (("key", blocks.keys, q), ("query", blocks.queries, k))
        terms = [
            (stretches, self._padded(self.scores(tokens, self.tables(layer, side)[0], state)))
            for side, stretches, tokens in sides
            if side in self.plan.sides
        ]
        table = self.tables(layer, "value")[0] if self.uses_weights else None
        return BlockedAttention(blocks, terms, table, q.shape[-1] ** -0.5)(q, k, v)

    def _blocked(self, q: Tensor) -> bool:
        own = type(self).logits is BucketPosition.logits and type(self).values is BucketPosition.values
        fits = self.rule.method == "product" and self.plan.contextual and self.plan.sides != ("value",)
        plain = q.device.type == "cpu" and q.dtype == torch.float32 and not torch.is_grad_enabled()
        return own and fits and plain and q.shape[2] >= LEAST

    def _padded(self, z: Tensor) -> Tensor:
        return z if z.shape[-1] > self.rule.buckets else with_blank(z)

    def logits(self, q: Tensor, k: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        total: Tensor | None = None
        if "key" in self.plan.sides:
            tables = self.tables(layer, "key")
            total = look_up([self.scores(q, table, state) for table in tables], state.keys)
        if "query" in self.plan.sides:
            tables = self.tables(layer, "query")
            term = look_up([self.scores(k, table, state) for table in tables], state.queries, by_keys=True)
            total = plus(total, term)
        return total

    def values(self, weights: Tensor, state: RelativeIndex, layer: int) -> Tensor | None:
        if not self.uses_weights:
            return None
        total: Tensor | None = None
        count = self.rule.buckets + (self.plan.off_plane == "bucket" or state.outside)
        for table, sums in zip(self.tables(layer, "value"), add_up(weights, state.keys, count), strict=True):
            total = plus(total, sums[..., : table.shape[-2]] @ table.to(weights.dtype))
        return total

    def fit_weight(self, name: str, value: Tensor, wanted: Tensor, report: list[str]) -> Tensor:
        if ".lookup_table_" not in name or value.dim() != wanted.dim():
            return value
        differing = [axis for axis, (a, b) in enumerate(zip(value.shape, wanted.shape, strict=True)) if a != b]
        if len(differing) != 1 or differing[0] == 0:
            return value
        axis = differing[0]
        return _with_buckets(name, value, axis, wanted.shape[axis], report)

    def scores(self, tokens: Tensor, table: Tensor, state: RelativeIndex) -> Tensor:
        """What each token gives each bucket: (B, H, T, K), or (1, H, T, K) in bias mode, already scaled."""
        table = table.to(tokens.dtype) * self.scale
        if not self.plan.contextual:
            z = table[None, :, None].expand(-1, -1, tokens.shape[2], -1)
        elif len(table) == 1:  # one product over all heads; projections lie as (B, T, H, d), so nothing is copied
            z = (tokens.transpose(1, 2) @ table[0]).transpose(1, 2)
        else:
            z = tokens @ table
        return with_blank(z) if self.plan.off_plane == "nothing" and state.outside else z


def _with_buckets(name: str, value: Tensor, axis: int, needs: int, report: list[str]) -> Tensor:
    if value.shape[axis] == needs + 1:
        report.append(f"{name}: the bucket of pairs off the plane dropped")
        return value.narrow(axis, 0, needs)
    if value.shape[axis] == needs - 1:
        report.append(f"{name}: a zero bucket for pairs off the plane added")
        blank = value.new_zeros(*value.shape[:axis], 1, *value.shape[axis + 1 :])
        return torch.cat([value, blank], axis)
    return value


def plus(total: Tensor | None, term: Tensor) -> Tensor:
    """The sum, in place: look-ups keep nothing of their result for the gradient, and a (Tq, Tk) copy is spared."""
    return term if total is None else total.add_(term)


def look_up(scores: list[Tensor], ids: Indices | AxisIndex, by_keys: bool = False) -> Tensor:
    """What every pair gets of the scores (B or 1, H, T, K) of each table: (B, H, Tq, Tk).

    Args:
        scores: of the queries, or of the keys where ``by_keys``.
        ids: buckets of every pair.
        by_keys: whether a pair reads its key's scores.
    """
    if isinstance(ids, AxisIndex):
        made = by_query_axes(scores[0], scores[1], ids)
        return made.transpose(-1, -2) if by_keys else made
    total: Tensor | None = None
    for z, part in zip(scores, ids, strict=True):
        total = plus(total, by_key(z, part) if by_keys else by_query(z, part))
    assert total is not None
    return total


def add_up(weights: Tensor, ids: Indices | AxisIndex, buckets: int) -> tuple[Tensor, ...]:
    """Probabilities (B, H, Tq, Tk) summed per bucket of each table: (B, H, Tq, K)."""
    if isinstance(ids, AxisIndex):
        return bucket_sums_axes(weights, ids, buckets)
    return tuple(bucket_sums(weights, part, buckets) for part in ids)
