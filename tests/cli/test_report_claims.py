"""``vlcli report`` of what ``vlcli reproduce`` measured."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vlcli.claims.load import every, pick
from vlcli.claims.reproduce import Tables
from vlcli.claims.results_file import FILE, Measured, Results, all_cells, write
from vlcli.cli import app

CLAIM = "irpe-t1-product"


def report(*words: str):
    return CliRunner().invoke(app, ["report", *words])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder ``reproduce`` with the cells of one registered claim: its first row is ahead with every seed."""
    tables, cells = Tables(), {}
    (one,) = pick(every(["irpe"]), [CLAIM])
    assert one.small is not None
    for cell in all_cells([one]):
        top1 = 0.8 + 0.001 * cell.seed if cell.row == one.small.rows[0] else 0.3
        metrics = {"": {one.small.metric: top1}}
        cells[cell.key] = Measured(tables.digest(cell), metrics=metrics, seconds=30.0)
    write(tmp_path / "runs" / "reproduce" / FILE, Results(cells))
    return tmp_path / "runs" / "reproduce"


def test_the_folder_of_results_has_a_page_of_verdicts(folder: Path) -> None:
    ended = report("reproduce", "--output", str(folder.parent))
    assert ended.exit_code == 0, ended.stderr
    page = folder / "report.html"
    assert ended.stdout.strip() == str(page)
    html = page.read_text()
    assert f'<tr id="{CLAIM}" data-claim data-verdict="reproduced"' in html
    assert 'id="paper-irpe"' in html
    assert 'id="paper-lxmert"' not in html  # of which nothing was measured


def test_the_numbers_beside_a_page_have_one_too(folder: Path, tmp_path: Path) -> None:
    numbers, page = tmp_path / "reproduction.json", tmp_path / "verdicts.html"
    numbers.write_bytes((folder / "results.json").read_bytes())
    ended = report(str(numbers), "-o", str(page), "--json")
    assert ended.exit_code == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert told["page"] == str(page)
    assert told["bytes"] == page.stat().st_size
    assert CLAIM in page.read_text()


def test_results_beside_runs_are_refused(folder: Path) -> None:
    ended = report(str(folder), "quickstart", "--output", str(folder.parent))
    assert ended.exit_code == 2
    assert "have a page of their own." in ended.stderr


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "The results of claims are damaged."),
        ('{"version": 1, "cells": {}}', "No cell here belongs to a registered claim."),
        ('{"version": 1, "cells": {"of/nobody:row seed=0": {"digest": "0"}}}', "No cell here belongs to"),
    ],
)
def test_results_that_say_nothing_are_one_message(tmp_path: Path, text: str, says: str) -> None:
    file = tmp_path / "numbers.json"
    file.write_text(text)
    ended = report(str(file), "-o", str(tmp_path / "page.html"))
    assert ended.exit_code == 5
    assert says in ended.stderr
    assert "Traceback" not in ended.output
    assert not (tmp_path / "page.html").exists()
