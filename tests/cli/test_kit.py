"""A kit has what a rerun needs; filled with invented results it is read back and compared with what was published."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.cli.rows import table_folder
from vlcli.recipe.table import load_table
from vlcli.tables.results import RowResults, RunResults, TableResults, read_results, write_results
from vlcli.tools import kit as tools

TABLE, ROWS = "irpe/table1", ("original", "clip", "shaw")


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and costs that take no time."""
    monkeypatch.chdir(tmp_path)
    facts = {"memory": 3e9, "hours": 12.5, "hours_a_million": None, "disk": 1e9}
    monkeypatch.setattr(tools, "stage_cost", lambda full, name, gpus, memory: {"stage": name, **facts})
    return tmp_path


def vlcli(*words: object, code: int = 0) -> str:
    ended = CliRunner().invoke(app, list(map(str, words)))
    assert ended.exit_code == code, ended.output
    assert "Traceback" not in ended.output
    return ended.stdout if code == 0 else ended.output


def rows_of(table: str, count: int) -> list[str]:
    return load_table(table).chosen[:count]


def measured(table: str, rows: list[str], values: dict[str, list[dict[str, float]]], label: str = "") -> None:
    """Write what ``vlcli run`` writes: metrics of each row, seed by seed."""
    folder = table_folder(load_table(table, rows=rows), Path("runs"))
    runs = {row: [RunResults(seed, metrics=one) for seed, one in enumerate(found)] for row, found in values.items()}
    results = TableResults(table, rows=[RowResults(row, runs.get(row, [])) for row in rows])
    folder.mkdir(parents=True, exist_ok=True)
    write_results(results, folder / f"table{'-' if label else ''}{label}.json")


def compared(file: str | Path = "kit/results.json") -> dict[str, dict[str, str]]:
    lines = json.loads(vlcli("table", file, "--json"))["statistics"]["lines"]
    return {line["label"]: line["verdicts"] for line in lines if "verdicts" in line}


def test_the_page_says_what_a_stranger_needs():
    rows = rows_of(TABLE, 2)
    vlcli("kit", TABLE, "--rows", ",".join(rows), "--seeds", "3", "--gpus", "8", "-o", "kit")
    page = Path("kit/README.md").read_text()
    words = f"{TABLE} --rows {','.join(rows)} --seeds 3 root=DATA"
    for line in (f"vlcli run {words}", f"vlcli kit {words} -o .", "vlcli table results.json"):
        assert f"\n{line}\n" in page
    assert "https://image-net.org/download.php" in page
    assert "148 GB train" in page
    assert "SHA-256: not known" in page
    assert "8 GPUs of 80GB" in page
    assert "| 3.0 GB | 12.5 | 1.0 GB |" in page
    assert tools.RULE in page
    published = load_table(TABLE).written.rows[rows[1]].published["top1"]
    assert f"| {rows[1]} | top1 | {published.value:.3f} |" in page
    assert set(compared().values().__iter__().__next__().values()) == {"missing"}


def test_results_are_equal_below_above_or_missing():
    rows = rows_of(TABLE, 4)
    some = ("--rows", ",".join(rows))
    vlcli("kit", TABLE, *some, "-o", "kit")
    ends = {row.label: row.equal["top1"] for row in read_results(Path("kit/results.json")).rows}
    low, high = ends[rows[0]]
    assert low < load_table(TABLE).written.rows[rows[0]].published["top1"].value < high
    values = {
        rows[0]: [{"top1": low + 1e-6, "top5": 0.9}, {"top1": high - 1e-6, "top5": 0.9}],
        rows[1]: [{"top1": ends[rows[1]][0] - 1e-6}],
        rows[2]: [{"top1": ends[rows[2]][1] + 1e-6}],
    }
    measured(TABLE, rows, values)
    page = Path("kit/README.md").read_text()
    vlcli("kit", TABLE, *some, "-o", "kit")
    assert Path("kit/README.md").read_text() == page
    words = dict(zip(rows, ("equal", "below", "above", "missing"), strict=True))
    assert {row: one["top1"] for row, one in compared().items()} == words
    text = vlcli("table", "kit/results.json")
    assert "1 equal, 1 below, 1 above, 1 missing" in text
    assert str(Path.cwd()) not in Path("kit/results.json").read_text()


def test_several_evaluations_of_a_row_stand_side_by_side():
    rows = [next(row for row in load_table("lxmert/table5").chosen)]
    vlcli("kit", "lxmert/table5", "--rows", rows[0], "-o", "kit")
    known = read_results(Path("kit/results.json")).rows[0].published
    value = known["GQA testdev/accuracy"].value
    measured("lxmert/table5", rows, {rows[0]: [{"accuracy": value, "accuracy/open": 0.3}]}, "GQA-testdev")
    measured("lxmert/table5", rows, {rows[0]: [{"accuracy": 0.2}]}, "NLVR2-dev")
    vlcli("kit", "lxmert/table5", "--rows", rows[0], "-o", "kit")
    found = compared()[rows[0]]
    expected = {"GQA testdev/accuracy": "equal", "NLVR2 dev/accuracy": "below", "VQA minival/accuracy": "missing"}
    assert found == expected


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda text: text[: len(text) // 2], "damaged"),
        (lambda text: text.replace('"runs": [', '"runs": ["none",'), "damaged"),
        (lambda text: text.replace('"equal": {', '"equal": {"top5": ["low", 2],', 1), "damaged"),
        (lambda _: "[]", "damaged"),
    ],
)
def test_a_damaged_file_is_told_in_one_message(damage: Any, told: str):
    vlcli("kit", TABLE, "--rows", rows_of(TABLE, 1)[0], "-o", "kit")
    file = Path("kit/results.json")
    file.write_text(damage(file.read_text()))
    out = vlcli("table", file, code=5)
    assert told in out
    assert "results.json" in out
    assert "damaged" in vlcli("kit", TABLE, "--rows", rows_of(TABLE, 1)[0], "-o", "kit", code=5)


def test_numbers_that_are_none_are_missing():
    (row,) = rows_of(TABLE, 1)
    measured(TABLE, [row], {row: [{"top1": float("nan")}]})
    vlcli("kit", TABLE, "--rows", row, "-o", "kit")
    assert compared() == {row: {"top1": "missing"}}


def test_a_kit_has_a_folder_of_its_own():
    vlcli("kit", TABLE, "--rows", rows_of(TABLE, 1)[0], "-o", "kit")
    assert "A kit needs a folder of its own" in vlcli("kit", "irpe/table2", "-o", "kit", code=2)
    Path("file").write_text("")
    assert "a file" in vlcli("kit", TABLE, "-o", "file", code=2)
    assert "rows" in vlcli("kit", "quickstart", "-o", "other", code=2)
    assert not Path("other").exists()


def test_digests_of_files_that_lie_here_are_told(place: Path):
    from vlcli.tools.published import CHECKPOINTS, Wanted

    (place / "w.pth").write_bytes(b"abc")
    one = Wanted([], "weights", "w.pth", "there", [str(place / "w.pth")], [], CHECKPOINTS["resnet50"])
    here, named = tools.digests(one)
    assert "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" in here
    assert "begins with 11ad3fa6" in named
