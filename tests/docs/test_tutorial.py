"""docs/tutorial.md from its first command to its last, on a folder of drawn rooms, with few pictures and one epoch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rooms import write_rooms

from .pages import PROJECT, blocks, split, vlcli

PAGE = (PROJECT / "docs" / "tutorial.md").read_text(encoding="utf-8")
SHORT = ("stages.answer.epochs=1", "stages.answer-blind.epochs=1", "jobs=1")
MORE = {"run": SHORT, "demo": ("--check", "--port", "0")}
SAYS = {
    "init": "wrote first.yaml",
    "run": "question alone",
    "predict": "probability",
    "report": "report.html",
    "demo": "an answer takes",
    "export": "answers",
}


@pytest.mark.slow
def test_the_five_commands_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_rooms(tmp_path / "photos", 60)
    shutil.copy(tmp_path / "photos" / "images" / "image1.png", tmp_path / "new.png")
    commands = [split(line) for block in blocks(PAGE, "sh") for line in block.splitlines()]
    assert [words[0] for words in commands] == list(SAYS)
    for words in commands:
        named = [
            word.replace("first", _run(tmp_path)) if words[0] in ("predict", "report", "demo", "export") else word
            for word in words
        ]
        ended = vlcli(tmp_path, *named, *MORE.get(words[0], ()))
        assert ended.code == 0, ended.err
        assert SAYS[words[0]] in ended.out + ended.err
    assert vlcli(tmp_path, "validate", "first.yaml", "--deep").code == 0
    monkeypatch.chdir(tmp_path)
    for code in blocks(PAGE, "python"):
        exec(code.replace("runs/first", f"runs/{_run(tmp_path)}"), {})


def _run(folder: Path) -> str:
    """The run's name: with overrides it ends in a hash."""
    made = sorted((folder / "runs").glob("first*"))
    return made[0].name if made else "first"
