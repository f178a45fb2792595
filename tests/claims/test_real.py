"""Claims on real photographs: a part of the page and of Holm's correction of their own; they wait for photographs."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.claims.studies import HEAD, claim, looker, registered
from vlcli.claims import reproduce
from vlcli.claims.load import every
from vlcli.claims.page import render
from vlcli.claims.verdicts import Judged, judge
from vlcli.cli import app
from vlcli.pages.verdicts import render_verdicts
from vlcli.runner.execute import StageOutcome

ROWS = {"new": [0.70, 0.76, 0.75, 0.74, 0.79], "old": [0.70, 0.72, 0.73, 0.70, 0.74]}


def real(name: str, rows: tuple[str, str], recipe: str = "mine/table") -> str:
    """A claim that photographs test, and what it costs."""
    return claim(name, rows, recipe=recipe).replace("world: board", "world: real/rooms, minutes: 3")


@pytest.fixture(autouse=True)
def worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The invented paper has a world of photographs, too."""
    more = HEAD.replace("worlds: {", "worlds: {real/rooms: Photographs of rooms and questions about them., ")
    monkeypatch.setattr("tests.claims.studies.HEAD", more)


def judged(tmp_path: Path) -> list[Judged]:
    """A claim on photographs that has run, one that has not, and nine on shapes that have not."""
    others = [claim(f"more-{number}", (f"row{number}", "old")) for number in range(9)]
    claims = registered(tmp_path, *others, real("seen", ("new", "old")), real("later", ("nothing", "old")))
    return judge(claims, looker(ROWS))


def test_holm_corrects_them_apart(tmp_path: Path) -> None:
    seen = next(one for one in judged(tmp_path) if one.registered.claim.id == "mine-seen")
    alone = judge(registered(tmp_path, claim("seen", ("new", "old"))), looker(ROWS))[0]
    assert alone.p is not None
    assert seen.p == 2 * alone.p


def test_they_come_first_and_are_counted_apart(tmp_path: Path) -> None:
    found = judged(tmp_path)
    page = render(found)
    assert page.index("## On real photographs") < page.index("## A paper of mine")
    assert "| | real | mine | all generated |" in page
    assert "| not run | 1 | 9 | 9 |" in page
    assert "--claims mine-later`, about 30 core-minutes" in page
    html = render_verdicts(found, "vlcli reproduce")
    assert html.index("On real photographs") < html.index("A paper of mine")
    assert "Photographs of rooms and questions about them." in html
    assert "all generated |" not in render(judge(registered(tmp_path, claim("seen", ("new", "old"))), looker(ROWS)))


def test_they_wait_for_their_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    def run_rows(runs, options, jobs, progress, begins):  # type: ignore[no-untyped-def]
        for run in runs:
            begins(run)
            ran.append(run.label)
            run.seconds, top1 = 20.0, 0.5 + 0.01 * run.seed
            run.outcomes = [StageOutcome("train", "finetune", "run", "done", "", tmp_path, metrics={"mean/top1": top1})]

    monkeypatch.setattr(reproduce, "run_rows", run_rows)
    monkeypatch.chdir(tmp_path)
    rows = real("seen", ("abs", "none"), recipe="real/aerial-claims").replace("metric: top1", "metric: mean/top1")
    registered(tmp_path, rows)
    ended = CliRunner().invoke(app, ["reproduce", "claims.yaml"])
    assert ended.exit_code == 0, ended.output
    assert "1 claims wait for photographs, in folders here: ucm" in ended.output
    assert ran == []
    (tmp_path / "ucm").mkdir()
    ended = CliRunner().invoke(app, ["reproduce", "claims.yaml"])
    assert ended.exit_code == 0, ended.output
    assert sorted(ran) == ["abs"] * 5 + ["none"] * 5
    assert "wait for photographs" not in ended.output


def test_eight_or_more_are_registered_with_their_cost() -> None:
    claims = [one for one in every() if one.is_real]
    assert len(claims) >= 8
    assert {one.file.paper for one in claims} == {"lxmert", "dimbert", "vlmo", "irpe", "ace-rpe"}
    assert all(one.small is not None and one.small.minutes for one in claims)
    chances = [reproduce.chance(one.power, len(one.seeds)) for one in claims]
    assert min(chances) >= 0.8
