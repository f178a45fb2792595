"""Every message that docs/faq.md shows is printed for the change of the recipe that stands above it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli.cli import app

from .pages import PROJECT, files

PAGE = (PROJECT / "docs" / "faq.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"<!-- change: (.+?) -> (.+?) -->\n```text\n(.*?)^```", PAGE, re.S | re.M)


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four walls and a question about each."""
    folder = tmp_path_factory.mktemp("faq")
    (folder / "photos" / "images").mkdir(parents=True)
    rows = ["picture,question,answer"]
    for number, word in enumerate(("red", "blue") * 2):
        Image.new("RGB", (32, 24), word).save(folder / "photos" / "images" / f"{number}.png")
        rows.append(f"{number}.png,what colour is it?,{word}")
    (folder / "photos" / "questions.csv").write_text("\n".join(rows) + "\n")
    return folder


def test_the_page_shows_messages() -> None:
    assert len(SHOWN) == PAGE.count("<!-- change:") >= 10


@pytest.mark.parametrize(("old", "new", "message"), SHOWN)
def test_a_message_that_is_shown(desk: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str) -> None:
    monkeypatch.chdir(desk)
    old, new = (text.replace("\\n", "\n") for text in (old, new))
    recipe = files(PAGE)["asking.yaml"]
    assert old in recipe
    Path("asking.yaml").write_text(recipe.replace(old, new, 1), encoding="utf-8")
    ended = CliRunner().invoke(app, ["run", "asking.yaml"], prog_name="vlcli")
    assert ended.exit_code in (3, 4, 5), ended.output
    lacking = [line for line in message.splitlines() if line not in ended.stderr.splitlines()]
    assert lacking == [], ended.stderr
    assert not Path("runs").exists()
