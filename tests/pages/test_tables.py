"""The table of runs on the report page."""

from __future__ import annotations

import re
from pathlib import Path

from run_folders import accuracies, answers, write_recipe, write_stage

from vlcli.pages.report import ReportOptions, render
from vlcli.pages.tables import page_table, table_on_page
from vlcli.progress import Silent
from vlcli.recipe.locate import Published
from vlcli.tables.results import RowResults, RunResults, TableResults
from vlcli.tools.run_folder import read_run

PLAIN = ReportOptions(samples=0, model=False)


def run_of(folder: Path, seed: int, right: int) -> Path:
    layout = {"title": "<i>small</i>", "rows": {"trained & <b>": "test", "scratch": "control"}, "metrics": ["accuracy"]}
    stages = {"test": {"kind": "evaluate"}, "control": {"kind": "evaluate"}}
    write_recipe(folder, name="small", seed=seed, stages=stages, table=layout)
    rows = answers(60, right)
    write_stage(folder, "test", metrics=accuracies(rows), rows=rows)
    write_stage(folder, "control", status="failed", error="out of <memory>")
    return folder


def test_the_page_shows_seeds_as_one_row_and_reasons_as_text(tmp_path: Path) -> None:
    runs = [read_run(run_of(tmp_path / f"run-{seed}", seed, 40 + seed)) for seed in (1, 2, 3)]
    html = render(runs, PLAIN, Silent())
    section = re.search(r'<section id="table".*?</section>', html, re.DOTALL)
    assert section is not None
    text = section[0]
    assert "&lt;i&gt;small&lt;/i&gt;" in text
    assert "trained &amp; &lt;b&gt;" in text
    assert "out of &lt;memory&gt;" in text
    assert "0.700 ± 0.041" in text
    assert "95 % intervals over 3 seeds." in text
    assert 'style="' not in text  # the page's policy allows no style in elements
    assert '<a href="#table">Table</a>' in html


def test_a_run_without_a_table_has_none(tmp_path: Path) -> None:
    write_recipe(tmp_path / "run", name="bare", stages={"test": {"kind": "evaluate"}})
    write_stage(tmp_path / "run", "test", metrics={"accuracy": 0.5})
    assert table_on_page([read_run(tmp_path / "run")]) is None
    assert 'id="table"' not in render([read_run(tmp_path / "run")], PLAIN, Silent())


def test_marks_lie_on_the_line() -> None:
    rows = [RowResults("a", [RunResults(s, metrics={"m": 3.0 + s}) for s in range(3)], {"m": Published(9.0)})]
    rows.append(RowResults("b", [RunResults(0, metrics={"m": 4.0})]))
    panel = page_table(TableResults("", [], rows)).panels[0]
    marks = [place for row in panel.rows for place in row["mark"] if place is not None]
    assert all(0 <= place <= 100 for place in [*marks, *(place for place, _ in panel.ticks)])
    assert panel.rows[0]["mark"].published == max(marks)
