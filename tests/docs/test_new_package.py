"""Packages that `vlcli plugin new` writes, installed by pip in an environment of their own."""

from __future__ import annotations

import json

import pytest

from vlcli.plugin_kit.scaffold import PARTS

from . import strangers
from .pages import run, vlcli

KINDS = {"model": "models", "objective": "objectives", "position": "positions", "reader": "datasets", "task": "tasks"}
CHOICES = ["", "model,objective", "position", "reader,task"]


def name_of(only: str) -> str:
    return f"paper-with-{only.replace(',', '-and-') or 'all'}"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with a package for each choice of parts, and the Python of an environment that has them all."""
    folder = tmp_path_factory.mktemp("new")
    for only in CHOICES:
        made = vlcli(folder, "plugin", "new", name_of(only), *(("--only", only) if only else ()))
        assert made.code == 0, made.err
    python = strangers.environment(folder / "env")
    strangers.install(python, *(folder / name_of(only) for only in CHOICES))
    return folder, python


@pytest.mark.slow
@pytest.mark.parametrize("only", CHOICES)
def test_it_installs_is_listed_conforms_and_passes_its_tests(installed, only):
    folder, python = installed
    name = name_of(only)
    listed = json.loads(vlcli(folder, "ls", "--json", python=python).out)["components"]
    ours = {row["kind"] for row in listed if row["distribution"] == name}
    assert ours == {"recipes", *(KINDS[part] for part in (only.split(",") if only else PARTS))}
    tested = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{name}/tests"], folder)
    assert tested.code == 0, tested.out + tested.err
    ended = vlcli(folder, "run", f"{name}/small", "--json", python=python)
    assert ended.code == 0, ended.err
    assert {stage["status"] for stage in json.loads(ended.out)["stages"]} == {"done"}
