"""A built-in paper moved out of the repository: ACE-RPE as a separate distribution, with its recipes."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from . import strangers
from .pages import PROJECT, Ended, run, vlcli

MODULE = "vlcli_ace_rpe"
HEAD = """[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "ace-rpe-paper"
version = "3.0"
dependencies = ["vlcli"]

[tool.setuptools]
packages = ["vlcli_ace_rpe", "ace_rpe_recipes", "ace_rpe_recipes.ace_rpe", "ace_rpe_recipes.tiny"]

[tool.setuptools.package-data]
"*" = ["*.yaml", "*.toml"]
"""
SMALL = [
    *(f"stages.world.world.{key}={count}" for key, count in {"images": 60, "nlvr2_train": 24}.items()),
    "stages.world.world.nlvr2_dev=24",
    "stages.world.world.nlvr2_test=24",
    *("stages.eyes.steps=2", "stages.start.epochs=1", "stages.pretrain.epochs=1"),
]
KEPT = ("world", "eyes", "grid", "start", "pretrain")


def is_moved(line: str) -> bool:
    """Whether a line of pyproject.toml declares a component or recipe of the paper."""
    return bool(re.match(r'[\w"/.-]+ = "', line)) and (
        MODULE in line or bool(re.search(r"vlcli_recipes.*ace_rpe", line))
    )


def declared(text: str) -> Iterator[tuple[str, str]]:
    """Group and line of every entry point of the paper."""
    group = ""
    for line in text.splitlines():
        group = line if line.startswith("[") else group
        if "entry-points" in group and is_moved(line):
            yield group, line


def repository(folder: Path) -> Path:
    """The repository without the paper: its package, its recipes and its entry points."""
    others = shutil.ignore_patterns("__pycache__", MODULE, "ace_rpe*", "*.egg-info")
    for name in ("vlcli", "plugins", "recipes"):
        shutil.copytree(PROJECT / name, folder / name, ignore=others)
    for name in ("setup.py", "README.md", "LICENSE"):
        if (PROJECT / name).is_file():
            shutil.copy(PROJECT / name, folder / name)
    lines = (PROJECT / "pyproject.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    (folder / "pyproject.toml").write_text("".join(line for line in lines if not is_moved(line)), encoding="utf-8")
    return folder


def outside(folder: Path) -> Path:
    """The paper as a package of its author: the same files, under its distribution and its recipes' package."""
    shutil.copytree(PROJECT / "plugins" / MODULE, folder / MODULE, ignore=shutil.ignore_patterns("__pycache__"))
    recipes = folder / "ace_rpe_recipes"
    shutil.copytree(PROJECT / "recipes" / "ace_rpe", recipes / "ace_rpe")
    (recipes / "tiny").mkdir()
    for file in (PROJECT / "recipes" / "tiny").glob("ace_rpe*.yaml"):
        shutil.copy(file, recipes / "tiny")
    for package in (recipes, recipes / "ace_rpe", recipes / "tiny"):
        (package / "__init__.py").touch()
    groups: dict[str, list[str]] = {}
    for group, line in declared((PROJECT / "pyproject.toml").read_text(encoding="utf-8")):
        groups.setdefault(group, []).append(line.replace("vlcli_recipes", "ace_rpe_recipes"))
    groups['[project.entry-points."vlcli.recipes"]'].append('tiny = "ace_rpe_recipes.tiny"')
    points = "".join("\n".join(["", group, *lines, ""]) for group, lines in groups.items())
    (folder / "pyproject.toml").write_text(HEAD + points, encoding="utf-8")
    return folder


def listed(python: Path | None, folder: Path, *words: str) -> dict[tuple[str, str], dict[str, str]]:
    """The rows of ``vlcli ls`` by kind and name."""
    ended: Ended = vlcli(folder, "ls", *words, "--json", **({} if python is None else {"python": python}))
    assert ended.code == 0, ended.err
    return {(row["kind"], row["name"]): row for row in json.loads(ended.out)["components"]}


@pytest.fixture(scope="module")
def apart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """An environment with vlcli without ACE-RPE, nothing installed editable; its Python, and the paper's folder."""
    folder = tmp_path_factory.mktemp("apart")
    python = strangers.environment(folder / "env", plain=True)
    strangers.install(python, repository(folder / "vlcli"))
    return python, outside(folder / "ace-rpe-paper")


@pytest.mark.slow
def test_a_paper_moves_out_of_the_repository_and_back(apart: tuple[Path, Path], tmp_path: Path) -> None:
    python, paper = apart
    here, without = listed(None, tmp_path), listed(python, tmp_path)
    gone = set(here) - set(without)
    assert ("positions", "ace-rpe") in gone
    assert {name for kind, name in gone if kind != "recipes"} == {"ace-rpe", "anchor-alignment", "ace-anchors"}
    assert len(gone) > 10
    refused = vlcli(tmp_path, "validate", "tiny/ace-rpe", python=python)
    assert (refused.code, "tiny/ace-rpe" in refused.err) == (4, True)

    strangers.install(python, paper)
    again = listed(python, tmp_path, "--check")
    assert set(again) == set(here)
    assert {again[one]["distribution"] for one in gone} == {"ace-rpe-paper"}
    assert [row for row in again.values() if row["broken"] or row["private"]] == []

    names = sorted(name for kind, name in gone if kind == "recipes")
    code = f"from vlcli.recipe.load import locate, read_chain\nprint([bool(read_chain(locate(n))) for n in {names}])"
    loaded = run([python, "-c", code], tmp_path)
    assert loaded.out.strip() == str([True] * len(names)), loaded.err
    stages = json.loads(
        vlcli(tmp_path, "show", "tiny/ace-rpe:anchor", "--kind", "recipes", "--json", python=python).out
    )
    left_out = [f"~stages.{name}" for name in stages["recipe"]["stages"] if name not in KEPT]
    ended = vlcli(tmp_path, "run", "tiny/ace-rpe:anchor", *left_out, "~table", *SMALL, "--json", python=python)
    assert ended.code == 0, ended.err
    assert [stage["status"] for stage in json.loads(ended.out)["stages"]] == ["done"] * len(KEPT)
    (file,) = (tmp_path / "runs").rglob("pretrain/stage.json")
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["versions"]["ace-rpe-paper"] == "3.0"
