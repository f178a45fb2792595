"""Under torchrun: processes that die are started again and go on; a scheduler's signal leaves a checkpoint."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import forked
import pytest

from tests.cli.test_ranks import Ranks, folder  # noqa: F401 (a fixture)
from tests.cli.test_run import heeding
from vlcli.engine.checkpoint import Checkpoints, read_state
from vlcli.engine.weights import read_tensors

pytestmark = pytest.mark.slow
WORDS = ("stages.pretrain.epochs=8", "stages.pretrain.evaluate_every=100000")
HANDLED = "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1"


def torchrun(place, name, *options, count=2, more=()):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count), *options]
    command += ["-m", "vlcli", "run", "small.yaml", *WORDS, *more, "--output", name, "--device", "cpu"]
    command += ["--run-folder", f"{name}/small", "--until", "pretrain"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heeding}
    return subprocess.Popen(command, cwd=place, env=environment, **pipes)


def until(path, process):
    end = time.monotonic() + 200
    while not path.exists() and time.monotonic() < end:
        assert process.poll() is None, process.communicate()[1][-3000:]
        time.sleep(0.02)


def children(process):
    return forked.children(process.pid)


def weights(run):
    return read_tensors(run / "pretrain/model/model.safetensors")


@pytest.mark.parametrize(("where", "sharding"), [("own", "none"), ("fixed", "none"), ("own", "full")])
def test_torchrun_starts_killed_processes_again_and_they_go_on(folder, where, sharding):  # noqa: F811
    more = (f"stages.pretrain.sharding={sharding}",)
    options = ["--max-restarts", "3"] + (["--rdzv-backend", "static", "--master-port", "29541"] * (where == "fixed"))
    name = f"restarted-{where}-{sharding}"
    run = folder / name / "small"
    process = torchrun(folder, name, *options, more=more)
    for rank, step in ((1, 8), (0, 40)):
        until(run / f"pretrain/checkpoints/step-{step:08d}", process)
        os.kill(children(process)[rank], signal.SIGKILL)
        time.sleep(1)
    told = process.communicate(timeout=300)[1]
    assert process.returncode == 0, told[-3000:]
    assert told.count("error: ") == 2
    assert "Process 1 of 2 is gone" in told
    assert "Process 0 of 2 is gone" in told
    assert "Traceback" not in told
    whole = Ranks(folder, f"whole-{where}-{sharding}", *WORDS, *more)
    assert [code for code, _ in whole.ended()] == [0, 0]
    first, second = weights(run), weights(whole.run)
    assert all((first[key] == second[key]).all() for key in first)


def together(place, name):
    command = [sys.executable, "-m", "vlcli", "run", "small.yaml", *WORDS, "--output", name, "--device", "cpu"]
    command += ["--run-folder", f"{name}/small", "--until", "pretrain", "--processes", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True, "preexec_fn": heeding}
    return subprocess.Popen(command, cwd=place, env=environment, **pipes)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_that_dies_is_named_with_its_signal_and_the_same_command_goes_on(folder, number):  # noqa: F811
    name = f"together-{number.name}"
    first = together(folder, name)
    until(folder / name / "small/pretrain/checkpoints/step-00000008", first)
    os.kill(children(first)[1], number)
    begun = time.monotonic()
    told = first.communicate(timeout=60)[1]
    assert time.monotonic() - begun < 10
    assert first.returncode == 1
    assert told.count("error: ") == 1, told
    assert "Process 1 of 2 is gone" in told
    assert f"signal {number.name} ended it" in told
    assert "run the same command again" in told
    assert "Traceback" not in told
    again = together(folder, name)
    told = again.communicate(timeout=200)[1]
    assert again.returncode == 0, told[-3000:]
    assert "resuming at step" in told


def test_a_signal_to_the_command_ends_its_processes_with_a_checkpoint(folder):  # noqa: F811
    run = folder / "together-ended/small"
    command = together(folder, "together-ended")
    until(run / "pretrain/checkpoints/step-00000008", command)
    ranks = children(command)
    command.send_signal(signal.SIGTERM)
    told = command.communicate(timeout=30)[1]
    assert command.returncode == 143, told
    assert "Traceback" not in told
    assert not [rank for rank in ranks if Path(f"/proc/{rank}").exists()]
    assert 8 <= read_state(Checkpoints(run / "pretrain/checkpoints").complete()[-1]).step < 96


def test_sigusr1_leaves_a_checkpoint_and_another_number_of_processes_goes_on(folder):  # noqa: F811
    run = folder / "usr1/small"
    process = torchrun(folder, "usr1", "--signals-to-handle", HANDLED)
    until(run / "pretrain/checkpoints/step-00000008", process)
    process.send_signal(signal.SIGUSR1)
    begun = time.monotonic()
    told = process.communicate(timeout=60)[1]
    assert time.monotonic() - begun < 10
    assert process.returncode != 0
    assert "asked to end by the scheduler" in told
    step = read_state(Checkpoints(run / "pretrain/checkpoints").complete()[-1]).step
    assert 8 <= step < 96
    alone = torchrun(folder, "usr1", count=1)
    told = alone.communicate(timeout=200)[1]
    assert alone.returncode == 0, told[-3000:]
    assert f"resuming at step {step} of 96" in told
    assert "2 processes wrote the checkpoint, 1 goes on" in told


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_the_exit_code_is_the_one_the_scheduler_requeues_on(folder, number):  # noqa: F811
    both = Ranks(folder, f"code-{number}", *WORDS, VLCLI_REQUEUE_CODE="85")
    both.until("pretrain/checkpoints/step-00000008")
    for process in both.ranks:
        process.send_signal(number)
    assert [code for code, _ in both.ended(30)] == [85, 85]


def test_a_requeue_code_that_is_none_is_told_before_anything_runs(folder):  # noqa: F811
    ended = Ranks(folder, "no-code", VLCLI_REQUEUE_CODE="256").ended(60)
    assert [code for code, _ in ended] == [2, 2]
    assert "VLCLI_REQUEUE_CODE is no exit code" in ended[0][1]


def test_a_second_job_in_the_same_folder_is_refused_with_one_message(folder):  # noqa: F811
    first = Ranks(folder, "taken", "stages.pretrain.epochs=4000", *WORDS[1:])
    first.until("pretrain/checkpoints/step-00000008")
    for process in first.ranks:
        process.send_signal(signal.SIGSTOP)  # as a scheduler suspends a job: it still holds its folder
    second = Ranks(folder, "taken", "stages.pretrain.epochs=4000", *WORDS[1:]).ended(250)
    for process in first.ranks:
        process.send_signal(signal.SIGCONT)
    assert all(code for code, _ in second)
    told = "".join(text for _, text in second)
    assert told.count("error: ") == 1, told
    assert "Another vlcli is running in this folder" in told
    assert "Traceback" not in told
    time.sleep(5)
    assert [process.poll() for process in first.ranks] == [None, None]  # the time it stood still is no hang
    for process in first.ranks:
        process.send_signal(signal.SIGTERM)
    assert [code for code, _ in first.ended(30)] == [143, 143]
