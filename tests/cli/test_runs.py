"""``vlcli runs``: what it lists, what it removes, what it leaves alone."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path

import pytest

from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord


def stage(folder: Path, status: str = "done", **given) -> Path:
    folder.mkdir(parents=True)
    (folder / "features.h5").write_bytes(b"x" * 1000)
    stage_record.write(folder, StageRecord(folder.name, "extract", status, "key", **given))
    return folder


@pytest.fixture
def folder(tmp_path):
    runs = tmp_path / "runs"
    stage(runs / "one" / "regions")
    stage(runs / "one" / "regions.old-1", finished="2026-01-02T03:04:05+00:00")
    pretrain = stage(runs / "one" / "pretrain", "running")
    for name in ("damaged-step-00000004", "left-best-00000004", "step-00000008", ".step-00000012.tmp-3"):
        (pretrain / "checkpoints" / name).mkdir(parents=True)
        (pretrain / "checkpoints" / name / "model.safetensors").write_bytes(b"x" * 2000)
    (pretrain / ".stage.json.77").write_text("{")
    stage(runs / "two" / "regions")
    (runs / "two" / "tune").mkdir()
    (runs / "two" / "tune" / "stage.json").write_text("{")
    (runs / "index.h5").write_text("no run")
    return runs


LITTER = [
    "one/pretrain/.stage.json.77",
    "one/pretrain/checkpoints/.step-00000012.tmp-3",
    "one/pretrain/checkpoints/damaged-step-00000004",
    "one/pretrain/checkpoints/left-best-00000004",
    "one/regions.old-1",
]


def test_it_lists_state_size_and_what_can_go_and_removes_only_that(cli, folder):
    told = cli("runs", "--json")
    assert told.code == 0, told.err
    runs = {Path(run["folder"]).name: run for run in json.loads(told.out)["runs"]}
    assert {name: run["state"] for name, run in runs.items()} == {"one": "stopped", "two": "damaged"}
    assert runs["one"]["stages"] == {"pretrain": "stopped", "regions": "done"}
    assert runs["two"]["stages"] == {"regions": "done", "tune": "damaged"}
    items = {str(Path(item["path"]).relative_to("runs")): item for item in runs["one"]["can_go"]}
    assert sorted(items) == LITTER
    assert items["one/regions.old-1"]["bytes"] > 1000
    assert "made 2026-01-02T03:04Z" in items["one/regions.old-1"]["why"]
    assert runs["two"]["can_go"] == []
    assert runs["one"]["bytes"] == sum(p.stat().st_size for p in (folder / "one").rglob("*") if p.is_file())
    before = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    plain = cli("runs")
    assert "can go: runs/one/regions.old-1" in plain.out
    assert "vlcli runs --clean" in plain.err
    assert {str(path.relative_to(folder)) for path in folder.rglob("*")} == before
    cleaned = cli("runs", "--clean", "--yes")
    assert cleaned.code == 0
    assert "removed 5" in cleaned.err
    left = {str(path.relative_to(folder)) for path in folder.rglob("*")}
    assert left == {name for name in before if not any(name == item or name.startswith(f"{item}/") for item in LITTER)}
    assert "nothing to remove" in cli("runs", "--clean", "--yes").err


def test_stages_that_were_never_begun_count_as_not_done(cli, folder):
    (folder / "two" / "tune" / "stage.json").unlink()
    (folder / "two" / "recipe.yaml").write_text("stages: {regions: {kind: extract}, tune: {kind: finetune}}\n")
    (folder / "three").mkdir()
    (folder / "three" / "recipe.yaml").write_text("stages: [cut")
    runs = {Path(run["folder"]).name: run for run in json.loads(cli("runs", "--json").out)["runs"]}
    assert runs["two"]["stages"] == {"regions": "done", "tune": "not begun"}
    assert runs["two"]["state"] == "done"  # as far as anybody asked
    assert runs["three"]["state"] == "empty"
    assert "1 of 2" in cli("runs").out


def test_it_asks_first_and_a_missing_folder_is_told(cli, folder):
    asked = cli("runs", "--clean")  # stdin is at its end: no answer
    assert asked.code == 1
    assert (folder / "one/regions.old-1").is_dir()
    missing = cli("runs", "--output", "nowhere")
    assert missing.code == 5
    assert "no such folder of runs" in missing.err


def test_a_stage_that_a_process_holds_is_left_alone(cli, folder):
    with (folder / "one" / ".pretrain.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        runs = json.loads(cli("runs", "--clean", "--yes", "--json").out)["runs"]
    one = next(run for run in runs if run["folder"].endswith("one"))
    assert one["state"] == "running"
    assert [Path(item["path"]).name for item in one["can_go"]] == ["regions.old-1"]
    assert (folder / "one/pretrain/.stage.json.77").exists()


def test_a_link_that_leads_nowhere_hides_no_run(cli, folder):
    (folder / "gone").symlink_to("nowhere")
    told = cli("follow")
    assert told.code == 5
    assert "No run is under way" in told.err


def test_sizes_of_few_files_are_noted_and_the_number_of_very_many(tmp_path):
    (tmp_path / "world" / "images").mkdir(parents=True)
    for number in range(150):
        (tmp_path / "world" / "images" / f"{number}.png").write_text("x")
    (tmp_path / "world" / "words.json").write_text("words")
    (tmp_path / "log.jsonl").write_text("line")
    files = {"root": "world", "log": "log.jsonl"}
    found = stage_record.sizes(tmp_path, files)
    assert found == {"world/images/": 150, "world/words.json": 5}
    record = StageRecord("a", "make", "done", "key", files=files, sizes=found)
    assert stage_record.lost(tmp_path, record) == ""
    (tmp_path / "world" / "images" / "7.png").unlink()
    assert stage_record.lost(tmp_path, record) == "world/images/ is cut: 149 of 150 files"
