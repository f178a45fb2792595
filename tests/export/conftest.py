"""What tests of folders for transformers share."""

from __future__ import annotations

import pytest
import tiny_models


@pytest.fixture
def more_families(monkeypatch):
    """The tiny models of ``converted.CASES``, by name beside the usual ones."""
    from converted import CASES  # it imports transformers

    for name, case in CASES.items():
        monkeypatch.setitem(tiny_models.FAMILIES, name, case)
