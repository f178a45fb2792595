"""``run`` and the stage verbs as processes: streams, exit codes, signals, resuming, several at a time."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import forked
import pytest

PLUGIN = Path(__file__).parents[1] / "fixtures" / "fake_stages.py"
FAKE = {"FAKE_STAGES": "1"}
RECIPE = """\
root: data
jobs: {jobs}
model: fake-model
stages:
  pretrain: {{data: fake-data, objectives: fake-objective}}
  tune: {{kind: finetune, from: pretrain, task: fake-task, root: data}}
  test: {{kind: evaluate, from: tune}}
  scratch: {{kind: finetune, task: fake-task}}
table: {{rows: {{mine: test}}, metrics: [accuracy]}}
"""


@pytest.fixture
def vlcli(cli, tmp_path):
    """A command line with the fake stages, in a folder with a recipe ``mine.yaml`` and data."""
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "data" / f"{split}.txt").write_text(split)
    (tmp_path / "mine.yaml").write_text(RECIPE.format(jobs=1))
    (tmp_path / "both.yaml").write_text(RECIPE.format(jobs=2))
    return lambda *words, env=None: cli(*words, "--plugin", PLUGIN, env={**FAKE, **(env or {})})


def test_a_run_ends_by_naming_what_its_model_can_be_used_for(vlcli):
    told = [line for line in vlcli("run", "mine.yaml").err.splitlines() if line.startswith("next: ")]
    model = "runs/mine/tune"
    assert told == [
        f"next: vlcli predict {model} PICTURE... [TEXT]",
        f"next: vlcli demo {model}",
        "next: vlcli report runs/mine",
        f"next: vlcli export {model} --format hub",
    ]
    assert "next: " not in vlcli("run", "mine.yaml").err  # everything was there
    assert "next: " not in vlcli("run", "mine.yaml", "--force", "--quiet").err


def test_a_run_ends_with_its_result_in_words(vlcli):
    """With the seed 1 the stand-in of a model scores .1, and its most frequent answer .25."""
    below = "The trained model is below a baseline: the most frequent answer has 25.0 %, mine 10.0 % (-15.0 points)."
    env = {"FAKE_METRIC_test": "most_frequent"}
    ended = vlcli("run", "mine.yaml", "--seed", "1", env=env)
    assert ended.out.splitlines()[-2:][0] == below, ended.out
    assert json.loads(vlcli("run", "mine.yaml", "--seed", "1", "--json", env=env).out)["conclusions"][0] == below
    assert "below a baseline" not in vlcli("run", "mine.yaml", "--seed", "5", env=env).out


def test_run_prints_stages_and_table_on_stdout_and_the_rest_on_stderr(vlcli):
    ended = vlcli("run", "mine.yaml")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[0].split() == ["stage", "kind", "action", "time", "metrics", "folder"]
    assert lines[-1].split() == ["mine", "0.500"]
    assert "steps: 4/4 step" in ended.err
    assert "steps" not in ended.out
    again = vlcli("run", "mine.yaml", "--json")
    document = json.loads(again.out)
    assert document["schema_version"] == 1
    assert {stage["action"] for stage in document["stages"]} == {"skip"}
    assert document["table"]["rows"] == [{"label": "mine", "metrics": {"accuracy": 0.5}}]


def test_stages_in_processes_of_their_own_take_overrides_of_the_environment_once(vlcli):
    ended = vlcli(
        "run", "both.yaml", "--until", "tune", "--quiet", env={"VLCLI_SET": "~stages.test ~stages.scratch ~table"}
    )
    assert ended.code == 0, ended.err


def test_what_a_plugin_prints_and_a_file_that_is_none_leave_the_output_alone(vlcli, tmp_path):
    (tmp_path / "loud.py").write_text("print('hello')")
    assert json.loads(vlcli("validate", "mine.yaml", "--json", "--plugin", "loud.py").out)["valid"]
    assert "give a Python file" in vlcli("validate", "mine.yaml", "--plugin", "data/train.txt").err


def test_the_home_of_nobody_is_told(vlcli):
    told = vlcli("run", "mine.yaml", "root=~nobody-here/data").err
    assert "got: ~nobody-here/data" in told
    assert "unforeseen" not in told


def test_dry_run_does_nothing(vlcli, tmp_path):
    ended = vlcli("pretrain", "--recipe", "mine.yaml", "epochs=3", "--dry-run")
    assert ended.code == 0
    assert "not made yet" in ended.out
    assert "override: stages.pretrain.epochs=3" in ended.err
    assert not (tmp_path / "runs").exists()
    (tmp_path / "data" / "train.txt").unlink()
    blocked = vlcli("run", "mine.yaml", "--dry-run", "--json")
    assert blocked.code == 5
    assert json.loads(blocked.out)["stages"][0]["action"] == "blocked"


def test_a_run_that_was_asked_for_one_stage_is_done(vlcli, cli):
    assert vlcli("run", "mine.yaml", "--only", "pretrain").code == 0
    listed = json.loads(cli("runs", "--json").out)["runs"][0]
    assert (listed["state"], listed["stages"]["tune"]) == ("done", "not begun")
    assert vlcli("run", "mine.yaml", env={"FAKE_FAIL": "tune"}).code == 1
    assert json.loads(cli("runs", "--json").out)["runs"][0]["state"] == "failed"


def test_exit_codes_and_one_message(vlcli):
    for words, code in [
        (("run", "mine.yaml", "seed=x"), 3),
        (("run", "nothing"), 4),
        (("run", "nothing.yaml"), 2),
        (("run", "mine.yaml", "--only", "tset"), 2),
        (("run", "mine.yaml", "root=nowhere"), 5),
        (("run", "mine.yaml", "model=fake-modle"), 4),
        (("pretrain", "mine.yaml"), 2),
        (("eval", "fake-tsk"), 4),
        (("eval", "fake-task"), 5),
        (("run", "mine.yaml", "--no-such-option"), 2),
    ]:
        ended = vlcli(*words)
        assert ended.code == code, (words, ended.err)
        assert "Traceback" not in ended.err
        assert not ended.out
    ended = vlcli("run", "mine.yaml", "seed=x", "--json")
    problem = json.loads(ended.out)["error"]["problems"][0]
    assert (problem["key"], problem["where"]) == ("seed", "command line (seed=x)")


def test_a_failing_stage_and_an_unforeseen_one(vlcli):
    failed = vlcli("run", "mine.yaml", "--json", env={"FAKE_FAIL": "tune"})
    assert failed.code == 1
    document = json.loads(failed.out)
    assert {s["stage"]: s["status"] for s in document["stages"]} == {
        "pretrain": "done",
        "tune": "failed",
        "test": "blocked",
        "scratch": "done",
    }
    assert document["error"]["next"] == "mend it"
    crashed = vlcli("run", "mine.yaml", env={"FAKE_CRASH": "tune"})
    assert crashed.code == 1
    assert "ZeroDivisionError: unforeseen" in crashed.err
    assert "Traceback" not in crashed.err
    assert "Traceback" in vlcli("run", "mine.yaml", "-vv", env={"FAKE_CRASH": "tune"}).err


def test_killed_and_run_again_it_resumes(vlcli, tmp_path):
    killed = vlcli("run", "mine.yaml", env={"FAKE_KILL": "pretrain"})
    assert killed.code == -signal.SIGKILL
    assert json.loads((tmp_path / "runs/mine/pretrain/stage.json").read_text())["status"] == "running"
    document = json.loads(vlcli("run", "mine.yaml", "--json").out)
    assert document["stages"][0]["action"] == "resume"
    assert document["stages"][0]["metrics"]["resumed"] == 2


def test_stages_at_a_time(vlcli, tmp_path):
    ended = vlcli("run", "both.yaml", "--json", env={"FAKE_FAIL": "scratch"})
    assert ended.code == 1, ended.err
    document = json.loads(ended.out)
    assert {s["stage"]: s["status"] for s in document["stages"]} == {
        "pretrain": "done",
        "tune": "done",
        "test": "done",
        "scratch": "failed",
    }
    assert "It broke." in ended.err
    assert "pretrain: steps" in ended.err
    again = json.loads(vlcli("run", "both.yaml", "--json").out)
    assert [s["action"] for s in again["stages"]] == ["skip", "skip", "skip", "resume"]


def test_a_killed_worker_is_told_and_resumed(vlcli):
    ended = vlcli("run", "both.yaml", env={"FAKE_KILL": "pretrain"})
    assert ended.code == 1
    assert "stage pretrain failed" in ended.err
    assert "The process of this stage ended: SIGKILL" in ended.err
    assert json.loads(vlcli("run", "both.yaml", "--json").out)["stages"][0]["action"] == "resume"


def test_a_killed_run_takes_its_workers_along(vlcli, tmp_path):
    environment = {**os.environ, **FAKE, "FAKE_SLEEP": "1", "OMP_NUM_THREADS": "1"}
    log = tmp_path / "runs" / "both" / "pretrain" / "log.txt"
    process = forked.Started(["run", "both.yaml", "--plugin", PLUGIN], tmp_path, environment)
    for _ in range(400):
        if log.exists():
            break
        time.sleep(0.05)
    process.kill()
    process.communicate()
    document = json.loads(vlcli("run", "both.yaml", "--json").out)
    first = document["stages"][0]
    assert (first["action"], first["status"]) == ("resume", "done")
    assert sorted(log.read_text().split()) == ["0", "1", "2", "3"]


def heeding():
    """Before a child starts: what this process's own parent ignores (a job in the background) is heard again."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    ("number", "code", "recipe"),
    [
        (signal.SIGINT, 130, "mine.yaml"),
        (signal.SIGTERM, 143, "both.yaml"),
        pytest.param(signal.SIGTERM, 143, "mine.yaml", marks=SLOW),
        pytest.param(signal.SIGHUP, 129, "mine.yaml", marks=SLOW),
        pytest.param(signal.SIGINT, 130, "both.yaml", marks=SLOW),
        pytest.param(signal.SIGHUP, 129, "both.yaml", marks=SLOW),
    ],
    ids=str,
)
def test_signals(vlcli, tmp_path, number, code, recipe):
    environment = {**os.environ, **FAKE, "FAKE_SLEEP": "0.4", "OMP_NUM_THREADS": "1"}
    process = forked.Started(["run", recipe, "--plugin", PLUGIN], tmp_path, environment)
    log = tmp_path / "runs" / Path(recipe).stem / "pretrain" / "log.txt"
    latest = time.monotonic() + 60  # a busy machine takes long to start the workers
    while not log.exists() and process.poll() is None and time.monotonic() < latest:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "run the same command again" in err
    steps = len(log.read_text().split())
    time.sleep(0.6)
    assert len(log.read_text().split()) == steps, "a worker lives on"


def test_eval_by_task_takes_the_newest_checkpoint(vlcli, tmp_path):
    vlcli("run", "mine.yaml", "--until", "tune")
    vlcli("run", "mine.yaml", "--until", "tune", "--seed", "7")
    ended = vlcli("eval", "fake-task", "--split", "dev", "--json")
    assert ended.code == 0, ended.err
    stage = json.loads(ended.out)["stages"][0]
    assert stage["metrics"]["accuracy"] == 0.7
    assert stage["folder"].startswith("runs/eval/fake-task-")
    assert json.loads(vlcli("eval", "fake-task", "--split", "dev", "--json").out)["stages"][0]["action"] == "skip"
    older = vlcli("eval", "fake-task", "--stage", "runs/mine/tune", "batch_size=2", "--json")
    assert json.loads(older.out)["stages"][0]["metrics"]["accuracy"] == 0.5
    assert vlcli("eval", "fake-task", "--stage", "runs/nowhere").code == 5
    alone = vlcli("eval", "--stage", "runs/mine/tune", "--split", "dev", "--json")  # its own task, not the quickstart
    assert json.loads(alone.out)["stages"][0]["metrics"]["accuracy"] == 0.5
    for words in (["--split", "dev"], ["--stage", "runs/mine/pretrain"], ["--recipe", "mine.yaml", "--stage", "runs"]):
        refused = vlcli("eval", *words)
        assert refused.code == 2
        assert "next:" in refused.err


def test_recipes_over_seeds(vlcli):
    ended = vlcli("run", "mine.yaml", "--seeds", "3", "--table", "--json")
    assert ended.code == 0, ended.err
    document = json.loads(ended.out)
    assert [run["seed"] for run in document["runs"]] == [9595, 9596, 9597]
    cell = document["table"]["rows"][0]["metrics"]["accuracy"]
    assert cell["mean"] == pytest.approx(0.6)
    assert cell["count"] == 3
    text = vlcli("run", "mine.yaml", "both.yaml", "--seeds", "2", "--table").out
    assert "0.550 ± 0.635" in text
    assert "both: mine" in text


def test_seeds_of_a_recipe_that_reports_end_in_one_page(vlcli, tmp_path):
    """The page itself is tested in tests/pages: with the invented stages there is nothing to draw."""
    (tmp_path / "told.yaml").write_text(RECIPE.format(jobs=1) + "report: true\n")
    pages = PLUGIN.with_name("fake_pages.py")
    ended = vlcli("run", "told.yaml", "--seeds", "2", "--table", "--plugin", pages)
    assert ended.code == 0, ended.err
    assert "report: runs/told/seeds.html" in ended.out
    first, second = (tmp_path / "runs" / "told" / "seeds.html").read_text().splitlines()
    assert first == "runs/told"
    assert second.startswith("runs/told-")
    again = vlcli("run", "told.yaml", "--seeds", "2", "--json", "--plugin", pages)
    assert json.loads(again.out)["report"] == "runs/told/seeds.html"


def test_rank_one_says_nothing(vlcli):
    ended = vlcli("run", "mine.yaml", "--dry-run", env={"RANK": "1"})
    assert ended.out == ""


def test_a_terminal_that_is_closed_ends_the_run_in_order(vlcli, tmp_path):
    import pty

    environment = {**os.environ, **FAKE, "FAKE_SLEEP": "0.4", "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    words = [sys.executable, "-m", "vlcli", "run", "mine.yaml", "--plugin", str(PLUGIN)]
    child, terminal = pty.fork()
    if not child:
        heeding()
        os.chdir(tmp_path)
        os.execve(sys.executable, words, environment)
    log = tmp_path / "runs" / "mine" / "pretrain" / "log.txt"
    for _ in range(400):
        if log.exists():
            break
        time.sleep(0.05)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 129
    assert len(log.read_text().split()) < 4
