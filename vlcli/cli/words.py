"""Writes numbers, sizes, times and metrics as the terminal shows them."""

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from vlcli.errors import UsageError


def clock(seconds: float) -> str:
    """``0:07``, ``12:30`` or ``1:02:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def spent(seconds: float) -> str:
    """``3.2 s`` or ``4 min 05 s``; nothing for 0."""
    if seconds == 0:
        return ""
    return f"{seconds:.1f} s" if seconds < 60 else f"{int(seconds // 60)} min {int(seconds % 60):02} s"


def roughly(seconds: float) -> str:
    """An estimate, rounded as an estimate is: ``about 40 s``, ``about 12 min``, ``about 3.5 h``."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {round(seconds / 10) * 10} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def fact(name: str, value: float | str) -> str:
    """``loss 2.221``."""
    return f"{name} {value:.4g}" if isinstance(value, float) else f"{name} {value}"


def facts(values: Mapping[str, float | str]) -> str:
    """Several facts in one line."""
    return "  ".join(fact(name, value) for name, value in values.items())


def size(count: float) -> str:
    """``7 B``, ``3.1 KB`` or ``250 MB``."""
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def bytes_of(text: str, option: str) -> float:
    """The bytes of a size such as ``80GB``; ``option`` is named where it is none."""
    units = {"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
    try:
        count = float(text[:-2]) * units[text[-2:].upper()]
    except (KeyError, ValueError):
        count = 0.0
    if not 0 < count < 1e18:
        raise UsageError("This is no size.", where=option, got=text, expected="a number and KB, MB, GB or TB: 80GB")
    return count


def age(seconds: float) -> str:
    """``5 min`` or ``3 d``."""
    for unit, length in {"d": 86400, "h": 3600, "min": 60}.items():
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def number(value: float) -> str:
    """A metric: counts whole, fractions with three digits; what a package recorded instead of a number as it is."""
    if not isinstance(value, int | float):
        return str(value)
    if float(value).is_integer() and (abs(value) >= 2 or value == 0):
        return str(int(value))
    return f"{value:.3f}" if abs(value) >= 0.001 else f"{value:.2g}"


def main_metrics(metrics: Mapping[str, float], most: int = 3, patterns: Sequence[str] = ()) -> str:
    """The first few metrics in one cell: those of ``patterns`` where any fits, else those without a kind or a group.

    An accuracy stands beside that of the most frequent answer, a ranking's score beside that of a random order.
    """
    from vlcli.metrics.baseline import CHANCE, beside, without_baselines

    shown = without_baselines(metrics)
    depth = min((name.count("/") for name in shown), default=0)
    named = [name for pattern in patterns for name in shown if fnmatchcase(name, pattern)]
    cells = []
    for name in list(dict.fromkeys(named or [name for name in shown if name.count("/") == depth]))[:most]:
        other = beside(name, metrics)
        who = "chance" if other is not None and other.startswith(f"{CHANCE}/") else "most frequent"
        cells.append(f"{name} {number(metrics[name])}" + (f" ({who} {number(metrics[other])})" if other else ""))
    return "  ".join(cells)
