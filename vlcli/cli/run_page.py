"""The page with which a run ends, or a run over seeds, where its recipe says ``report: true``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from vlcli.errors import VlcliError
from vlcli.progress import Progress


def page_of(folders: Sequence[Path], page: Path, device: str | None, progress: Progress) -> Path | None:
    """Write the page of runs; what goes wrong with it is told and is no fault of the runs.

    Args:
        folders: of the runs.
        page: the file.
        device: where models are asked for attention; None: chosen.
        progress: where to report.

    Returns:
        The file; None where it could not be written.
    """
    from vlcli.pages.report import ReportOptions, write_report

    try:
        return write_report(list(folders), page, ReportOptions(device=device or "auto"), progress)
    except (VlcliError, OSError) as error:
        progress.warn(f"the report could not be written: {' '.join(str(error).split())}")
        return None
