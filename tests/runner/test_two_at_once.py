"""Two processes that write one folder: the second is refused before it does anything."""

from __future__ import annotations

import pytest

from vlcli.recipe.stage_record import flocked


@pytest.mark.parametrize(
    "verb", [["make", "shapes", "out", "--images", "20"], ["unpack", "t.parquet", "--into", "out"]]
)
def test_data_are_written_by_one_process_at_a_time(tmp_path, monkeypatch, cli, verb):
    monkeypatch.chdir(tmp_path)
    with flocked(tmp_path / "out" / ".lock"):
        refused = cli("data", *verb)
    assert refused.code == 1
    assert "Another vlcli is writing this folder" in refused.err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
