"""A package that `vlcli plugin new` writes, installed by pip in an environment of its own."""

from __future__ import annotations

import json

import pytest

from . import strangers
from .pages import run, vlcli


@pytest.mark.slow
def test_it_installs_is_listed_conforms_and_passes_its_tests(tmp_path):
    made = vlcli(tmp_path, "plugin", "new", "first-paper")
    assert made.code == 0, made.err
    python = strangers.environment(tmp_path / "env")
    strangers.install(python, tmp_path / "first-paper")
    listed = json.loads(vlcli(tmp_path, "ls", "--json", python=python).out)["components"]
    ours = {(row["kind"], row["name"]) for row in listed if row["distribution"] == "first-paper"}
    assert {kind for kind, _ in ours} == {"models", "objectives", "positions", "datasets", "tasks", "recipes"}
    tested = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "first-paper/tests"], tmp_path)
    assert tested.code == 0, tested.out + tested.err
    ended = vlcli(tmp_path, "run", "first-paper/small", "--json", python=python)
    assert ended.code == 0, ended.err
    assert [stage["status"] for stage in json.loads(ended.out)["stages"]] == ["done"] * 5
