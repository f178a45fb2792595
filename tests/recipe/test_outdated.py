"""An editable installation that is older than its pyproject.toml: the message says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vlcli import registry
from vlcli.cli.listing import _unknown
from vlcli.errors import ComponentError
from vlcli.registry.entries import not_installed


@pytest.fixture
def older(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package installed from a folder whose pyproject.toml has got a model since."""
    source, site = tmp_path / "a source", tmp_path / "site"
    info = site / "my_paper-1.dist-info"
    info.mkdir(parents=True)
    source.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-paper\nVersion: 1\n")
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    (source / "pyproject.toml").write_text(
        '[project]\nname = "my-paper"\n[project.entry-points."vlcli.models"]\nnew-one = "my_paper:New"\n'
    )
    monkeypatch.syspath_prepend(str(site))
    return source


def test_a_model_that_was_added_since(older: Path) -> None:
    with pytest.raises(ComponentError) as caught:
        registry.find("models", "new-one")
    assert "no model called 'new-one'" in str(caught.value)
    assert f"install {older} again" in str(caught.value)
    assert f"install {older} again" in str(_unknown("new-one", None))
    assert not_installed("objectives", "new-one") is None


def test_other_names_get_suggestions(older: Path) -> None:
    with pytest.raises(ComponentError, match="did you mean 'lxmert'"):
        registry.find("models", "lxmart")
    assert "did you mean 'lxmert'" in str(_unknown("lxmart", "models"))
    assert "'model_LXRT'" not in str(_unknown("model_LXR", None))  # a checkpoint's name: `vlcli show` shows none


@pytest.mark.parametrize("text", ["{", '{"url": "https://example.org/x.git"}', '{"dir_info": {"editable": true}}'])
def test_other_installations_are_passed_over(older: Path, text: str) -> None:
    (info,) = (older.parent / "site").iterdir()
    (info / "direct_url.json").write_text(text)
    assert not_installed("models", "new-one") is None


def test_a_damaged_pyproject_is_passed_over(older: Path) -> None:
    (older / "pyproject.toml").write_text("[project\n")
    assert not_installed("models", "new-one") is None
