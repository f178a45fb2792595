"""Numbers by definition: the generator of the golden arrays, and bucket ids pair by pair with math alone."""

from __future__ import annotations

import math

import numpy as np


def uniform(seed: int, shape: tuple[int, ...], amp: float = 1.0, shift: float = 0.0) -> np.ndarray:
    """The golden file's portable generator (irpe_golden.md, section 1)."""
    i = np.arange(int(np.prod(shape)), dtype=np.uint64)
    with np.errstate(over="ignore"):
        offset = np.uint64((seed * 2246822519) % 2**64)
        u = i * i * np.uint64(2654435761) + i * np.uint64(40503) + offset
    w = (u >> np.uint64(16)) & np.uint64(65535)
    return (shift + amp * ((w.astype(np.float64) + 0.5) / 32768 - 1)).reshape(shape)


def index(x: float, ratio: float) -> int:
    """The piecewise index of one number."""
    if abs(x) <= ratio:
        return round(x)
    far = round(ratio + math.log(abs(x) / ratio) / math.log(8) * ratio)
    return int(math.copysign(int(min(far, 2 * ratio)), x))


def buckets(method: str, ratio: float, rows: int, columns: int, skip: int) -> np.ndarray:
    """Released ids (n, n); ``cross_rows`` and ``cross_cols`` are the two tables of Cross."""
    bound = math.floor(2 * ratio)
    side = 2 * bound + 1
    places = [(y, x) for y in range(rows) for x in range(columns)]

    def one(a: tuple[int, int], b: tuple[int, int]) -> int:
        dy, dx = a[0] - b[0], a[1] - b[1]
        return {
            "euc": lambda: index(round(math.sqrt(dy * dy + dx * dx)), ratio) + bound,
            "quant": lambda: index(dy * dy + dx * dx, ratio) + bound,
            "cross_rows": lambda: index(dy, ratio) + bound,
            "cross_cols": lambda: index(dx, ratio) + bound,
            "product": lambda: (index(dy, ratio) + bound) * side + index(dx, ratio) + bound,
        }[method]()

    count = skip + len(places)
    ids = np.full((count, count), side * side if method == "product" else side, dtype=np.int32)
    ids[skip:, skip:] = [[one(a, b) for b in places] for a in places]
    return ids
