"""``vlcli run TABLE`` as a process: killed and run again, a row that fails, overrides, faults with row and line."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "fixtures" / "fake_stages.py"
RECIPE = """\
root: data
model: fake-model
stages:
  pretrain: {data: fake-data, objectives: fake-objective}
  tune: {kind: finetune, from: pretrain, task: fake-task, root: data}
  test: {kind: evaluate, from: tune}
table: {rows: {dev: test}, metrics: [accuracy]}
reference: plain
rows:
  plain: {unchanged: true}
  wide: {stages: {tune: {model: {hidden: 16}}}}
  more:
    stages:
      further: {kind: finetune, from: pretrain, task: fake-task, root: data, model: {hidden: 32}}
      tune: {from: further}
"""


@pytest.fixture
def vlcli(cli, tmp_path):
    """A command line with the fake stages, in a folder with the table ``rows.yaml`` and data."""
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "data" / f"{split}.txt").write_text(split)
    (tmp_path / "rows.yaml").write_text(RECIPE)
    return lambda *words, env=None: cli(*words, "--plugin", PLUGIN, env={"FAKE_STAGES": "1", **(env or {})})


def actions(out: str) -> dict[str, dict[str, str]]:
    return {row["label"]: {s["stage"]: s["action"] for s in row["stages"]} for row in json.loads(out)["rows"]}


def test_a_killed_table_goes_on_where_it_was(vlcli, tmp_path):
    killed = vlcli("run", "rows.yaml", env={"FAKE_KILL": "further"})
    assert killed.code == -signal.SIGKILL
    assert not (tmp_path / "runs/rows/table.json").exists()
    again = vlcli("run", "rows.yaml", "--json")
    assert again.code == 0, again.err
    assert actions(again.out) == {
        "plain": {"pretrain": "skip", "tune": "skip", "test": "skip"},
        "wide": {"pretrain": "skip", "tune": "skip", "test": "skip"},
        "more": {"pretrain": "skip", "further": "resume", "tune": "run", "test": "run"},
    }
    assert (tmp_path / "runs/rows-more/further/log.txt").read_text().split() == ["0", "1", "2", "3"]
    lines = (tmp_path / "runs/rows/table.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in lines[1:4]] == ["plain", "wide", "more"]


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.slow)])
def test_a_row_that_fails_is_marked_and_leaves_the_others(vlcli, tmp_path, jobs):
    ended = vlcli("run", "rows.yaml", "--jobs", jobs, env={"FAKE_FAIL": "further"})
    assert ended.code == 1
    assert "rows.yaml:more, seed 9595: failed" in ended.err
    assert "It broke." in ended.err
    assert "Traceback" not in ended.err
    (marked,) = [line for line in ended.out.splitlines() if line.startswith("more") and "It broke" in line]
    assert "failed" in marked
    lines = json.loads((tmp_path / "runs/rows/table.json").read_text())["statistics"]["lines"]
    measured = {line["label"]: line["metrics"].get("accuracy", {}).get("measured") for line in lines}
    assert [label for label in ("plain", "wide", "more") if measured[label]] == ["plain", "wide"]


def test_each_of_two_tables_has_the_metrics_that_its_stage_measures(vlcli, tmp_path):
    layout = "table: {rows: {dev: test, said: again}, metrics: [accuracy, cider, r@1]}"
    more = f"  again: {{kind: evaluate, from: tune}}\n{layout}"
    (tmp_path / "rows.yaml").write_text(RECIPE.replace("table: {rows: {dev: test}, metrics: [accuracy]}", more))
    ended = vlcli("run", "rows.yaml", env={"FAKE_METRIC_test": "r@1", "FAKE_METRIC_again": "cider"})
    assert ended.code == 0, ended.err
    tables = {name: tmp_path / f"runs/rows/table-{name}.csv" for name in ("dev", "said")}
    shown = {name: {line.split(",")[3] for line in path.read_text().splitlines()[1:]} for name, path in tables.items()}
    assert shown == {"dev": {"accuracy", "r@1"}, "said": {"accuracy", "cider"}}


def test_a_table_with_report_ends_with_a_page(vlcli, tmp_path):
    (tmp_path / "rows.yaml").write_text(f"report: true\n{RECIPE}")
    ended = vlcli("run", "rows.yaml")
    assert ended.code == 0, ended.err
    assert "report: runs/rows/report.html" in ended.out.splitlines()
    assert "3 of 3 runs done" in (tmp_path / "runs/rows/report.html").read_text()
    written = (tmp_path / "runs/rows/report.html").stat().st_mtime_ns
    assert json.loads(vlcli("run", "rows.yaml", "--json").out)["reports"] == ["runs/rows/report.html"]
    assert (tmp_path / "runs/rows/report.html").stat().st_mtime_ns == written  # nothing has run anew


def test_a_metric_of_no_table_is_an_error_after_the_rows(vlcli, tmp_path):
    (tmp_path / "rows.yaml").write_text(RECIPE.replace("metrics: [accuracy]", "metrics: [accurcy]"))
    ended = vlcli("run", "rows.yaml")
    assert ended.code == 1
    assert "The table has no such metric." in ended.err
    assert (tmp_path / "runs/rows/table.json").exists()


def test_the_words_of_the_command_line_hold_for_all_rows(vlcli):
    ended = vlcli("run", "rows.yaml", "jobs=2", "--rows", "plain,wide", "--json")
    assert ended.code == 0, ended.err
    assert list(actions(ended.out)) == ["plain", "wide"]
    for word, instead in (("seeds=2", "--seeds N"), ("reference=wide", "--reference ROW"), ("~skip", "extends")):
        refused = vlcli("run", "rows.yaml", word)
        assert (refused.code, refused.out) == (2, "")
        assert instead in refused.err


def test_more_seeds_than_can_run_are_refused_at_once(vlcli):
    refused = vlcli("run", "rows.yaml", "--seeds", "99999999999999999999", "--dry-run")
    assert (refused.code, refused.out) == (2, "")
    assert "--seeds" in refused.err


def test_a_dry_run_tells_what_would_be_wrong(vlcli, tmp_path):
    planned = vlcli("run", "rows.yaml", "--dry-run", "--json")
    assert planned.code == 0, planned.err
    stages = json.loads(planned.out)["stages"]
    assert [s["action"] for s in stages if s["stage"] == "pretrain"] == ["run", "reuse", "reuse"]
    wrong = vlcli("run", "rows.yaml", "root=nowhere", "--dry-run")
    assert (wrong.code, wrong.err.count("got: nowhere")) == (5, 1), wrong.err
    assert "plain: root: the data root is not there" in wrong.err
    assert not (tmp_path / "runs").exists()


BAD = [
    ("  a: {}", "rows.yaml:10", "rows.a: this row changes nothing"),
    ("  a: {seed: 3}\n  b: {seed: 3}", "rows.yaml:11", "rows.b: this row is like the row 'a'"),
    (
        '  a: {seed: 3, published: {"top1 on dev": 0.5}}',
        "rows.yaml:10",
        "rows.a.published.top1 on dev: the table has no such metric",
    ),
    ("  a: {seed: 3}\nreference: b", "rows.yaml:11", "reference: no row has this label"),
]


@pytest.mark.parametrize(("rows", "where", "told"), BAD)
def test_a_wrong_table_is_refused_with_row_and_line(vlcli, tmp_path, rows, where, told):
    head = RECIPE.partition("reference:")[0]
    (tmp_path / "rows.yaml").write_text(f"{head}\nrows:\n{rows}\n")
    ended = vlcli("run", "rows.yaml")
    assert ended.code == 3
    assert where in ended.err, ended.err
    assert told in ended.err, ended.err
    assert not (tmp_path / "runs").exists()


def test_a_grid_of_more_than_a_thousand_cells_needs_a_yes(vlcli, tmp_path):
    axes = "".join(f"  {axis}: {{{', '.join(f'x{n}: {{seed: {n}}}' for n in range(32))}}}\n" for axis in "ab")
    (tmp_path / "rows.yaml").write_text(RECIPE.partition("reference:")[0] + "rows:\n" + axes)
    ended = vlcli("run", "rows.yaml", "--dry-run")
    assert ended.code == 3
    assert "rows.yaml:8: rows: the grid is very large" in ended.err, ended.err
    assert "1,024 rows" in ended.err
    assert "--yes" in ended.err
