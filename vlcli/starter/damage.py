"""Which pictures are damaged: all are decoded, up to a limit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from vlcli.images.files import BadImageError, check_image, read_size

MOST_DECODED = 10_000
"""Pictures that are decoded; of a larger folder as many, evenly spread, and of the others the headers are read."""


def damaged(paths: Iterable[Path]) -> tuple[dict[Path, str], str]:
    """Decode pictures, in threads.

    Returns:
        Those that cannot be, with the reason; and a line where only headers were read of some.
    """
    every = sorted(paths)
    step = -(-len(every) // MOST_DECODED) if every else 1
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        reasons = pool.map(
            lambda pair: _reason(check_image if pair[0] % step == 0 else read_size, pair[1]), enumerate(every)
        )
        found = {path: reason for path, reason in zip(every, reasons, strict=True) if reason}
    decoded = len(every[::step])
    line = f"{decoded:,} of {len(every):,} pictures were decoded, and the headers of the others read"
    return found, line if decoded < len(every) else ""


def _reason(read: Callable[[Path], object], path: Path) -> str:
    try:
        read(path)
    except BadImageError as error:
        return str(error)
    return ""
