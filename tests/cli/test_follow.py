"""The live view of a run in a terminal, and ``vlcli follow`` and ``vlcli runs`` beside a run that is under way."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.cli.live import View
from vlcli.recipe import run_state, time_left
from vlcli.recipe.run_state import RunState, StageState, Work
from vlcli.recipe.stage_record import StageRecord

from .test_run import FAKE, PLUGIN, RECIPE, heeding

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """``vlcli WORDS`` in a terminal of 24 lines and 100 columns."""

    def __init__(self, folder, *words, sleep):
        self.parent, child = pty.openpty()
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 100, 0, 0))
        self.raw = b""
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vlcli", *words, "--plugin", str(PLUGIN)],
            cwd=folder,
            env={**os.environ, **FAKE, "FAKE_SLEEP": str(sleep), "TERM": "xterm", "OMP_NUM_THREADS": "1"},
            stdin=child,
            stdout=child,
            stderr=child,
            preexec_fn=lambda: (heeding(), os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),  # noqa: PLW1509
        )
        os.close(child)

    def read(self, until="", timeout=240.0):
        """What the terminal got, without its control sequences, up to a text or the end."""
        end = time.monotonic() + timeout
        while time.monotonic() < end and not (until and until in self.text):
            if select.select([self.parent], [], [], 0.2)[0]:
                try:
                    part = os.read(self.parent, 65536)
                except OSError:  # the other side is closed
                    break
                if not part:
                    break
                self.raw += part
        assert until in self.text, self.text[-3000:]
        return self.text

    @property
    def text(self):
        return ESCAPES.sub("", self.raw.decode(errors="replace")).replace("\r", "")

    def end(self):
        self.read()
        code = self.process.wait(60)
        os.close(self.parent)
        assert self.raw.count(b"\x1b[?25h") >= self.raw.count(b"\x1b[?25l") > 0  # the cursor is back
        assert "Traceback" not in self.text
        return code


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "data" / f"{split}.txt").write_text(split)
    (tmp_path / "both.yaml").write_text(RECIPE.format(jobs=2))
    return tmp_path


@pytest.fixture
def here(monkeypatch, tmp_path):
    """Runs a command in this process, in ``tmp_path``."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(app, list(words))


def state_of(folder):
    return run_state.seen(folder / "runs" / "both")


@pytest.mark.slow
def test_a_terminal_shows_all_stages_and_another_one_follows(cli, folder):
    run = Terminal(folder, "run", "both.yaml", sleep=2.0)
    run.read("2 side by side")
    state = state_of(folder)
    assert (state.status, state.pid, state.jobs) == ("running", run.process.pid, 2)
    assert {stage.name: stage.status for stage in state.stages if stage.status == "waiting"} == {
        "tune": "waiting",
        "test": "waiting",
    }
    words = [sys.executable, "-m", "vlcli", "follow"]
    beside = subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    listed = cli("runs", "--json")
    assert run.end() == 0
    out, err = beside.communicate(timeout=60)
    row = json.loads(listed.out)["runs"][0]
    assert (row["state"], row["pid"]) == ("running", run.process.pid)
    view = run.text
    for part in ("pretrain", "tune", "test", "scratch", "steps 2/4 step", "loss 0.5", "so far", "after tune"):
        assert part in view, part
    assert "about" in view or "a few seconds" in view
    assert re.search(r"mine +0\.500", view)  # the table of results follows the view
    assert beside.returncode == 0, err
    assert "runs/both is done" in err
    assert {line.split()[0] for line in out.splitlines()[1:]} == {"pretrain", "tune", "test", "scratch"}
    assert set(re.findall(r"^(\w+): done", err, re.MULTILINE)) == {"pretrain", "tune", "test", "scratch"}
    assert not (folder / "runs/both" / run_state.FILE).exists()
    after = cli("follow", "both")
    assert after.code == 0
    assert "mine: accuracy 0.500" in cli("runs").out


def test_ctrl_c_in_a_terminal_ends_the_view_cleanly_and_whoever_follows_is_told(folder, here):
    run = Terminal(folder, "run", "both.yaml", "--jobs", "1", sleep=2.0)
    run.read("steps 1/4")
    words = [sys.executable, "-m", "vlcli", "follow", "both"]
    beside = subprocess.Popen(words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    while ": running" not in beside.stderr.readline():
        assert beside.poll() is None
    row = json.loads(here("runs", "--json").stdout)["runs"][0]
    assert (row["state"], row["pid"]) == ("running", run.process.pid)
    os.write(run.parent, b"\x03")
    assert run.end() == 130
    assert "interrupted: run the same command again to go on" in run.text
    for part in ("pretrain", "tune", "test", "scratch", "steps 1/4 step", "loss 1", "so far", "after tune", "left"):
        assert part in run.text, part
    state = state_of(folder)
    assert (state.status, state.code) == ("stopped", 130)
    _, told = beside.communicate(timeout=60)
    assert beside.returncode == 130
    assert "runs/both is stopped; run the same command again to go on" in told
    assert json.loads(here("runs", "--json").stdout)["runs"][0]["state"] == "stopped"


@pytest.mark.slow
def test_a_killed_run_is_shown_as_stopped_and_the_next_run_leaves_no_trace_of_it(cli, folder):
    run = Terminal(folder, "run", "both.yaml", "--jobs", "1", sleep=2.0)
    run.read("steps 1/4")
    (folder / "runs/both/.progress.json.tmp-4194303-0").write_text("{")  # of a process that is gone
    followed = subprocess.Popen(
        [sys.executable, "-m", "vlcli", "follow", "both"], cwd=folder, stderr=subprocess.PIPE, text=True
    )
    seen = ""
    while ": running" not in seen:
        seen = followed.stderr.readline()
        assert followed.poll() is None
    run.process.send_signal(signal.SIGKILL)
    run.process.wait()
    os.close(run.parent)
    _, told = followed.communicate(timeout=60)
    assert followed.returncode == 1
    assert re.search("^[a-z]+: stopped", told, re.MULTILINE)
    assert "runs/both is stopped" in told
    row = json.loads(cli("runs", "--json").out)["runs"][0]
    assert (row["state"], row["pid"]) == ("stopped", None)
    assert "stopped" in row["stages"].values()
    assert cli("run", "both.yaml", "--plugin", PLUGIN, env=FAKE).code == 0
    left = {path.name for path in (folder / "runs/both").iterdir() if "progress" in path.name}
    assert left == {run_state.LOCK}


def made(folder, **given):
    """A run's folder with a progress file, whose process is gone."""
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text("stages: {tune: {kind: finetune}, test: {kind: evaluate}}\n")
    stages = [StageState("tune", "finetune", "running", began=5.0, work=[Work("train", total=9)])]
    state = RunState("both.yaml", str(folder), [*stages, StageState("test", "evaluate", after=["tune"])], **given)
    run_state.write(folder, state)
    return folder


def test_how_a_run_ended_is_read_from_its_files(here, tmp_path):
    assert "No run is under way." in here("follow").stderr
    made(tmp_path / "runs" / "failed", status="failed", code=4)
    made(tmp_path / "runs" / "killed", pid=7)
    damaged = made(tmp_path / "runs" / "damaged") / run_state.FILE
    damaged.write_text(damaged.read_text().replace('"kind"', '"sort"'))
    assert run_state.read(damaged.parent) is None
    for name, code, word in (("failed", 4, "failed"), ("killed", 1, "stopped"), ("damaged", 0, "empty")):
        followed = here("follow", name)
        assert followed.exit_code == code, name
        again = "; run the same command again to go on" if code else ""
        assert f"runs/{name} is {word}{again}\n" in followed.stderr
    missing = here("follow", "nothing")
    assert missing.exit_code == 5
    assert "There is no such run." in missing.stderr
    rows = {row["folder"]: row for row in json.loads(here("runs", "--json").stdout)["runs"]}
    assert {Path(name).name: row["state"] for name, row in rows.items()} == {
        "failed": "failed",
        "killed": "stopped",
        "damaged": "empty",
    }


def shown(state, width=100, height=24):
    """The lines of the view."""
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    console.print(View(state))
    return console.file.getvalue().splitlines()


def sixteen_stages():
    """A run of 16 stages: 5 done, 2 running, 9 waiting."""
    now = time.time()
    stages = [StageState(f"stage-{n}", "pretrain", expected=120.0) for n in range(16)]
    for stage in stages[:5]:
        stage.status, stage.seconds, stage.metrics = "done", 33.0, {"accuracy": 0.75, "most_frequent": 0.5}
    for stage in stages[5:7]:
        stage.status, stage.began = "running", now - 60
    facts = {"loss": 2.2213, "mlm/accuracy": 0.65, "ex/s": 640.0}
    stages[5].work = [Work("train", "step", 250, 125, 0, now - 50, facts), Work("validate", "ex", 400, 40, 0, now)]
    for stage in stages[7:]:
        stage.after = ["stage-5"]
    return RunState("quickstart", "runs/quickstart", stages, jobs=2, began=now - 200)


def test_the_view_fits_every_terminal_and_shows_what_runs(here):
    state = sixteen_stages()
    for width, height in ((100, 40), (80, 24), (60, 14), (200, 9)):
        lines = shown(state, width, height)
        assert len(lines) < height
        assert max(map(len, lines)) <= width
        assert sum(" running " in line for line in lines) == 2
        assert any("train 125/250 step" in line for line in lines)
    lines = shown(sixteen_stages(), 140)  # it tells how long the run lasts by now
    text = "\n".join(lines)
    assert "5 of 16 stages done, 2 side by side, 3:20 so far" in lines[0]
    assert "train 125/250 step, about 50 s left, 640 ex/s" in text
    assert "now: validate 40/400 ex  loss 2.221  mlm/accuracy 0.65" in text
    assert "0:33  accuracy 0.750 (most frequent 0.500)" in text


def test_a_narrow_terminal_leaves_out_what_matters_least(here):
    """At 80 columns the headline is whole; at 40 each running stage has its step, and its time left below it."""
    state = sixteen_stages()
    state.stages[9].expected = None
    assert shown(state, 80)[0].rstrip().endswith(" or more left, 5/16 done, 2 side by side, 3:20")
    assert "and 1 stage of unknown length" in shown(state, 120)[0]
    lines = shown(state, 40, 30)
    assert max(map(len, lines)) <= 40
    assert lines[0].rstrip().endswith(" or more left")
    place = next(number for number, line in enumerate(lines) if "validate 40/400 ex" in line)
    assert "about 50 s left" in lines[place + 1]
    assert not any("…" in line for line in lines if "stage-5" in line)
    state.stages[5].status = "failed"
    assert any(re.match(r"stage-5 +failed", line) for line in shown(state, 40, 30))


def test_a_state_that_names_a_file_that_is_not_utf8_is_read(tmp_path):
    state = sixteen_stages()
    state.stages[5].why = "missing: caf\udce9.json"
    run_state.write(tmp_path, state)
    assert run_state.read(tmp_path).stages[5].why == "missing: caf?.json"


def test_time_left_follows_the_order_in_which_stages_can_start():
    state = sixteen_stages()
    seconds, unknown = time_left.of_run(state)
    # 50 s until stage-5 is done; then 9 stages of 120 s on two places, of which one is free 10 s later
    assert unknown == 0
    assert seconds == pytest.approx(50 + 5 * 120, abs=1)
    state.jobs = 1
    assert time_left.of_run(state)[0] == pytest.approx(60 + 9 * 120, abs=1)
    state.stages[9].expected = None
    assert time_left.of_run(state)[1] == 1


def test_what_similar_stages_took_is_scaled_by_their_epochs():
    def record(stage, seconds, recipe="mine", kind="finetune", **config):
        return StageRecord(stage, kind, "done", "", config=config, recipe=recipe, seconds=seconds)

    known = [record("a", 10.0, epochs=2, data="x"), record("b", 60.0, epochs=1, data="y"), record("a", 9.0, "other")]
    assert time_left.expect(known, "mine", "a", "finetune", {"epochs": 6}) == 30.0
    assert time_left.expect(known, "mine", "c", "finetune", {"epochs": 2, "data": "y"}) == 120.0
    assert time_left.expect(known, "mine", "c", "finetune", {"data": "z"}) == 35.0
    assert time_left.expect(known, "mine", "c", "evaluate", {}) is None
    under_way = [record("d", 7.0, kind="evaluate")]
    assert time_left.expect([*known, *under_way], "mine", "c", "evaluate", {}) == 7.0
