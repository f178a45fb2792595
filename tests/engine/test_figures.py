"""``make figures``: its patterns, its table, and one figure measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import figures  # noqa: E402

PRINTED = {
    "examples": [
        "objectives  examples/s  one by one  ratio",
        "pairs  16,845  2,311  6.8",
        "lxmert 6,038 1,300 4.2 426",
        "roles  3,611  1,177  3.1  436  0.4%",
    ],
    "store": [
        "store.read_batch   7.55   0.78",
        "store.read, record by record   9.06   0.94",
        "memory map, DataLoader 0.77 1.00",
        "store, DataLoader  0.75  0.98",
    ],
    "irpe-224": ["none  88.1  1.000  0.9", "K   95.0  1.071  1.0", "QK  99.0  1.172 1.1", "QKV  110.0  1.333  1.2"],
    "ace-rpe-path": ["time 62.8 ms against 882.6 ms: ratio 0.071", "memory 9.5 MiB against 316.9 MiB: ratio 0.030"],
    "loop-64": ["ms a step   bare   loop   loop/bare", "        2.80  3.30  1.180"],
    "extraction": ["network alone  1.2 1.3", "ratio             1.012        1.034"],
    "extraction-hf": [
        "DINOv2 S/14  5.0 s, alone 4.0 s, ratio 1.04, processor 1.0, network's thread 1.0",
        "CLIP  5.0 s, alone 4.0 s, ratio 1.02, processor 1",
        "SigLIP 2  5.0 s, alone 4.0 s, ratio 1.06, processor 1",
    ],
    "checksums": ["1.0071", "2.307 s a step with checks, 2.290 s without; of a batch alone 2.6 ms"],
    "beam": ["cached 1.0 s, anew 6.2 s: 0.161 of the time (goal 0.25)"],
    "search": ["search 2.34 s, product alone 2.10 s in blocks of 2048", "ratio 1.113"],
}
EXPECTED = {
    "examples": {"pairs": 6.8, "lxmert": 4.2, "roles": 3.1},
    "store": {"a batch": 0.78, "one by one": 0.94, "a loader": 0.98},
    "irpe-224": {"K": 1.071, "QK": 1.172, "QKV": 1.333},
    "ace-rpe-path": {"time": 0.071, "memory": 0.03},
    "loop-64": {"": 1.18},
    "extraction": {"": 1.012},
    "extraction-hf": {"DINOv2": 1.04, "CLIP": 1.02, "SigLIP": 1.06},
    "checksums": {"": 1.0071},
    "beam": {"": 0.161},
    "search": {"": 1.113},
}
BY_NAME = {figure.name: figure for figure in figures.FIGURES}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_numbers_of_a_benchmark_are_read(name: str) -> None:
    assert figures.values_of(BY_NAME[name], PRINTED[name]) == EXPECTED[name]
    assert figures.values_of(BY_NAME[name], PRINTED[name][:-1] if len(EXPECTED[name]) > 1 else ["nothing"]) == {}


@pytest.mark.parametrize("figure", figures.FIGURES, ids=lambda figure: figure.name)
def test_every_command_is_a_file_of_the_folder(figure: figures.Figure) -> None:
    words = figures.command(figure, {"captions": "c.json", "vocabulary": "v.txt", "pictures": "p"})
    assert Path(words[1]).is_file()
    assert not any("{" in word for word in words)


def test_what_became_worse_by_a_tenth_is_named() -> None:
    time, rate = BY_NAME["search"], BY_NAME["store"]
    assert figures.worse(time, {"": 1.0}, {"": 1.09}) == []
    assert figures.worse(time, {"": 1.0}, {"": 1.2}) == ["search: 1.2, was 1: 20% worse"]
    assert figures.worse(rate, {"a batch": 0.9}, {"a batch": 0.75}) == ["store a batch: 0.75, was 0.9: 20% worse"]
    assert figures.worse(rate, {"a batch": 0.9}, {"a batch": 1.5}) == []


def test_the_page_has_the_table_of_the_json() -> None:
    known = json.loads(figures.JSON.read_text())["figures"]
    assert set(known) == set(BY_NAME)
    page = figures.PAGE.read_text()
    assert figures.with_table(page, known) == page


@pytest.mark.slow
def test_a_figure_is_measured_and_the_others_stay(tmp_path: Path) -> None:
    file, page = tmp_path / "performance.json", tmp_path / "page.md"
    old = {"values": {"": 9.0}, "seconds": 1.0, "date": "2026-01-01"}
    file.write_text(json.dumps({"figures": {"search": old}}))
    page.write_text(f"before\n{figures.BEGIN}\nold\n{figures.END}\nafter\n")
    words = [sys.executable, str(ROOT / "benchmarks" / "figures.py"), "--only", "ace-rpe-path"]
    ended = subprocess.run([*words, "--json", str(file), "--page", str(page)], capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr.decode()
    known = json.loads(file.read_text())["figures"]
    assert known["search"] == old
    assert 0 < known["ace-rpe-path"]["values"]["time"] < 1
    assert page.read_text().startswith("before\n")
    assert page.read_text().endswith("\nafter\n")
    assert "| shortest paths of ACE-RPE" in page.read_text()
    assert "old" not in page.read_text().split("after")[0].split(figures.BEGIN)[1]
