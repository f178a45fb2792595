"""Fixtures of the tests of packages that are checked from their folders."""

from __future__ import annotations

import importlib
import sys

import pytest


@pytest.fixture(autouse=True)
def _registers_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test registers, and the folders that it adds to the path of imports, end with it."""
    entries = importlib.import_module("vlcli.registry.entries")  # the package has a function of this name
    monkeypatch.setattr(entries, "_session", dict(entries._session))
    monkeypatch.setattr(sys, "path", list(sys.path))
