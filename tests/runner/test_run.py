"""Planning and running: skip, reuse, resume, force, blocked, passed over, folders, tables."""

from __future__ import annotations

import errno
import importlib
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.runner.fakes import Told, _importer, actions, go, planned
from vlcli.errors import RecipeError, UsageError, VlcliError
from vlcli.files import flocked
from vlcli.recipe import leftovers, run_state, stage_record
from vlcli.recipe import plan as planning
from vlcli.recipe.load import load
from vlcli.recipe.plan import RunOptions
from vlcli.runner.run import keep_recipe, prepare, run_prepared, run_recipe


def test_everything_runs_then_everything_is_skipped(world):
    first = go()
    assert set(actions(first).values()) == {"run"}
    record = stage_record.read(world / "runs" / "mine" / "tune")
    assert record.status == "done"
    assert record.seed == 9595
    assert set(record.inputs) == {"pretrain", "regions"}
    assert record.root == str(world / "data")
    assert record.metrics["accuracy"] == 0.5
    assert record.features == [str((world / "runs/mine/regions/features.h5").absolute())]
    again = go()
    assert set(actions(again).values()) == {"skip"}
    assert again["tune"].metrics == first["tune"].metrics


def test_what_does_not_change_the_result_does_not_change_the_key(world):
    go()
    assert set(
        planned(["stages.pretrain.workers=3", "stages.tune.threads=1", "stages.tune.device=cpu"])[1].values()
    ) == {"reuse"}


def test_an_override_goes_to_a_folder_of_its_own_and_reuses_what_stays(world):
    go()
    outcomes = go(["stages.tune.epochs=7"])
    assert actions(outcomes) == {
        "regions": "reuse",
        "pretrain": "reuse",
        "tune": "run",
        "test": "run",
        "scratch": "reuse",
        "scratch-test": "reuse",
    }
    assert (world / "runs/mine/tune/stage.json").exists()
    assert outcomes["pretrain"].folder == Path("runs/mine/pretrain")
    assert set(actions(go(["stages.tune.epochs=7"])).values()) == {"skip"}


def test_an_edited_recipe_overwrites_nothing_finished(world):
    go()
    before = stage_record.read(world / "runs/mine/tune")
    file = world / "mine.yaml"
    file.write_text(file.read_text().replace("task: fake-task}\n  test", "task: fake-task, epochs: 9}\n  test"))
    folder, plan = planned()
    assert folder.startswith("mine-")
    assert plan["tune"] == "run"
    assert plan["pretrain"] == "reuse"
    assert actions(outcomes := go())["tune"] == "run"
    assert outcomes["tune"].why == "changed: epochs"
    assert stage_record.read(world / "runs/mine/tune") == before


def test_changed_data_is_noticed_by_all_that_build_on_it(world):
    go()
    (world / "data" / "train.txt").write_text("other")
    assert actions(go())["test"] == "run"
    assert set(actions(go()).values()) == {"skip"}


def test_what_changed_is_said_where_a_stage_is_made_again(world):
    go()
    file = (world / "data" / "train.txt").absolute()
    file.write_text("trail")  # of equal size
    outcomes = go()
    assert outcomes["regions"].why == f"changed: {file} has changed"
    assert outcomes["test"].action == "run"


@pytest.mark.parametrize(
    ("line", "why"),
    [("seed: 5", "seed"), ("text: {length: 7}", "what it builds on, or what the recipe sets for all stages")],
)
def test_what_the_recipe_changed_is_said_too(world, line, why):
    go()
    file = world / "mine.yaml"
    file.write_text(f"{line}\n{file.read_text()}")
    assert go()["pretrain"].why == f"changed: {why}"


def test_touched_data_is_the_same_data(world):
    go()
    (world / "data" / "train.txt").write_text("train")
    assert set(actions(go()).values()) == {"skip"}


def test_another_seed_reuses_what_draws_nothing(world):
    go()
    outcomes = actions(go(["seed=1"]))
    assert outcomes["regions"] == "reuse"
    assert {outcomes[name] for name in ("pretrain", "tune", "test", "scratch")} == {"run"}
    assert actions(go(["seed=2", "stages.pretrain.seed=9595"]))["pretrain"] == "reuse"


def test_a_failure_stops_only_what_builds_on_it(world, monkeypatch):
    monkeypatch.setenv("FAKE_FAIL", "pretrain")
    outcomes = go()
    assert {name: outcome.status for name, outcome in outcomes.items()} == {
        "regions": "done",
        "pretrain": "failed",
        "tune": "blocked",
        "test": "blocked",
        "scratch": "done",
        "scratch-test": "done",
    }
    assert isinstance(outcomes["pretrain"].error, VlcliError)
    assert stage_record.read(world / "runs/mine/pretrain").status == "failed"
    monkeypatch.delenv("FAKE_FAIL")
    after = go()
    assert actions(after)["pretrain"] == "resume"
    assert after["pretrain"].metrics["resumed"] == 4


def test_no_resume_starts_anew_and_keeps_the_old(world, monkeypatch):
    monkeypatch.setenv("FAKE_FAIL", "pretrain")
    go(until="pretrain")
    monkeypatch.delenv("FAKE_FAIL")
    assert go(until="pretrain", resume=False)["pretrain"].metrics["resumed"] == 0
    assert (world / "runs/mine/pretrain.old-1/log.txt").exists()


def test_force_makes_anew_and_loses_nothing_on_failure(world, monkeypatch):
    go()
    monkeypatch.setenv("FAKE_FAIL", "tune")
    failed = go(only="tune", force=True)
    assert failed["tune"].status == "failed"
    assert stage_record.read(world / "runs/mine/tune.old-1").status == "done"
    monkeypatch.delenv("FAKE_FAIL")
    assert go(only="tune", force=True)["tune"].action == "run"


def test_force_removes_what_it_replaced(world):
    go()
    go(only="tune", force=True)
    assert not (world / "runs/mine/tune.old-1").exists()
    assert actions(go())["test"] == "skip"


def test_choice_of_stages(world):
    assert planned(only="tune")[1]["tune"] == "blocked"
    assert set(planned(kind="extract")[1]) == {"regions"}
    assert planned(kind="finetune")[1] == dict.fromkeys(["regions", "pretrain", "tune", "scratch"], "run")
    assert planned(first="scratch")[1]["scratch-test"] == "blocked"
    with pytest.raises(UsageError, match="no such stage"):
        planned(only="tnue")
    with pytest.raises(UsageError, match="no export stage"):
        planned(kind="export")
    with pytest.raises(UsageError, match="No stage lies between"):
        planned(first="test", until="pretrain")
    go(until="pretrain")
    assert planned(first="tune", until="tune")[1]["tune"] == "run"


def test_missing_data_blocks_or_is_passed_over(world):
    (world / "data" / "train.txt").unlink()
    assert planned()[1]["regions"] == "blocked"
    plan = planned(["stages.pretrain.if_missing=skip", "stages.regions.if_missing=skip"])[1]
    assert plan["regions"] == plan["pretrain"] == plan["tune"] == plan["test"] == "passed"
    assert plan["scratch"] == "blocked"


def test_a_skipped_implied_store_is_done_without(world):
    words = ["stages.regions.data.0.file=nowhere.txt", "stages.regions.if_missing=skip"]
    outcomes = go(words)
    assert outcomes["regions"].status == "skipped"
    assert outcomes["pretrain"].status == "done"
    assert planned(words, only="pretrain")[1] == {"regions": "passed", "pretrain": "skip"}


def test_a_stage_whose_recipe_changed_since_the_run_began_is_refused(world):
    step = prepare(load("mine.yaml"), RunOptions(only="regions"), Told()).steps[0]
    assert "changed since the run began" in str(go(only="regions", key="another")["regions"].error)
    assert not (world / "runs/mine/regions").exists()
    assert go(only="regions", key=step.key)["regions"].status == "done"


def test_a_finished_run_of_another_user_can_be_looked_at(world, monkeypatch):
    go()
    opened = Path.open

    def read_only(path, mode="r", *args, **kwargs):
        if mode != "rb" and mode != "r":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, mode, *args, **kwargs)

    monkeypatch.setattr(Path, "open", read_only)
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    assert leftovers.look(Path("runs"))[0].state == "done"
    assert set(actions(go()).values()) == {"skip"}


def test_deep_faults_come_before_anything_runs(world):
    words = ["stages.pretrain.objectives.fake-objective.scal=2", "model.hidden=wide"]
    with pytest.raises(RecipeError) as caught:
        go(words)
    keys = {problem.key: problem for problem in caught.value.problems}
    assert "'scale'" in keys["stages.pretrain.objectives[0].scal"].hint
    assert keys["model.hidden"].where == "command line (model.hidden=wide)"
    assert not (world / "runs").exists()


def test_unknown_components_and_roots(world):
    with pytest.raises(RecipeError) as caught:
        go(["stages.pretrain.objectives=[fake-objectve]", "stages.tune.task=fake-tsk"])
    assert caught.value.exit_code == 4
    with pytest.raises(RecipeError) as caught:
        go(["stages.scratch.root=elsewhere", "stages.scratch.if_missing=error"])
    assert caught.value.problems[0].code == 5


def test_two_runs_do_not_share_a_stage(world):
    folder = world / "runs" / "mine" / "regions"
    with stage_record.locked(folder):
        outcome = go(until="regions")["regions"]
    assert outcome.status == "failed"
    assert "Another vlcli" in str(outcome.error)


def test_a_second_run_of_a_folder_is_refused_and_changes_nothing(world, monkeypatch):
    monkeypatch.setattr(stage_record, "LOCK_PATIENCE", 0.1)
    go(until="regions")
    before = {path: path.stat().st_mtime_ns for path in (world / "runs").rglob("*") if path.is_file()}
    with flocked(world / "runs/mine" / run_state.LOCK), pytest.raises(VlcliError) as caught:
        go(force=True)
    assert "Another vlcli is running in this folder" in str(caught.value)
    assert str(os.getpid()) in caught.value.got
    after = {path: path.stat().st_mtime_ns for path in (world / "runs").rglob("*") if path.is_file()}
    assert {path.name for path in after if after[path] != before.get(path)} == {run_state.LOCK}
    with flocked(world / "runs/mine" / run_state.LOCK):
        assert go(only="regions")["regions"].action == "skip"  # nothing to do: nobody is disturbed


def test_what_another_run_made_since_the_plan_is_not_made_again(world):
    late = prepare(load("mine.yaml"), RunOptions(output=Path("runs")), Told())
    assert "regions" in late.working
    go(until="pretrain")
    made = (world / "runs/mine/regions").stat().st_ino
    outcomes = {outcome.name: outcome.action for outcome in run_prepared(late, Told())}
    assert [outcomes[name] for name in ("regions", "pretrain", "tune")] == ["skip", "skip", "run"]
    assert (world / "runs/mine/regions").stat().st_ino == made


def test_a_stage_that_another_run_reads_is_not_made_anew(world, monkeypatch):
    monkeypatch.setattr(stage_record, "LOCK_PATIENCE", 0.1)
    go(until="pretrain")
    with stage_record.read_locked([world / "runs/mine/regions"]):
        assert not stage_record.is_held(world / "runs/mine/regions")
        outcome = go(only="regions", force=True)["regions"]
        assert outcome.status == "failed"
        assert "Another vlcli is working on this stage" in str(outcome.error)
    assert go(only="regions")["regions"].action == "skip"


def test_a_full_disk_is_one_message(world, monkeypatch):
    def full(context):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(sys.modules["vlcli.stages.pretrain"], "run", full, raising=False)
    monkeypatch.setattr(
        importlib, "import_module", _importer({k: sys.modules[k] for k in sys.modules if "stages" in k})
    )
    outcome = go(until="pretrain")["pretrain"]
    assert "disk is full" in str(outcome.error)


def test_a_damaged_record_is_no_record(world):
    go(until="regions")
    folder = world / "runs/mine/regions"
    (folder / "stage.json").write_text('{"stage": "regio')
    (folder / ".stage.json.copy").write_text("")
    assert planned(until="regions")[1]["regions"] == "run"
    told = Told()
    assert go(until="regions", progress=told)["regions"].action == "run"
    assert "stage.json cannot be read" in told.lines[0]
    assert any("kept as regions.old-1" in line for line in told.lines)
    assert (world / "runs/mine/regions.old-1/made/words.txt").exists()


def test_the_resolved_recipe_lies_in_the_run(world):
    go(["seed=4"])
    kept = next((world / "runs").glob("mine-*")) / "recipe.yaml"
    assert load(str(kept)).recipe.seed == 4


def test_stages_side_by_side_write_the_recipe_at_the_same_time(world):
    planner, _ = planning.make(load("mine.yaml"), RunOptions(output=Path("runs")))
    with ThreadPoolExecutor(8) as pool:
        for written in [pool.submit(keep_recipe, planner) for _ in range(200)]:
            written.result()
    assert load("runs/mine/recipe.yaml").recipe.name == load("mine.yaml").recipe.name
    assert [path.name for path in (world / "runs/mine").iterdir()] == ["recipe.yaml"]


def test_the_table_of_a_recipe(world):
    from vlcli.tools.table import recipe_table, seeds_table

    resolved = load("mine.yaml")
    outcomes = run_recipe(resolved, RunOptions(output=Path("runs")))
    table = recipe_table(resolved.recipe.table, outcomes)
    assert table.columns == ["", "accuracy", "accuracy/one"]
    assert table.text_rows() == [["with", "0.500", "0.500"], ["without", "0.500", "0.500"]]
    runs = {"with": [{"accuracy": 0.6}, {"accuracy": 0.7}, {"accuracy": 0.8}]}
    cell = seeds_table(runs, ["accuracy"], "t").as_dict()["rows"][0]["metrics"]["accuracy"]
    assert cell["mean"] == pytest.approx(0.7)
    assert cell["half"] == pytest.approx(4.302653 * 0.1 / 3**0.5, rel=1e-5)
