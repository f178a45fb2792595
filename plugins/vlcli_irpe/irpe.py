"""iRPE: relative position encoding for images (Wu et al., ICCV 2021), in all its variants."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape
from vlcli_irpe.buckets import BucketRule, Form, Index, ratio_for
from vlcli_irpe.lookup import LETTERS, BucketPlan, BucketPosition, Init, OffPlane, Side
from vlcli_irpe.relative_index import Align


class IRPE(BucketPosition):
    """Image relative position encoding: bucketed 2-D offsets on queries, keys and values (iRPE).

    A term on keys is read by the queries, one on queries by the keys, one on values is weighted by the
    probabilities. On boxes the offset is that of their centres, measured in cells of a grid.

    Args:
        shape: of the stack it serves.
        method: how a 2-D offset becomes a bucket.
        mode: a vector per bucket that meets the tokens, or a scalar added to the scores.
        sides: what it is added to.
        ratio: alpha of the index function; beta is twice, gamma eight times as much. Released: 1.9 product, 20
            euclidean and cross, 33 quantization; 2.0 and 3.5 are the 9x9 and 15x15 tables of the ablations.
        buckets: size of the table instead of the ratio, the extra bucket not counted.
        index: piecewise, or clip as in earlier encodings.
        form: where paper and released code differ, which one holds: rank or squared distance, rounding before the
            index, bias divided by sqrt(d) or not, r_ij or its mirror image on queries, tables decayed or not.
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
        off_plane: OffPlane = "bucket",
        cells: int = 14,
        align: Align = "cells",
        trim: bool = False,
        init: Init = "zero",
        decay: bool | None = None,
        scale_bias: bool | None = None,
    ) -> None:
        _check(mode, sides, ratio, cells)
        ratio = ratio if buckets is None else ratio_for(buckets, method)
        released = form == "as_released"
        scaled = not released if scale_bias is None else scale_bias
        plan = BucketPlan(
            rule=BucketRule(method, ratio, index, form, trim),
            sides=tuple(side for side in LETTERS if side in sides),
            contextual=mode == "contextual",
            scaled=mode == "contextual" or scaled,
            shared_heads=shared_heads,
            mirrored=released,
            off_plane=off_plane,
            cells=cells,
            align=align,
            init=init,
        )
        super().__init__(shape, plan)
        self.decay = released if decay is None else decay

    def parameter_groups(self) -> Iterable[tuple[str, dict[str, float]]]:
        """No weight decay on the tables where the form says so (supplement 2)."""
        return () if self.decay else [("lookup_table_", {"decay": 0.0})]


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
        got, wanted = f"ratio {ratio}, cells {cells}", "ratio at least 0.5, cells at least 1"
        raise ComponentError("iRPE's sizes are off.", where=where, got=got, expected=wanted)
