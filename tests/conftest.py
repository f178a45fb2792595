"""Fixtures that the whole suite shares."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of reference data beside the project, or where ``VLCLI_SHARED`` says; skips where there is none."""
    folder = Path(os.environ.get("VLCLI_SHARED") or Path(__file__).resolve().parents[2] / "shared")
    if not folder.is_dir():
        pytest.skip("no reference data: set VLCLI_SHARED")
    return folder
