"""The wheel, built from a copy of the tree and installed elsewhere, is whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tarfile
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


def copied(tree):
    """A copy of the sources, so that building leaves nothing behind in the tree."""
    tree.mkdir()
    for name in SOURCES:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy(source, tree / name)
    return tree


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = copied(folder / "tree")
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


@pytest.mark.slow
def test_equal_sources_give_equal_archives(tmp_path):
    digests = []
    for number, name in enumerate(("first", "second")):
        tree, out = copied(tmp_path / name), tmp_path / f"dist-{name}"
        for file in tree.rglob("*.py"):
            file.chmod(0o600 if number else 0o664)
            os.utime(file, (10**9 + number, 10**9 + number))
        code = f"from setuptools import build_meta as b; b.build_sdist({str(out)!r}); b.build_wheel({str(out)!r})"
        ended = run([sys.executable, "-c", code], tree)
        assert ended.code == 0, ended.err
        digests.append({file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in out.iterdir()})
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]


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
def test_the_sdist_holds_every_file_of_the_repository(tmp_path):
    tracked = run(["git", "ls-files"], PROJECT)
    if tracked.code:
        pytest.skip("not a clone")
    for name in tracked.out.split():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(PROJECT / name, tmp_path / name)
    ended = run([sys.executable, "-c", "from setuptools import build_meta as b; b.build_sdist('.')"], tmp_path)
    assert ended.code == 0, ended.err
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert set(tracked.out.split()) - names == set()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_an_installation_that_lost_a_file_is_named_by_doctor(python, tmp_path, damage):
    (file,) = python.parents[1].glob("lib/*/site-packages/vlcli_lxmert/components.toml")
    whole = file.read_bytes()
    file.unlink() if damage == "missing" else file.write_bytes(whole.replace(b"l", b"L", 1))
    try:
        ended = vlcli(tmp_path, "doctor", python=python)
        listed = vlcli(tmp_path, "ls", python=python)
    finally:
        file.write_bytes(whole)
    assert ended.code == 4
    assert "damaged or missing: vlcli_lxmert/components.toml" in ended.out
    assert "files: pip install --force-reinstall --no-deps vlcli" in ended.out
    assert listed.code == 0
    said = (
        f"warning: the components of vlcli_lxmert are not listed: {file}: No such file or directory; reinstall vlcli\n"
    )
    assert damage == "changed" or listed.err.startswith(said)


@pytest.mark.slow
def test_sources_without_their_data_files_are_not_built(tmp_path):
    tree = copied(tmp_path / "tree")
    (tree / "plugins/vlcli_irpe/components.toml").unlink()
    ended = run([sys.executable, "-c", "from setuptools import build_meta as b; b.build_wheel('.')"], tree)
    assert ended.code == 1
    assert "these sources are incomplete: no plugins/vlcli_irpe/components.toml" in ended.err
    assert not list(tree.glob("*.whl"))


@pytest.mark.slow
def test_installed_elsewhere_it_runs_the_quickstart(python, quickstart, tmp_path):
    (tmp_path / "quickstart.yaml").write_text((quickstart.desk / "quickstart.yaml").read_text())
    ended = vlcli(tmp_path, "run", "quickstart.yaml", "--json", python=python)
    assert ended.code == 0, ended.err
    assert json.loads(ended.out)["table"] == quickstart.document["table"]
