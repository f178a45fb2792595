"""The quickstart's recipe, unchanged, on a folder of photographs with captions and nothing else."""

from __future__ import annotations

import json

import pytest

from .conftest import Quickstart, photographs
from .pages import vlcli


@pytest.mark.slow("quickstart")
def test_the_quickstart_runs_unchanged_on_photographs(quickstart: Quickstart) -> None:
    folder = photographs(quickstart.desk / "photographs")
    ended = vlcli(quickstart.desk, "run", "quickstart.yaml", f"root={folder.name}", "--json")
    assert ended.code == 0, ended.err
    runs = next(
        p
        for p in (quickstart.desk / "runs").iterdir()
        if (p / "rank" / "stage.json").is_file() and p.name != "quickstart"
    )
    facts = {p.parent.name: json.loads(p.read_text()) for p in runs.glob("*/stage.json")}
    assert facts["regions"]["metrics"]["images"] == 16
    assert facts["regions"]["metrics"]["regions"] == 16 * 36  # a grid: nobody gave boxes
    assert facts["pretrain"]["status"] == "done"
    assert facts["rank"]["metrics"]["image/r@10"] == 1.0  # of four pictures
    assert facts.get("nlvr2", {"status": "skipped"})["status"] != "done"
    assert (runs / "regions" / "features.h5").is_file()
