"""The public names: their page is complete, each can be imported, and the built-in packages import no others."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from tests.docs.pages import PROJECT
from vlcli.registry import public

sys.path.insert(0, str(PROJECT / "scripts"))
public_api = importlib.import_module("public_api")


def test_the_page_lists_every_public_name() -> None:
    assert public_api.PAGE.read_text(encoding="utf-8") == public_api.page(), "run: python scripts/public_api.py"


@pytest.mark.parametrize("module", public.PUBLIC)
def test_every_public_name_is_there(module: str) -> None:
    names = public.public_names(module)
    there = importlib.import_module(module)
    assert names
    assert sorted(getattr(there, "__all__", names)) == list(names)
    assert [name for name in names if not hasattr(there, name)] == []


def test_built_in_packages_import_public_names_only() -> None:
    assert [str(one) for one in public_api.private()] == []


def test_every_public_name_is_described() -> None:
    rows = [line for line in public_api.page().splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.endswith("|  |")] == []


@pytest.mark.parametrize("module", ["vlcli", "vlcli.data", "vlcli.detection", "vlcli.features", "vlcli.tasks"])
def test_public_modules_that_are_light_import_no_torch(module: str) -> None:
    code = f"import sys, {module}; print('torch' in sys.modules)"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "False"
