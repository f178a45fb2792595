"""Packages whose components one entry point names, in a file that is read without importing them."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from vlcli import registry
from vlcli.errors import ComponentError

entries = importlib.import_module("vlcli.registry.entries")  # its name in the package is a function's
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


def test_another_interface_is_refused_with_both_versions(site):
    install(site, "from_tomorrow", 'interface = 9\n[positions]\nsilent = "parts:Nothing"\n')
    with pytest.raises(ComponentError, match="another version of vlcli's interface") as refused:
        registry.load("positions", "silent")
    assert (refused.value.got, refused.value.expected) == ("interface 9", "interface 1, which this vlcli has")
    assert any(broken.entry.name == "silent" for broken in registry.status("positions"))


def test_a_damaged_file_is_reported_and_other_packages_work(site):
    install(site, "damaged_list", "[positions\n")
    with pytest.warns(UserWarning, match=r"damaged_list.*components\.toml"):
        assert registry.find("models", "lxmert").distribution == "vlcli"
