"""A recipe's own Python runs only where the user trusts it."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.recipe import trust
from vlcli.recipe.load import load

PLUGIN = """
from pathlib import Path
Path(__file__).with_name("ran").write_text("yes")
"""
RECIPE = (
    "plugins: [mine.py]\nroot: {root}\nmodel: lxmert\nstages:\n  pretrain: {{data: coco-captions, objectives: [mlm]}}\n"
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A recipe with a plugin file that leaves a mark, and a configuration folder of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    made = tmp_path / "paper"
    made.mkdir()
    (made / "mine.py").write_text(PLUGIN)
    (made / "mine.yaml").write_text(RECIPE.format(root=tmp_path))
    monkeypatch.chdir(tmp_path)
    return made


def vlcli(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.mark.parametrize(
    "words",
    [
        ["validate", "RECIPE"],
        ["validate", "RECIPE", "--deep"],
        ["count", "RECIPE"],
        ["data", "stats", "RECIPE"],
        ["run", "RECIPE", "--dry-run"],
        ["run", "RECIPE"],
        ["run", "RECIPE", "--seeds", "2"],
        ["pretrain", "--recipe", "RECIPE"],
        ["eval", "--recipe", "RECIPE"],
        ["draw", "--recipe", "RECIPE"],
    ],
)
def test_no_verb_runs_what_is_not_trusted(folder, words):
    ended = vlcli(*[folder / "mine.yaml" if word == "RECIPE" else word for word in words])
    assert ended.exit_code == 4
    assert not (folder / "ran").exists()
    assert f"{folder}/mine.yaml:1" in ended.stderr
    assert f"{folder}/mine.py" in ended.stderr
    assert f"vlcli trust {folder}" in ended.stderr
    assert "--trust" in ended.stderr


def test_looking_at_the_recipe_itself_needs_no_trust(folder):
    for words in (["show", folder / "mine.yaml"], ["cp", folder / "mine.yaml", "-"], ["ls"]):
        ended = vlcli(*words)
        assert ended.exit_code == 0, ended.stderr
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("how", ["--trust", "--plugin", "override", "folder", "above", "file"])
def test_what_is_trusted_runs(folder, how):
    words = ["run", folder / "mine.yaml", "--dry-run"]
    listed = {"folder": folder, "above": folder.parent, "file": folder / "mine.py"}
    if how in listed:
        assert vlcli("trust", listed[how]).exit_code == 0
    more = {"--trust": ["--trust"], "--plugin": ["--plugin", folder / "mine.py"]}
    more["override"] = [f"plugins=[{folder}/mine.py]"]
    ended = vlcli(*words, *more.get(how, []))
    assert "you trust" not in ended.stderr
    assert (folder / "ran").read_text() == "yes"


def test_trust_is_listed_kept_once_and_taken_back(folder):
    for _ in range(2):
        assert vlcli("trust", folder).exit_code == 0
    listed = vlcli("trust", "--list", "--json")
    assert json.loads(listed.stdout)["trusted"] == [str(folder)]
    assert vlcli("trust", "--remove", folder).exit_code == 0
    assert trust.trusted() == []
    assert vlcli("trust", "--remove", folder).exit_code == 2
    assert vlcli("trust").exit_code == vlcli("trust", folder / "nowhere").exit_code == 2
    assert vlcli("validate", folder / "mine.yaml").exit_code == 4
    assert [file.name for file in trust.list_file().parent.iterdir()] == ["trusted.json"]


def test_a_list_that_is_a_text_trusts_nothing(folder):
    trust.trust(folder)
    trust.list_file().write_text(json.dumps({"schema_version": 1, "trusted": str(folder)}))
    ended = vlcli("validate", folder / "mine.yaml")
    assert ended.exit_code == 5, ended.stderr
    assert "cannot be read" in ended.stderr
    assert not (folder / "ran").exists()


def test_an_empty_list_is_told_and_folders_with_spaces_are_quoted(folder):
    assert "nothing is trusted yet" in vlcli("trust", "--list").stderr
    spaced = folder / "my bag"
    spaced.mkdir()
    for name in ("mine.yaml", "mine.py"):
        (spaced / name).write_text((folder / name).read_text())
    assert f"vlcli trust '{spaced}'" in vlcli("validate", spaced / "mine.yaml").stderr


@pytest.mark.parametrize(("code", "line"), [("x = 1\nraise ValueError('no')\n", 2), ("x = 1\n\ny = (\n", 3)])
def test_a_file_that_raises_is_told_with_its_line(folder, code, line):
    (folder / "mine.py").write_text(code)
    ended = vlcli("validate", "--trust", folder / "mine.yaml")
    assert ended.exit_code == 4
    assert f"mine.py:{line}" in ended.stderr


def test_a_link_counts_as_what_it_points_to(folder, tmp_path):
    home = tmp_path / "home"
    home.mkdir()
    trust.trust(home)
    (home / "mine.py").symlink_to(folder / "mine.py")
    (home / "mine.yaml").write_text((folder / "mine.yaml").read_text())
    with pytest.raises(ComponentError, match="trust"):
        load(str(home / "mine.yaml"))
    assert not (folder / "ran").exists()


def test_one_file_that_is_not_trusted_holds_up_all(folder, tmp_path):
    trust.trust(folder)
    (tmp_path / "other.py").write_text("raise SystemExit('ran')\n")
    (folder / "two.yaml").write_text((folder / "mine.yaml").read_text().replace("[mine.py]", "[mine.py, ../other.py]"))
    with pytest.raises(ComponentError) as caught:
        load(str(folder / "two.yaml"))
    assert "other.py" in caught.value.got
    assert "mine.py" not in caught.value.got
    assert not (folder / "ran").exists()
    assert load(str(folder / "two.yaml"), plugins=False).plugins == []


def test_a_damaged_list_says_so(folder):
    trust.list_file().parent.mkdir(parents=True)
    trust.list_file().write_text('{"trusted": 3}')
    with pytest.raises(DataError, match="cannot be read"):
        load(str(folder / "mine.yaml"))
    with pytest.raises(UsageError):
        trust.trust(folder / "nowhere")


def test_processes_of_a_run_are_given_its_plugins(folder):
    from vlcli.recipe import plan
    from vlcli.runner.parallel import command

    resolved = load(str(folder / "mine.yaml"), trust=True)
    planner, steps = plan.make(resolved, plan.RunOptions(folder / "runs"))
    words = command(planner, steps[0])
    assert words[words.index("--plugin") + 1] == str(folder / "mine.py")
