"""Prints what benchmarks measured that take two works in turn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence


def report(times: Mapping[str, Sequence[float]]) -> None:
    """Prints the median of each work's seconds, and the ratio of the first to the second."""
    middle = {name: statistics.median(each) for name, each in times.items()}
    for name, seconds in middle.items():
        print(f"{name:<12} {seconds * 1e3:.1f} ms")
    first, second = middle.values()
    print(f"ratio {first / second:.2f}")
