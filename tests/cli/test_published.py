"""Published numbers with their splits: in ``ls``, ``show``, ``diff``, and in the table of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[1] / "fixtures" / "fake_stages.py"
RECIPE = """\
root: data
model: fake-model
stages:
  tune: {kind: finetune, task: fake-task, data: fake-data}
  test: {kind: evaluate, from: tune, split: dev}
table: {rows: {one: test}, metrics: [accuracy]}
reference: plain
published_in: {table: 3, page: 7, split: dev}
rows:
  plain: {unchanged: true, published: {accuracy: 0.62, accuracy on test-U: 0.6}}
  wide: {model: {hidden: 16}, published: {accuracy: [0.71, 0.02]}}
others: {Human: {accuracy: 0.96}, Baseline (2019): {accuracy on test-U: 0.4, macs on count: 4613000000}}
"""
APART = "plain: published accuracy on test-U: 0.6; this stage measures dev"


@pytest.fixture
def vlcli(cli, tmp_path):
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "data" / f"{split}.txt").write_text(split)
    (tmp_path / "rows.yaml").write_text(RECIPE)
    return lambda *words: cli(*words, "--plugin", PLUGIN, env={"FAKE_STAGES": "1"})


def test_ls_names_split_table_page_and_unit(vlcli):
    listed = vlcli("ls", "rows.yaml")
    assert "published accuracy on dev" in listed.out
    assert "published accuracy on test-U: not compared, this stage measures dev" in listed.err
    assert "published in table 3, page 7; units: share" in listed.err
    rows = json.loads(vlcli("ls", "rows.yaml", "--json").out)["rows"]
    assert rows[0]["published"]["accuracy on test-U"]["split"] == "test-U"
    assert rows[1]["published"]["accuracy"] == {
        "value": 0.71,
        "spread": 0.02,
        "split": "dev",
        "unit": "share",
        "table": "3",
        "page": "7",
        "measures": "dev",
    }


def test_systems_that_no_row_builds_are_lines_of_numbers_alone(vlcli, cli, tmp_path):
    rows = {row["name"]: row for row in json.loads(vlcli("ls", "rows.yaml", "--json").out)["rows"]}
    assert rows["Human"]["published"]["accuracy"]["measures"] == "dev"
    assert "4,613,000,000" in vlcli("ls", "rows.yaml").out
    assert vlcli("run", "rows.yaml").code == 0
    assert not list((tmp_path / "runs").glob("*Human*"))
    lines = {line["label"]: line for line in json.loads(cli("table", "runs/rows", "--json").out)["statistics"]["lines"]}
    assert lines["Human"]["kind"] == "other"
    assert "error" not in lines["Human"]
    assert lines["Human"]["metrics"]["accuracy"]["published"]["value"] == 0.96
    written = {row["label"]: row for row in json.loads((tmp_path / "runs/rows/table.json").read_text())["rows"]}
    assert set(written["Baseline (2019)"]["apart"]) == {"accuracy on test-U"}
    changed = (tmp_path / "rows.yaml").read_text().replace("0.96", "0.95")
    (tmp_path / "other.yaml").write_text(changed)
    settings = json.loads(cli("diff", "rows.yaml", "other.yaml", "--json").out)["settings"]
    assert [row["key"] for row in settings] == ["others.Human.accuracy"]


def test_show_tells_them_of_a_row_and_diff_compares_them(vlcli, cli):
    shown = vlcli("show", "rows.yaml:plain").out.splitlines()
    assert "# published accuracy on dev: 0.62 (table 3)" in shown
    assert "# published accuracy on test-U: 0.6; this stage measures dev (table 3)" in shown
    changed = cli("diff", "rows.yaml:plain", "rows.yaml:wide", "--json")
    keys = {row["key"]: (row["first"], row["second"]) for row in json.loads(changed.out)["settings"]}
    assert keys["published.accuracy"] == ("0.62 on dev (table 3)", "0.71 on dev (table 3)")
    assert "model.hidden" in keys


def test_rows_that_differ_in_their_published_numbers_alone_are_not_the_same(cli):
    told = cli("diff", "lxmert/table3:pretrain-scratch", "lxmert/table2:lxmert").out
    assert "published.VQA minival/accuracy on test-standard" in told
    assert "no difference" not in told


def test_a_number_of_another_split_stands_below_the_table_and_in_no_column(vlcli, cli, tmp_path):
    ended = vlcli("run", "rows.yaml")
    assert ended.code == 0, ended.err
    table = ended.out.partition("\n\n")[2]
    assert "published (dev)" in table
    assert "0.620" in table
    assert APART[0].upper() + APART[1:] in table
    assert "0.600" not in table
    written = json.loads((tmp_path / "runs/rows/table.json").read_text())["rows"][0]
    assert set(written["published"]) == {"accuracy"}
    assert set(written["apart"]) == {"accuracy on test-U"}
    assert APART in json.loads(cli("table", "runs/rows", "--json").out)["statistics"]["notes"]


def test_every_number_of_the_packaged_tables_names_its_table_and_split():
    from vlcli import registry
    from vlcli.recipe.table import is_table, load_table

    tables = [load_table(name) for name in registry.names("recipes") if is_table(name)]
    numbers = [number for table in tables for row in table.rows.values() for number in row.published.values()]
    assert len(numbers) > 500
    counts = {number.split for number in numbers if not number.measures}
    assert counts <= {"count"}
    assert all(number.split and number.table for number in numbers)
