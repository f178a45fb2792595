"""Numbers, sizes and times as the terminal shows them."""

from __future__ import annotations

from collections.abc import Mapping


def clock(seconds: float) -> str:
    """``0:07``, ``12:30`` or ``1:02:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def roughly(seconds: float) -> str:
    """An estimate, no more exact than it is: ``about 40 s``, ``about 12 min``, ``about 3.5 h``."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {round(seconds / 10) * 10} s"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"


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


def age(seconds: float) -> str:
    """``5 min`` or ``3 d``."""
    for unit, length in {"d": 86400, "h": 3600, "min": 60}.items():
        if seconds >= length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"


def refuse_bytes(text: str | None) -> None:
    """Refuse a text of the command line that is not UTF-8.

    Raises:
        UsageError: it is not.
    """
    if text is not None and any("\ud800" <= letter <= "\udfff" for letter in text):
        from vlcli.errors import UsageError

        got = text.encode("utf-8", "backslashreplace").decode()
        raise UsageError("The text is not UTF-8.", got=got, hint="set the terminal to UTF-8 (LANG=C.UTF-8)")
