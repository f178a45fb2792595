"""Metrics as the terminal shows them: a few numbers in one cell."""

from __future__ import annotations

from collections.abc import Mapping

from vlcli.metrics.baseline import CHANCE, beside, without_baselines


def main_metrics(metrics: Mapping[str, float], most: int = 3) -> str:
    """The first few numbers in one cell, without those per kind or group, which the tables show.

    An accuracy stands beside that of the most frequent answer, a ranking's score beside that of a random order.
    """
    shown = without_baselines(metrics)
    depth = min((name.count("/") for name in shown), default=0)
    plain = [name for name in shown if name.count("/") == depth]
    return "  ".join(_metric(name, metrics) for name in plain[:most])


def _metric(name: str, metrics: Mapping[str, float]) -> str:
    other = beside(name, metrics)
    who = "chance" if other is not None and other.startswith(f"{CHANCE}/") else "most frequent"
    return f"{name} {number(metrics[name])}" + (f" ({who} {number(metrics[other])})" if other else "")


def number(value: float) -> str:
    """Counts whole, fractions with three digits."""
    if float(value).is_integer() and (abs(value) >= 2 or value == 0):
        return str(int(value))
    return f"{value:.3f}" if abs(value) >= 0.001 else f"{value:.2g}"
