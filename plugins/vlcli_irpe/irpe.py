"""Defines iRPE, relative position encoding for images (Wu et al., ICCV 2021), in all its variants."""

from collections.abc import Iterable
from typing import Any, Literal, TypeVar

from torch import nn

from vlcli import foreign
from vlcli.errors import ComponentError
from vlcli.nn import AttentionShape, PairwisePosition
from vlcli.registry import Spec
from vlcli_irpe.buckets import BucketRule, Form, Index, ratio_for
from vlcli_irpe.lookup import LETTERS, BucketPosition, Side
from vlcli_irpe.relative_index import Align

M = TypeVar("M", bound=nn.Module)


class IRPE(BucketPosition):
    """Image relative position encoding: bucketed 2-D offsets on queries, keys and values (iRPE).

    A term on keys is read by the queries, one on queries by the keys, one on values is weighted by the
    probabilities. On boxes the offset is that of their centres, measured in cells of a grid.

    Args:
        method: how a 2-D offset becomes a bucket.
        mode: a vector per bucket that meets the tokens, or a scalar added to the scores.
        sides: what it is added to.
        ratio: alpha of the index function; beta is twice, gamma eight times as much. Released: 1.9 product, 20
            euclidean and cross, 33 quantization; 2.0 and 3.5 are the 9x9 and 15x15 tables of the ablations.
        buckets: size of the table instead of the ratio, the extra bucket not counted.
        index: piecewise, or clip as in earlier encodings.
        form: where paper and released code differ, which one holds: rank or squared distance, rounding before the
            index, bias divided by sqrt(d) or not, r_ij or its mirror image on queries, tables decayed or not.
        align: grids of two sizes: each in its own cells, or the queries' stretched over the keys'.
        trim: drop the half of an undirected table that no pair can reach.
        decay: whether weight decay applies to the tables; None follows the form (published no, released yes).
        scale_bias: whether bias mode is divided by sqrt(d); None follows the form (published yes, released no).
        init: of the tables; released DETR ends with Xavier, all else is zero.
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
        align: Align = "cells",
        trim: bool = False,
        decay: bool | None = None,
        scale_bias: bool | None = None,
        cells: int = 14,
        **options: Any,
    ) -> None:
        where = "position irpe"
        if not sides:
            expected = "some of query, key, value"
            raise ComponentError("iRPE needs one side at least.", where=where, got="sides: []", expected=expected)
        if mode == "bias" and "value" in sides:
            what, got = "A bias on values is not defined: values are vectors (Eq. 17).", f"mode: bias, sides: {sides}"
            hint = "use mode: contextual, or leave value out"
            raise ComponentError(what, where=where, got=got, expected="query or key", hint=hint)
        if ratio < 0.5 or cells < 1:
            got, expected = f"ratio {ratio}, cells {cells}", "ratio at least 0.5, cells at least 1"
            raise ComponentError("iRPE's ratio or cells are too small.", where=where, got=got, expected=expected)
        released = form == "as_released"
        rule = BucketRule(method, ratio if buckets is None else ratio_for(buckets, method), index, form, trim)
        ordered = tuple(side for side in LETTERS if side in sides)
        scaled = mode == "contextual" or (not released if scale_bias is None else scale_bias)
        super().__init__(shape, rule, ordered, mode == "contextual", scaled, released, align, cells=cells, **options)
        self.decay = released if decay is None else decay

    def parameter_groups(self) -> Iterable[tuple[str, dict[str, float]]]:
        return () if self.decay else [("lookup_table_", {"decay": 0.0})]


def equip(model: M, position: Spec | str | PairwisePosition | None = None, **options: Any) -> M:
    """Give a model of another library a relative position encoding, in place: :func:`vlcli.foreign.equip`.

    ``position`` is a registered pairwise encoding or attention, or a module; None: iRPE with ``options``. Tables are
    added under the names of the iRPE release (``rpe_k.lookup_table_weight`` beside the projections); weights and their
    names stay as they are.
    """
    return foreign.equip(model, "irpe" if position is None else position, **options)
