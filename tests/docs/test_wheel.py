"""The wheel, built from a copy of the tree and installed elsewhere, is whole."""

from __future__ import annotations

import json
import shutil
import sys
import zipfile

import pytest

from . import strangers
from .pages import PROJECT, run, vlcli

SOURCES = (
    "vlcli",
    "plugins",
    "recipes",
    "docs",
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "README.md",
    "CHANGELOG.md",
    "LICENSE",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel; a copy of the sources is built, so that the tree keeps no leftovers."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, tree / name)
    words = ["-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index", "--quiet", "-w", folder, tree]
    ended = run([sys.executable, *words], folder)
    assert ended.code == 0, ended.err
    (made,) = folder.glob("vlcli-*.whl")
    return made


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """A fresh environment with the wheel, which sees none of the project's tree."""
    made = strangers.environment(tmp_path_factory.mktemp("fresh") / "env", plain=True)
    strangers.install(made, wheel)
    return made


def test_the_wheel_holds_what_the_tree_holds(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, place in (("vlcli", "vlcli"), ("plugins", ""), ("recipes", "vlcli_recipes")):
        for file in (PROJECT / folder).rglob("*"):
            if file.suffix in (".py", ".yaml", ".json") or file.name == "py.typed":
                inside = file.relative_to(PROJECT / folder).as_posix()
                assert (f"{place}/{inside}" if place else inside) in names
    assert not [name for name in names if name.startswith(("tests/", "recipes/", "plugins/", "scripts/", "docs/"))]
    assert [name for name in names if name.endswith("licenses/LICENSE")]


def test_installed_elsewhere_it_lists_and_shows(python, tmp_path):
    where = run([python, "-c", "import vlcli, vlcli_lxmert; print(vlcli.__file__, vlcli_lxmert.__file__)"], tmp_path)
    assert where.out.count(str(python.parents[1])) == 2, where
    script = run([python.parent / "vlcli", "ls", "--json"], tmp_path)
    assert script.code == 0, script.err
    listed = {(r["kind"], r["name"], r["distribution"]) for r in json.loads(script.out)["components"]}
    ours = json.loads(vlcli(tmp_path, "ls", "--json").out)["components"]
    assert listed >= {(r["kind"], r["name"], r["distribution"]) for r in ours if r["distribution"] == "vlcli"}
    shown = json.loads(vlcli(tmp_path, "show", "quickstart", "--json", python=python).out)["recipe"]
    assert str(python.parents[1]) in shown["sources"][0]["file"]
    assert vlcli(tmp_path, "validate", "quickstart", python=python).code == 0


@pytest.mark.slow
def test_installed_elsewhere_it_runs_the_quickstart(python, quickstart, tmp_path):
    (tmp_path / "quickstart.yaml").write_text((quickstart.desk / "quickstart.yaml").read_text())
    ended = vlcli(tmp_path, "run", "quickstart.yaml", "--json", python=python)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["table"] == quickstart.document["table"]
