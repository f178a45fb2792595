"""iRPE: relative position encoding for images (Wu et al., ICCV 2021), in all its variants."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from vlcli.errors import ComponentError
from vlcli.nn.layout import Layout
from vlcli.nn.position import AttentionShape, PairwisePosition

from vlcli_irpe.buckets import BucketRule, Form, Index, ratio_for
from vlcli_irpe.places import Align, Ids, bucket_ids
from vlcli_irpe.terms import bucket_sums, by_key, by_query, with_blank

Side = Literal["query", "key", "value"]
Init = Literal["zero", "xavier", "normal"]
LETTERS = {"query": "rpe_q", "key": "rpe_k", "value": "rpe_v"}


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
        return getattr(self, self.name)

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
        return getattr(self, LETTERS[side]).tables()


class IRPE(PairwisePosition):
    """Image relative position encoding: bucketed 2-D offsets on queries, keys and values (iRPE).

    A term on keys is read by the queries, one on queries by the keys, one on values is weighted by the probabilities. On
    boxes the offset is that of their centres, measured in cells of a grid.

    Args:
        shape: of the stack it serves.
        method: how a 2-D offset becomes a bucket.
        mode: a vector per bucket that meets the tokens, or a scalar added to the scores.
        sides: what it is added to.
        ratio: alpha of the index function; beta is twice, gamma eight times as much. Released: 1.9 product, 20
            euclidean and cross, 33 quantization; 2.0 and 3.5 are the 9x9 and 15x15 tables of the ablations.
        buckets: size of the table instead of the ratio, the extra bucket not counted.
        index: piecewise, or clip as in earlier encodings.
        form: where paper and released code differ, which one holds: rank or squared distance, rounding before the index,
            bias divided by sqrt(d) or not, r_ij or its mirror image on queries, tables decayed or not.
        shared_heads: one table for all heads of a layer.
        off_plane: what pairs get of which one token has no place: a bucket of their own, or nothing.
        cells: cells per side on which centres of boxes are measured.
        align: grids of two sizes: each in its own cells, or the queries' stretched over the keys'.
        trim: drop the half of an undirected table that no pair can reach.
        init: of the tables; released DETR ends with Xavier, all else is zero.
        decay: whether weight decay applies to the tables; None follows the form (published no, released yes).
        scale_bias: whether bias mode is divided by sqrt(d); None follows the form (published yes, released no).
    """

    paper = "iRPE, Wu et al., ICCV 2021, arXiv:2107.14222, Eq. 13-27"

    def __init__(
        self,
        shape: AttentionShape,
        *,
        method: Literal["euclidean", "quantization", "cross", "product"] = "product",
        mode: Literal["contextual", "bias"] = "contextual",
        sides: list[Side] = ["key"],  # noqa: B006
        ratio: float = 1.9,
        buckets: int | None = None,
        index: Index = "piecewise",
        form: Form = "as_released",
        shared_heads: bool = True,
        off_plane: Literal["bucket", "nothing"] = "bucket",
        cells: int = 14,
        align: Align = "cells",
        trim: bool = False,
        init: Init = "zero",
        decay: bool | None = None,
        scale_bias: bool | None = None,
    ) -> None:
        super().__init__(shape)
        _check(mode, sides, ratio, cells)
        released = form == "as_released"
        ratio = ratio if buckets is None else ratio_for(buckets, method)
        self.rule = BucketRule(method, ratio, index, form, trim)
        self.sides: tuple[Side, ...] = tuple(side for side in LETTERS if side in sides)  # type: ignore[misc]
        self.contextual, self.released, self.off_plane = mode == "contextual", released, off_plane
        self.cells, self.align = cells, align
        self.decay = released if decay is None else decay
        self.scale = (
            shape.head_dim**-0.5 if self.contextual or (not released if scale_bias is None else scale_bias) else 1.0
        )
        self.uses_weights = "value" in self.sides
        self.layers = self._tables(shared_heads, init)

    def _tables(self, shared: bool, init: Init) -> nn.ModuleList:
        count = self.rule.buckets + (self.off_plane == "bucket")
        size = TableSize(1 if shared else self.shape.heads, self.shape.head_dim if self.contextual else 0, count, init)
        return nn.ModuleList(LayerTables(self.sides, size, self.rule.tables == 2) for _ in range(self.shape.layers))

    def prepare(self, x: Tensor, y: Tensor, x_layout: Layout, y_layout: Layout) -> Ids:  # noqa: ARG002
        """Bucket ids of every pair, for all layers."""
        mirrored = "query" in self.sides and self.released
        ids = bucket_ids(self.rule, x_layout, y_layout, mirrored=mirrored, cells=self.cells, align=self.align)
        return ids if mirrored or "query" not in self.sides else Ids(ids.keys, ids.keys, ids.outside)

    def logits(self, q: Tensor, k: Tensor, state: Ids, layer: int) -> Tensor | None:
        """The terms on keys and queries (Eq. 13-16): (B or 1, H or 1, Tq, Tk)."""
        total: Tensor | None = None
        own: LayerTables = self.layers[layer]
        if "key" in self.sides:
            for table, ids in zip(own.of("key"), state.keys, strict=True):
                total = _plus(total, by_query(self._scores(q, table, state), ids))
        if "query" in self.sides:
            for table, ids in zip(own.of("query"), state.queries, strict=True):
                total = _plus(total, by_key(self._scores(k, table, state), ids))
        return total

    def values(self, weights: Tensor, state: Ids, layer: int) -> Tensor | None:
        """The term on values (Eq. 17): (B, H, Tq, d)."""
        if not self.uses_weights:
            return None
        total: Tensor | None = None
        for table, ids in zip(self.layers[layer].of("value"), state.keys, strict=True):
            count = self.rule.buckets + (self.off_plane == "bucket" or state.outside)
            sums = bucket_sums(weights, ids, count)[..., : table.shape[-2]]  # (B, H, Tq, K)
            total = _plus(total, sums @ table.to(weights.dtype))
        return total

    def _scores(self, tokens: Tensor, table: Tensor, state: Ids) -> Tensor:
        """What each token gives each bucket: (B, H, T, K), or (1, H, T, K) in bias mode, already scaled."""
        table = table.to(tokens.dtype) * self.scale
        z = tokens @ table if self.contextual else table[None, :, None].expand(-1, -1, tokens.shape[2], -1)
        return with_blank(z) if self.off_plane == "nothing" and state.outside else z

    def parameter_groups(self) -> Iterable[tuple[str, dict[str, float]]]:
        """No weight decay on the tables where the form says so (supplement 2)."""
        return () if self.decay else [("lookup_table_", {"decay": 0.0})]


def _plus(total: Tensor | None, term: Tensor) -> Tensor:
    # Look-ups keep nothing of their result for the gradient, so adding in place is safe and spares a (Tq, Tk) copy.
    return term if total is None else total.add_(term)


def _check(mode: str, sides: list[Any], ratio: float, cells: int) -> None:
    where = "position irpe"
    if not sides:
        raise ComponentError("iRPE needs a side.", where=where, got="sides: []", expected="some of query, key, value")
    if mode == "bias" and "value" in sides:
        raise ComponentError(
            "A bias on values is not defined: values are vectors (Eq. 17).",
            where=where,
            got=f"mode: bias, sides: {sides}",
            expected="query or key",
            hint="use mode: contextual, or leave value out",
        )
    if ratio < 0.5 or cells < 1:
        raise ComponentError(
            "iRPE's sizes are off.",
            where=where,
            got=f"ratio {ratio}, cells {cells}",
            expected="ratio at least 0.5, cells at least 1",
        )
