"""A package written once against the documented interface, and never changed since: it must go on to work as it is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from PIL import Image

from tests.docs.pages import vlcli
from tests.docs.strangers import environment, install

COMPONENTS = {"models": "meadow", "objectives": "meadow-match", "positions": "meadow-slope", "datasets": "meadow-lines"}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside")
    sources = shutil.copytree(
        Path(__file__).parent, folder / "meadow", ignore=shutil.ignore_patterns("test_*", "__pycache__")
    )
    interpreter = environment(folder / "environment")
    install(interpreter, sources)
    return interpreter


@pytest.fixture(scope="module")
def site(python: Path) -> Path:
    """Where the package is installed."""
    (folder,) = python.parents[1].glob("lib/*/site-packages")
    return folder


def field(folder: Path) -> Path:
    """Red and blue pictures, and whether a sentence names the colour."""
    (folder / "images").mkdir(parents=True)
    for part, count in (("train", 48), ("test", 16)):
        lines = []
        for number in range(count):
            colour, said, name = number % 2, number // 2 % 2, f"{part}{number}"
            Image.new("RGB", (32, 32), ((220, 20, 20), (20, 20, 220))[colour]).save(folder / "images" / f"{name}.jpg")
            sentence, verdict = f"it is {('red', 'blue')[said]}", "yes" if said == colour else "no"
            lines.append("\t".join((name, sentence, verdict)))
        (folder / f"lines_{part}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("kind", COMPONENTS)
def test_its_components_are_listed_and_described(site, tmp_path, kind):
    name = COMPONENTS[kind]
    assert name in vlcli(tmp_path, "ls", kind, site=site).out
    assert "meadow" in vlcli(tmp_path, "show", name, site=site).out


def test_it_is_there_for_the_python_that_it_was_installed_with(python, tmp_path):
    """The other tests see the folder in which pip put it."""
    assert "meadow" in vlcli(tmp_path, "show", "meadow", python=python).out
    assert vlcli(tmp_path, "show", "meadow").code == 4


def test_its_recipe_runs_from_pictures_to_a_score(site, tmp_path):
    field(tmp_path / "field")
    ended = vlcli(tmp_path, "run", "meadow/small", "--json", site=site)
    assert ended.code == 0, ended.err
    stages = {stage["stage"]: stage for stage in json.loads(ended.out)["stages"]}
    assert stages["test"]["metrics"]["accuracy"] > 0.9


def test_a_damaged_line_is_one_message_with_its_place(site, tmp_path):
    field(tmp_path / "field")
    (tmp_path / "field" / "lines_train.tsv").write_text("train0\tit is red\n")
    ended = vlcli(tmp_path, "run", "meadow/small", site=site)
    assert ended.code == 5
    assert "lines_train.tsv:1" in ended.err
    assert "Traceback" not in ended.err


def test_it_passes_the_conformance_suite(site, tmp_path):
    ended = vlcli(tmp_path, "plugin", "check", "meadow", "--quick", site=site)
    assert ended.code == 0, ended.out + ended.err


def test_it_is_told_in_one_message_when_vlcli_has_left_its_interface_behind(site, tmp_path):
    (stated,) = site.glob("meadow-1.0.dist-info/entry_points.txt")
    kept = stated.read_text()
    stated.write_text(f"{kept}\n[vlcli.interface]\nversion = v0\n")
    try:
        field(tmp_path / "field")
        ended = vlcli(tmp_path, "run", "meadow/small", site=site)
    finally:
        stated.write_text(kept)
    assert ended.code != 0
    assert "The package meadow is too old for this vlcli." in ended.err
    assert "pip install --upgrade meadow" in ended.err
    assert "Traceback" not in ended.err
