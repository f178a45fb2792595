"""Packages whose components one entry point names, in a file that is read without importing them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from vlcli import registry
from vlcli.errors import ComponentError

entries = importlib.import_module("vlcli.registry.entries")  # its name in the package is a function's
lookup = importlib.import_module("vlcli.registry.lookup")
CODE = """from vlcli.nn import AttentionShape, PairwisePosition


class Nothing(PairwisePosition):
    \"\"\"Adds nothing.\"\"\"

    def prepare(self, x, y, x_layout, y_layout):
        return None

    def logits(self, q, k, state, layer):
        return None
"""


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed packages, seen by this process."""
    monkeypatch.syspath_prepend(tmp_path)
    entries._installed.cache_clear()
    yield tmp_path
    entries._installed.cache_clear()


def install(site: Path, package: str, components: str, code: str = CODE) -> None:
    home, info = site / package, site / f"{package}-1.0.dist-info"
    for folder in (home, info):
        folder.mkdir()
    (home / "__init__.py").write_text("raise AssertionError('listing imports nothing')\n" if not code else "")
    (home / "parts.py").write_text(code)
    (home / "components.toml").write_text(components)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[vlcli.packages]\n{package} = {package}\n")


def test_its_components_are_listed_without_importing_it(site):
    install(site, "listed_only", '[positions]\nsilent = "parts:Nothing"\n', code="")
    entry = registry.find("positions", "silent")
    assert (entry.value, entry.distribution) == ("listed_only.parts:Nothing", "listed-only")
    assert "listed_only" not in sys.modules


def test_a_component_is_loaded_from_its_module_and_needs_are_kept(site):
    install(
        site,
        "loads_well",
        'interface = 1\n[positions]\nsilent = "parts:Nothing"\n[needs]\n"positions.silent" = "absent"\n',
    )
    assert registry.load("positions", "silent").__module__ == "loads_well.parts"
    assert registry.find("positions", "silent").needs == ("absent",)


@pytest.mark.parametrize(
    ("stated", "oldest", "newest", "what", "expected", "hint"),
    [
        (9, 1, 1, "too new for this vlcli", "interface 1 (vlcli ", "pip install --upgrade vlcli; or install an ear"),
        (2, 3, 5, "too old for this vlcli", "an interface from 3 to 5 (", "pip install --upgrade stated; or install"),
        (6, 3, 5, "too new for this vlcli", "an interface from 3 to 5 (", "pip install --upgrade vlcli"),
        (-1, 3, 5, "does not say which interface", "an interface from 3 to 5 (", "ask its author"),
        ('"soon"', 1, 1, "does not say which interface", "interface 1 (", "ask its author"),
    ],
)
def test_an_interface_outside_the_range_is_refused_before_anything_is_imported(
    site, monkeypatch, stated, oldest, newest, what, expected, hint
):
    monkeypatch.setattr(lookup, "OLDEST", oldest)
    monkeypatch.setattr(lookup, "INTERFACE", newest)
    install(site, "stated", f'interface = {stated}\n[positions]\nsilent = "parts:Nothing"\n', code="")
    with pytest.raises(ComponentError) as refused:
        registry.load("positions", "silent")
    error = refused.value
    assert what in error.what
    assert (error.where, error.got) == ("stated 1.0", f"interface {str(stated).strip(chr(34))}")
    assert error.expected.startswith(expected)
    assert error.hint.startswith(hint)
    assert "stated" not in sys.modules
    assert any(broken.entry.name == "silent" for broken in registry.status("positions"))


@pytest.mark.parametrize("stated", [3, 4, 5, None])
def test_an_interface_inside_the_range_is_loaded(site, monkeypatch, stated):
    monkeypatch.setattr(lookup, "OLDEST", 3)
    monkeypatch.setattr(lookup, "INTERFACE", 5)
    head = "" if stated is None else f"interface = {stated}\n"
    install(site, f"fits_{stated}", f'{head}[positions]\nsilent = "parts:Nothing"\n')
    assert registry.load("positions", "silent").__module__ == f"fits_{stated}.parts"


def test_a_damaged_file_is_reported_and_other_packages_work(site):
    install(site, "damaged_list", "[positions\n")
    with pytest.warns(UserWarning, match=r"damaged_list.*components\.toml"):
        assert registry.find("models", "lxmert").distribution == "vlcli"
