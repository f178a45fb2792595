"""Digests of data files: an edit anywhere is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from vlcli.recipe import digests

LARGE = 16 * 2**20 + 4096


@pytest.fixture
def large(tmp_path):
    """A file over 16 MiB."""
    path = tmp_path / "annotations.json"
    path.write_bytes(b"a" * LARGE)
    return path


def _edit(path: Path, place: int, later: int = 10**9) -> None:
    """Change one byte at equal size, some time later."""
    stat = path.stat()
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"X")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + later))


def _touched(path: Path) -> None:
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 10**9))


@pytest.mark.parametrize("place", [0, LARGE // 2, LARGE - 1])
def test_an_edit_anywhere_is_seen(large, place):
    rows = digests.data_digests([large])
    assert digests.changed(rows) == ""
    _edit(large, place)
    assert digests.changed(rows) == f"{large} has changed"


def test_a_new_time_alone_is_no_change(large):
    rows = digests.data_digests([large])
    _touched(large)
    assert digests.changed(rows) == ""


def test_a_file_put_in_its_place_is_read_though_size_and_time_are_equal(large):
    rows = digests.data_digests([large])
    other = large.with_name("other")
    other.write_bytes(b"b" * LARGE)
    os.utime(other, ns=(rows[0]["mtime"], rows[0]["mtime"]))
    other.replace(large)
    assert digests.changed(rows) == f"{large} has changed"


def test_size_time_and_inode_spare_reading(large, monkeypatch):
    rows = digests.data_digests([large])
    monkeypatch.setattr(digests, "_file_digest", lambda *known: pytest.fail("the file was read"))
    assert digests.changed(rows) == ""


def test_gone_and_grown(large):
    rows = digests.data_digests([large])
    with large.open("ab") as file:
        file.write(b"a")
    assert digests.changed(rows) == f"{large} has another size"
    large.unlink()
    assert digests.changed(rows) == f"{large} is gone or cannot be read"


def test_rows_of_other_records_spare_reading(large, monkeypatch):
    rows = digests.data_digests([large])
    monkeypatch.setattr(digests, "_file_digest", lambda *known: "read")
    assert digests.data_digests([large], rows) == rows
    _touched(large)
    assert digests.data_digests([large], rows)[0]["digest"] == "read"
