"""Records and files of finished stages that are damaged, cut or gone; what kills leave."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path

import pytest

from tests.runner.fakes import Told, actions, go, planned
from vlcli.recipe import plan as planning
from vlcli.recipe import stage_record
from vlcli.recipe.load import load
from vlcli.recipe.plan import RunOptions


@pytest.mark.parametrize("content", ["", '{"stage": "regio', "[]", '{"stage": 1}', "\x00\x00", "null", "[" * 5000])
def test_a_damaged_record_is_written_again_from_its_copy(world, content):
    go()
    file = world / "runs/mine/regions/stage.json"
    whole = file.read_text()
    file.write_text(content)
    told = Told()
    assert set(actions(go(progress=told)).values()) == {"skip"}
    assert "was damaged: written again from its copy" in told.lines[0]
    assert file.read_text() == whole
    file.with_name(".stage.json.copy").write_text(content)
    assert set(actions(go()).values()) == {"skip"}


def test_a_record_names_files_that_are_not_utf8_and_keeps_metrics_that_are_no_numbers(tmp_path):
    record = stage_record.StageRecord("eyes", "extract", "done", "1", root="/data/caf\udce9", metrics={"best": None})
    record.notes.append("left out caf\udce9.jpg")
    stage_record.write(tmp_path, record)
    assert stage_record.read(tmp_path) == record


def test_a_record_that_is_deleted_makes_the_stage_anew(world):
    go(until="regions")
    (world / "runs/mine/regions/stage.json").unlink()
    assert planned(until="regions")[1]["regions"] == "run"


@pytest.mark.parametrize("harm", ["gone", "folder gone", "cut"])
@pytest.mark.parametrize(("stage", "action"), [("regions", "run"), ("pretrain", "resume"), ("test", "run")])
def test_a_finished_stage_whose_files_are_gone_or_cut_is_made_again(world, harm, stage, action):
    before = go()
    folder = world / "runs/mine" / stage
    file = folder / "made" / "words.txt"
    if harm == "cut":
        file.write_text("what")
    elif harm == "gone":
        file.unlink()
    else:
        shutil.rmtree(file.parent)
    told = Told()
    after = go(progress=told)
    assert {name for name, outcome in after.items() if outcome.action != "skip"} == {stage}
    assert after[stage].action == action
    said = "made/words.txt is cut: 4 of 19 bytes" if harm == "cut" else "made/words.txt is gone"
    assert any(f"{stage}: {action} (made again: {said}" in line for line in told.lines)
    assert file.read_text() == "what the stage made"
    assert set(actions(go()).values()) == {"skip"}
    assert before[stage].metrics["accuracy"] == after[stage].metrics["accuracy"]


def test_what_no_result_hangs_on_may_go(world):
    go()
    (world / "runs/mine/pretrain/log.txt").unlink()
    (world / "runs/mine/pretrain/made/words.txt").write_text("what the stage made, and more")
    assert set(actions(go()).values()) == {"skip"}


def test_what_is_lost_is_not_reused_by_another_run(world):
    go()
    (world / "runs/mine/regions/made/words.txt").unlink()
    assert planned(["seed=7"])[1]["regions"] == "run"


def test_a_stage_that_needs_what_is_lost_says_what(world):
    go(until="pretrain")
    (world / "runs/mine/pretrain/made/words.txt").unlink()
    _, steps = planning.make(load("mine.yaml", []), RunOptions(output=Path("runs"), only="tune"))
    assert [(step.action, step.why) for step in steps if step.name == "tune"] == [
        ("blocked", "pretrain: made/words.txt is gone")
    ]


def test_litter_of_kills_is_swept(world):
    go()
    folder = world / "runs/mine"
    for name in ("regions/.stage.json.99", "regions/.world.99.partial", "regions/.model.tmp-99", "regions/.model.part"):
        (folder / name).mkdir()
    (folder / ".recipe.yaml.4194999-1").write_text("half")
    (folder / ".recipe.yaml.4194999-1").touch()
    record = stage_record.read(folder / "regions")
    record.status = "running"
    stage_record.write(folder / "regions", record)
    go()
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".recipe")) == []
    assert sorted(path.name for path in (folder / "regions").iterdir()) == [
        ".stage.json.copy",
        "log.txt",
        "made",
        "stage.json",
    ]


def test_what_a_killed_forced_run_replaced_goes_when_the_new_one_stands(world, monkeypatch):
    go()
    folder = world / "runs/mine"

    def killed(context):
        raise KeyboardInterrupt

    module = importlib.import_module("vlcli.stages.finetune")
    with monkeypatch.context() as patch:
        patch.setattr(module, "run", killed)
        with pytest.raises(KeyboardInterrupt):
            go(only="tune", force=True)
    assert (folder / "tune.old-1").is_dir()
    assert go(only="tune")["tune"].action == "resume"
    assert not (folder / "tune.old-1").exists()


@pytest.mark.parametrize("left", [(), (".stage.json.copy",)], ids=["no record", "the first record's copy"])
def test_a_folder_in_which_a_killed_run_made_nothing_is_not_kept_aside(world, left):
    folder = world / "runs/mine/regions"
    folder.mkdir(parents=True)
    for name in left:
        (folder / name).write_text("{")
    assert go(until="regions")["regions"].action == "run"
    assert [path.name for path in folder.parent.iterdir() if ".old-" in path.name] == []


def test_a_forced_run_that_is_killed_while_it_reads_the_data_has_moved_nothing(world, monkeypatch):
    go()
    folder = world / "runs/mine"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(importlib.import_module("vlcli.recipe.digests"), "data_digests", killed)
        with pytest.raises(KeyboardInterrupt):
            go(only="tune", force=True)
    assert stage_record.read(folder / "tune").status == "done"
    assert not (folder / "tune.old-1").exists()
