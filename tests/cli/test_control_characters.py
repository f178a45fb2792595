"""Texts and names with control characters: a terminal shows them spelt out, and does not obey."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from vlcli.cli import console

HOSTILE = "red\x1b[31m \x1b]0;title\x07\x9b1m\x7f\r[b]bold[/b]"
SPELT = r"red\x1b[31m \x1b]0;title\x07\x9b1m\x7f\x0d[b]bold[/b]"


def controls(text: str) -> set[str]:
    return {sign for sign in text if (ord(sign) < 32 or 127 <= ord(sign) < 160) and sign not in "\t\n"}


def test_lines_and_tables_are_spelt_out(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    console.out(f"a\tb\n{HOSTILE}")
    console.err(HOSTILE)
    console.table(["name"], [[HOSTILE]])
    monkeypatch.setattr(console, "is_terminal", lambda _stream: True)
    console.table(["name"], [[HOSTILE]])
    printed = capsys.readouterr()
    assert printed.out.startswith(f"a\tb\n{SPELT}\n")
    assert printed.out.count(SPELT) == 3
    assert printed.err == f"{SPELT}\n"
    assert controls(printed.out + printed.err) == set()


def test_the_bars_of_a_terminal_print_messages_spelt_out(capsys: pytest.CaptureFixture[str]) -> None:
    bars = console.BarProgress(verbose=1)
    bars.console = Console(stderr=True, highlight=False, width=200, no_color=True)
    for say in (bars.info, bars.warn, bars.debug):
        say(HOSTILE)
    printed = capsys.readouterr().err
    assert printed.count(SPELT) == 3
    assert controls(printed) == set()


def test_a_folder_with_such_texts_is_looked_at(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    rows = [["image", "question", "answer"]]
    for number in range(30):
        Image.new("RGB", (32, 32), (number * 8, 0, 0)).save(tmp_path / "pictures" / f"a{number}.png")
        rows.append(
            [f"a{number}.png", f"what is \x1b[31mhere\x1b]0;x\x07 {number % 5}?", ["dark", "bright"][number > 14]]
        )
    with (tmp_path / "pairs.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    command = [sys.executable, "-m", "vlcli", "init", str(tmp_path), "-o", str(tmp_path / "recipe.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert r"what is \x1b[31mhere\x1b]0;x\x07" in done.stdout + done.stderr
    assert controls(done.stdout + done.stderr) == set()
