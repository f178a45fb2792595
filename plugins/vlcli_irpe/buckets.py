"""Maps relative positions to buckets: iRPE's index functions and its four methods (paper section 3.2).

An offset is the query's position minus the key's, rows first. Published and released definitions differ in two methods
(``form``): released code feeds Quantization the squared distance and rounds Euclidean distances before the index
function; the paper ranks distances and does not round.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from vlcli.errors import ComponentError

Method = Literal["euclidean", "quantization", "cross", "product", "sequence"]
Index = Literal["piecewise", "clip"]
Form = Literal["as_released", "as_published"]


def piecewise(x: Tensor, ratio: float) -> Tensor:
    """Returns the piecewise index g (Eq. 18) of distances, with alpha : beta : gamma = 1 : 2 : 8 and alpha = ``ratio``.

    Identity up to alpha, logarithmic beyond, never past beta. Where beta is no integer the bound is cut after rounding,
    as in the released code, so that the largest index is floor(beta).
    """
    x = _real(x)
    size = x.abs()
    far = ratio + torch.log(size.clamp(min=ratio) / ratio) / math.log(8.0) * ratio  # beta - alpha = alpha
    far = far.round().clamp(max=2 * ratio).trunc() * x.sign()
    return torch.where(size <= ratio, x.round(), far).long()


def clip(x: Tensor, ratio: float) -> Tensor:
    """Returns the clip index h (Eq. 9) of distances, with beta = 2 ``ratio``."""
    bound = math.floor(2 * ratio)
    return _real(x).round().clamp(-bound, bound).long()


@dataclass(frozen=True)
class BucketRule:
    """Maps offsets to bucket ids.

    ``method`` is one of the paper, or ``sequence``: the one-dimensional offset of earlier encodings. ``ratio`` is
    alpha; beta is twice, gamma eight times as much. ``trim`` leaves out the lower half of an undirected table, whose
    ids never occur.
    """

    method: Method = "product"
    ratio: float = 1.9
    index: Index = "piecewise"
    form: Form = "as_released"
    trim: bool = False

    @property
    def bound(self) -> int:
        return math.floor(2 * self.ratio)

    @property
    def tables(self) -> int:
        """Number of ids of a pair: two for Cross."""
        return 2 if self.method == "cross" else 1

    @property
    def buckets(self) -> int:
        """Number of ids of one table, without the bucket of pairs off the plane."""
        if self.trim and self.method in ("euclidean", "quantization"):
            return self.bound + 1
        side = 2 * self.bound + 1
        return side * side if self.method == "product" else side

    def __call__(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, ...]:
        index = piecewise if self.index == "piecewise" else clip
        if self.method in ("euclidean", "quantization"):
            distance = _real(rows) ** 2 + _real(columns) ** 2  # squared
            if self.method == "euclidean":
                distance = distance.sqrt() if self.form == "as_published" else distance.sqrt().round()
            elif self.form == "as_published":
                distance = _rank(distance, math.ceil(8 * self.ratio) + 2)
            ids = index(distance, self.ratio)
            return (ids if self.trim else ids + self.bound,)
        by_row, by_column = index(rows, self.ratio) + self.bound, index(columns, self.ratio) + self.bound
        if self.method == "product":
            return (by_row * (2 * self.bound + 1) + by_column,)
        return tuple(torch.broadcast_tensors(by_row, by_column))[: self.tables]


def ratio_for(buckets: int, method: Method) -> float:
    """Return the ratio whose table has ``buckets`` ids, the bucket of pairs off the plane not counted (Figure 3).

    Several ratios give one size; this is the one whose beta is an integer (81 is 2.0, 225 is 3.5). ComponentError if
    none does.
    """
    power = 2 if method == "product" else 1
    side = math.isqrt(buckets) if power == 2 else buckets
    if side**power == buckets and side >= 3 and side % 2 == 1:
        return (side - 1) / 4
    sizes = [n**power for n in dict.fromkeys([max(3, side - 1 + side % 2), side + 1 + side % 2])]
    what, where = f"No ratio gives the {method} method this many buckets.", "position irpe, key buckets"
    got, expected = str(buckets), f"an odd number{' squared' if power == 2 else ''}, e.g. {sizes}"
    raise ComponentError(what, where=where, got=got, expected=expected, hint="set ratio instead")


def _real(x: Tensor) -> Tensor:
    # Ids are the same in float32; accelerators without float64 (MPS) take that.
    if x.is_floating_point():
        return x
    return x.double() if x.device.type in ("cpu", "cuda", "meta") else x.float()


def _rank(squares: Tensor, count: int) -> Tensor:
    # Squared distances 0, 1, 2, 4, 5, 8 have the ranks 0 to 5. Ranking over the whole plane and not over one grid keeps
    # an offset's bucket when the resolution changes.
    known = torch.tensor(_sums_of_squares(count), device=squares.device, dtype=squares.dtype)
    return torch.searchsorted(known, squares.contiguous()).clamp(max=count)


@cache
def _sums_of_squares(count: int) -> tuple[int, ...]:
    sums = {a * a + b * b for a in range(count + 1) for b in range(count + 1)}
    return tuple(sorted(sums)[: count + 1])  # none is left out: the squares up to count ** 2 alone are as many
