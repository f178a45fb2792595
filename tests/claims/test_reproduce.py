"""``vlcli reproduce``: runs what is missing, once; goes on after a kill; says what failed; writes its page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.claims.studies import HEAD, UNTESTED, claim
from vlcli.claims import reproduce, results_file
from vlcli.claims.load import every
from vlcli.claims.reproduce import Tables, check
from vlcli.claims.results_file import all_cells
from vlcli.cli import app
from vlcli.errors import ComponentError
from vlcli.runner.execute import StageOutcome
from vlcli.stopping import Stopped

TABLE = "tiny/irpe-claims"
TOP1 = {"original": 0.5, "abs-k": 0.8, "none": 0.25, "k": 0.4}


class Runs:
    """Stands for the runner: rows end at once with an accuracy of their own and a little of the seed's."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.broken, self.dies_at = "", ""

    def __call__(self, runs, options, jobs, progress, begins):
        for run in runs:
            begins(run)
            name = f"{run.label} {run.seed}"
            if name == self.dies_at:
                raise Stopped(15)
            self.ran.append(name)
            run.seconds = 20.0
            if run.label == self.broken:
                run.error = ComponentError("The extra is not installed.", hint="pip install it")
                continue
            top1 = TOP1[run.label] + 0.01 * (hash((run.label, run.seed)) % 5)
            folder = Path(options.output) / run.label
            run.outcomes = [StageOutcome("train", "finetune", "run", "done", "", folder, metrics={"top1": top1})]


@pytest.fixture
def runs(monkeypatch):
    made = Runs()
    monkeypatch.setattr(reproduce, "run_rows", made)
    return made


@pytest.fixture
def invoke(tmp_path):
    """The command on two claims about rows of a packaged table, and one that cannot be tested."""
    file = tmp_path / "claims.yaml"
    claims = [claim("key", ("abs-k", "original"), recipe=TABLE), claim("none", ("none", "original"), recipe=TABLE)]
    file.write_text(HEAD + "".join(claims) + UNTESTED)

    def call(*words):
        return CliRunner().invoke(app, ["reproduce", str(file), "--output", str(tmp_path / "runs"), *words])

    call.file, call.folder = file, tmp_path / "runs" / reproduce.FOLDER
    return call


def test_rows_that_claims_share_run_once_and_verdicts_are_told(invoke, runs):
    ended = invoke()
    assert ended.exit_code == 0, ended.output
    assert sorted(runs.ran) == sorted(f"{row} {seed}" for row in ("abs-k", "original", "none") for seed in range(5))
    assert "1 reproduced, 1 opposite, 1 not in small" in ended.stdout
    page = invoke.folder / "reproduction.md"
    assert str(page) in ended.stdout
    pytest.importorskip("matplotlib")
    assert "![differences" in page.read_text()
    image = page.parent / "images" / "reproduction-mine.svg"
    assert "mine-key" in image.read_text() or image.stat().st_size > 2000


def test_a_second_run_does_nothing_and_says_the_same(invoke, runs):
    first = invoke("--json")
    runs.ran.clear()
    second = invoke("--json")
    assert runs.ran == []
    assert json.loads(first.stdout) == json.loads(second.stdout)
    rows = {row["id"]: row for row in json.loads(second.stdout)["claims"]}
    assert rows["mine-key"]["verdict"] == "reproduced"
    assert rows["mine-key"]["published"] == [80.9, 79.9]
    assert rows["mine-none"]["verdict"] == "opposite"
    assert rows["mine-large"]["reason"].startswith("There is one size")


def test_a_run_that_is_stopped_goes_on_where_it_was(invoke, runs):
    runs.dies_at = "original 3"
    assert invoke("-q").exit_code == 143
    kept = list(runs.ran)
    assert len(kept) >= 6
    runs.dies_at = ""
    runs.ran.clear()
    assert invoke("-q").exit_code == 0
    assert not set(kept) & set(runs.ran)
    assert len(kept) + len(runs.ran) == 15


def test_a_row_that_fails_leaves_the_others(invoke, runs):
    runs.broken = "none"
    ended = invoke()
    assert ended.exit_code == 1
    assert "1 reproduced, 1 failed" in ended.stdout
    assert "The extra is not installed." in (invoke.folder / "reproduction.md").read_text()
    runs.broken = ""
    runs.ran.clear()
    assert invoke().exit_code == 0
    assert {name.split()[0] for name in runs.ran} == {"none"}


def test_no_further_row_begins_after_the_time(invoke, runs, monkeypatch):
    clock = iter(range(0, 100_000, 60))
    monkeypatch.setattr(reproduce.time, "monotonic", lambda: float(next(clock)))
    ended = invoke("--hours", "0.1")
    assert ended.exit_code == 0
    assert 1 <= len(runs.ran) < 10
    assert "not run" in ended.stdout


def test_chosen_claims_and_fewer_seeds(invoke, runs, tmp_path):
    page = tmp_path / "pages" / "mine.md"
    ended = invoke("--claims", "mine-key", "--seeds", "3", "-o", str(page))
    assert ended.exit_code == 0
    assert sorted(runs.ran) == sorted(f"{row} {seed}" for row in ("abs-k", "original") for seed in range(3))
    assert "--seeds 3" in page.read_text()


def test_a_page_keeps_its_numbers_so_that_another_machine_need_not_run_them(invoke, runs, tmp_path):
    page, other = tmp_path / "docs" / "verdicts.md", ("--output", str(tmp_path / "elsewhere"))
    first = invoke("--claims", "mine-key", "-o", str(page))
    assert "1 reproduced, 1 not run" in first.stdout
    kept = json.loads(page.with_suffix(".json").read_text())["cells"]
    assert len(kept) == 10
    assert not any(one["evaluation"] for one in kept.values())
    assert str(tmp_path) not in page.with_suffix(".json").read_text()
    runs.ran.clear()
    assert "1 reproduced, 1 opposite" in invoke("-o", str(page), *other).stdout
    assert {name.split()[0] for name in runs.ran} == {"none"}
    assert len(json.loads(page.with_suffix(".json").read_text())["cells"]) == 15
    runs.ran.clear()
    assert invoke(*other, "-o", str(tmp_path / "afresh.md")).exit_code == 0
    assert len(runs.ran) == 10


def test_numbers_of_an_edited_row_count_for_nothing(invoke, runs, tmp_path):
    page = tmp_path / "verdicts.md"
    invoke("--claims", "mine-key", "-o", str(page))
    file = page.with_suffix(".json")
    value = json.loads(file.read_text())
    value["cells"][f"{TABLE}:abs-k seed=2"]["digest"] = "of another recipe"
    file.write_text(json.dumps(value))
    runs.ran.clear()
    invoke("--claims", "mine-key", "-o", str(page), "--output", str(tmp_path / "elsewhere"))
    assert runs.ran == ["abs-k 2"]


def test_a_page_leaves_out_numbers_of_rows_that_were_edited_or_removed(invoke, runs, tmp_path):
    page = tmp_path / "verdicts.md"
    invoke("--claims", "mine-key", "-o", str(page))
    file = page.with_suffix(".json")
    value = json.loads(file.read_text())
    old = {**value["cells"][f"{TABLE}:abs-k seed=2"], "digest": "of another recipe"}
    value["cells"] |= {f"{TABLE}:abs-k seed=77": old, f"{TABLE}:gone seed=1": old, "other/table:row seed=1": old}
    file.write_text(json.dumps(value))
    invoke("--hours", "0", "-o", str(page))
    kept = json.loads(file.read_text())["cells"]
    assert set(value["cells"]) - set(kept) == {f"{TABLE}:abs-k seed=77", f"{TABLE}:gone seed=1"}


def test_every_row_is_told_before_it_begins(invoke, runs):
    ended = invoke("--claims", "mine-key", "--seeds", "2")
    assert f"{TABLE}:abs-k seed=0 (1 of 4)" in ended.stderr
    assert f"{TABLE}:original seed=1 (4 of 4)" in ended.stderr


def test_a_damaged_file_of_numbers_is_one_message(invoke, runs, tmp_path):
    page = tmp_path / "verdicts.md"
    page.with_suffix(".json").write_text('{"version": 1, "cells": [')
    ended = invoke("-o", str(page))
    assert ended.exit_code == 5
    assert str(page.with_suffix(".json")) in ended.stderr
    assert "restore the file" in ended.stderr
    assert runs.ran == []


def test_the_list_runs_nothing(invoke, runs):
    ended = invoke("--list")
    assert "mine-none" in ended.stdout
    assert "2 not run, 1 not in small" in ended.stdout
    assert runs.ran == []
    assert not invoke.folder.exists()


def test_the_list_of_chosen_claims_has_no_others(invoke):
    ended = invoke("--list", "--claims", "mine-key")
    assert "mine-key" in ended.stdout
    assert "mine-none" not in ended.stdout
    assert ended.stdout.rstrip().endswith("1 not run")


def test_no_hours_write_the_page_and_run_nothing(invoke, runs):
    assert invoke("--claims", "mine-key").exit_code == 0
    page = invoke.folder / "reproduction.md"
    page.unlink()
    runs.ran.clear()
    ended = invoke("--hours", "0")
    assert ended.exit_code == 0, ended.stderr
    assert "1 reproduced, 1 not run" in ended.stdout
    assert "mine-key" in page.read_text()
    assert runs.ran == []


def test_the_report_page_lies_beside_the_results(invoke, runs):
    ended = invoke()
    page = invoke.folder / "report.html"
    assert ended.stdout.splitlines()[-1] == str(page)
    assert 'id="mine-key"' in page.read_text()
    assert json.loads(invoke("--json").stdout)["pages"] == [str(invoke.folder / "reproduction.md"), str(page)]


def test_a_page_that_is_named_html_is_one_and_keeps_its_numbers(invoke, runs, tmp_path):
    page = tmp_path / "pages" / "mine.html"
    ended = invoke("-o", str(page))
    assert ended.stdout.splitlines()[-1] == str(page)
    assert 'data-verdict="reproduced"' in page.read_text()
    assert not (invoke.folder / "report.html").exists()
    runs.ran.clear()
    invoke("-o", str(page), "--output", str(tmp_path / "elsewhere"))
    assert runs.ran == []


def test_a_file_that_is_no_report_is_not_replaced_and_nothing_runs(invoke, runs, tmp_path):
    page = tmp_path / "mine.html"
    page.write_text("<h1>my own</h1>")
    ended = invoke("-o", str(page))
    assert ended.exit_code == 2
    assert "not a report that vlcli wrote" in ended.stderr
    assert runs.ran == []
    assert page.read_text() == "<h1>my own</h1>"


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--hours", "-1"], 2, "0 (run nothing, write the page) or more"),
        (["--hours", "nan"], 2, "or more"),
        (["--hours", "inf"], 2, "or more"),
        (["--claims", "mine-kee"], 2, "did you mean 'mine-key'"),
        (["--claims", ","], 2, "--claims names no claim"),
    ],
)
def test_a_wrong_command_line_is_one_message(invoke, runs, words, code, says):
    ended = invoke(*words)
    assert ended.exit_code == code
    assert says in ended.stderr
    assert "Traceback" not in ended.output
    assert runs.ran == []


def test_an_unknown_paper_is_one_message():
    ended = CliRunner().invoke(app, ["reproduce", "lxmrt"])
    assert ended.exit_code == 4
    assert "did you mean 'lxmert'" in ended.stderr


def test_a_row_that_is_not_there_is_told_with_the_line_of_the_claim(invoke, runs):
    invoke.file.write_text(invoke.file.read_text().replace("rows: [none, original]", "rows: [nonne, original]"))
    ended = invoke()
    assert ended.exit_code == 3
    assert f"{invoke.file}:16" in ended.stderr
    assert "has no such row" in ended.stderr
    assert "did you mean 'none'" in ended.stderr
    assert runs.ran == []


def test_a_recipe_that_is_not_there_is_told_once(invoke):
    invoke.file.write_text(invoke.file.read_text().replace(TABLE, "tiny/irpe-klaims"))
    ended = invoke("--list")
    assert ended.exit_code == 3
    assert ended.stderr.count("There is no recipe called 'tiny/irpe-klaims'") == 1


def test_damaged_results_are_one_message(invoke, runs):
    invoke.folder.mkdir(parents=True)
    (invoke.folder / results_file.FILE).write_text("{")
    ended = invoke()
    assert ended.exit_code == 5
    assert "The results of claims are damaged" in ended.stderr
    assert runs.ran == []


def test_results_of_a_row_that_was_edited_count_for_nothing(invoke, runs, monkeypatch):
    invoke()
    runs.ran.clear()
    monkeypatch.setattr(Tables, "digest", lambda self, cell: f"edited {cell.row}")
    invoke()
    assert len(runs.ran) == 15


JUDGED = {
    "tiny/ace-rpe-anchors": ["again"],
    "tiny/irpe-claims": ["train"],
    "tiny/lxmert-claims": ["vqa"],
    "tiny/lxmert-muon": ["vqa"],
    "tiny/lxmert-nlvr2": ["nlvr2"],
    "tiny/vlmo-nlvr2": ["nlvr2"],
    "tiny/dimbert-captions": ["caption"],
    "tiny/dimbert-claims": ["refer"],
    "tiny/dimbert-low-rate": ["refer"],
    "tiny/dimbert-muon": ["refer"],
    "real/aerial-claims": ["train"],
    "real/room-claims": ["vqa"],
    "grid/ideas": ["test", "words"],
}
"""Training stages whose validations are compared, as a mean over training; other recipes have an evaluate stage."""


def test_recipes_and_rows_of_every_registered_claim_are_there_and_valid():
    claims, tables = every(), Tables()
    check(claims, tables)
    for recipe, row in sorted({(cell.recipe, cell.row) for cell in all_cells(claims)}):
        member = tables.table(recipe).member(row)
        assert member.recipe.table is not None, recipe
        assert list(member.recipe.table.rows.values()) == JUDGED.get(recipe, ["test"])
        judged = {
            seed for one in claims if one.small and one.small.recipe == recipe for seed in one.file.settings_seeds
        }
        assert member.recipe.seed not in judged
