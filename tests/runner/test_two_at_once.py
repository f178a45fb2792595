"""Two processes that write one folder: the second is refused before it does anything."""

from __future__ import annotations

import os
import sys

import pytest

import vlcli.cli
from vlcli.cli import console
from vlcli.cli.options import refuse_bytes
from vlcli.errors import UsageError
from vlcli.files import flocked


@pytest.mark.parametrize("verb", [["make", "shapes", "out", "--images", "20"], ["unpack", "t.parquet", "--out", "out"]])
def test_data_are_written_by_one_process_at_a_time(tmp_path, monkeypatch, cli, verb):
    monkeypatch.chdir(tmp_path)
    with flocked(tmp_path / ".out.lock"):
        refused = cli("data", *verb)
    assert refused.code == 1
    assert "Another vlcli is writing this folder" in refused.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_closed_stream_is_no_fault(monkeypatch, stream):
    monkeypatch.setattr(sys, stream, None)
    console.table(["a"], [["1"]])
    console.err("text")
    console.flush()
    assert console.shows_bars() in (True, False)


def test_a_text_that_is_not_utf8_is_a_fault_of_the_command_line():
    with pytest.raises(UsageError, match="not UTF-8"):
        refuse_bytes(b"caf\xe9".decode(errors="surrogateescape"))
    refuse_bytes("café")


def test_threads_sleep_while_they_wait_unless_the_user_says_otherwise(monkeypatch):
    monkeypatch.setattr(vlcli.cli, "end_with", lambda command: None)
    for name in ("OMP_WAIT_POLICY", *vlcli.cli.WAITS):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    vlcli.cli.main()
    assert (os.environ.pop("GOMP_SPINCOUNT"), os.environ["KMP_BLOCKTIME"]) == ("1000", "7")
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    vlcli.cli.main()
    assert "GOMP_SPINCOUNT" not in os.environ
