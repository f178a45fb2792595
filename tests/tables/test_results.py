"""A table's results on disk."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from vlcli.errors import DataError
from vlcli.recipe.locate import Published
from vlcli.tables.results import FILE, RowResults, RunResults, TableResults, read_results, write_results


def made(folder: Path) -> TableResults:
    evaluation = folder.parent / "other" / "test"
    runs = [RunResults(1, metrics={"accuracy": 0.5, "loss": math.nan}, evaluation=evaluation), RunResults(2, "failed")]
    rows = [RowResults("none", runs, {"accuracy": Published(0.51, 0.2)}), RowResults("irpe")]
    return TableResults("positions", ["accuracy"], rows, "none", {"positions": ["none", "irpe"]}, "Do they matter?")


def test_results_return_from_the_file_and_may_be_moved(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    table = made(folder)
    write_results(table, folder / FILE, statistics={"ignored": True})
    read = read_results(folder / FILE)
    assert math.isnan(read.rows[0].runs[0].metrics.pop("loss"))
    table.rows[0].runs[0].metrics.pop("loss")
    read.rows[0].runs[0].evaluation = (read.rows[0].runs[0].evaluation or Path()).resolve()
    assert read == table
    (tmp_path / "runs").rename(tmp_path / "moved")
    moved = read_results(tmp_path / "moved" / "one" / FILE).rows[0].runs[0].evaluation
    assert moved is not None
    assert moved.resolve() == tmp_path / "moved" / "other" / "test"


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"title": 3}', '{"title": "a", "rows": [{"runs": 1}]}', "[" * 99999])
def test_a_damaged_file_is_one_message(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(DataError, match="damaged") as caught:
        read_results(tmp_path / FILE)
    assert caught.value.where == str(tmp_path / FILE)


def test_json_has_finite_numbers_only(tmp_path: Path) -> None:
    write_results(made(tmp_path / "one"), tmp_path / "one" / FILE)
    constants: list[str] = []
    json.loads((tmp_path / "one" / FILE).read_text(), parse_constant=constants.append)
    assert constants == []


def test_values_are_finite_and_by_seed(tmp_path: Path) -> None:
    row = made(tmp_path / "one").rows[0]
    assert row.values("accuracy") == {1: 0.5}
    assert row.values("loss") == {}
    assert row.error == "failed"
