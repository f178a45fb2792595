"""Extraction on a Ray cluster: the bytes of one machine, also where workers and machines die."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.features._world import make_images
from vlcli.cli import app

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="needs pip install 'vlcli[ray]'")
COUNT = 160
RECIPE = """\
name: far
root: {root}
stages:
  regions:
    kind: extract
    extractor: {{name: backbone, arch: tiny-conv, short: 600, long: 1000, boxes: grid, grid: [2, 2]}}
    images: {images}
    batch_size: 2
    engine: {engine}
    workers: {workers}
    threads: 1
"""


def _recipe(folder, images, engine="ray", workers=2):
    (folder / "far.yaml").write_text(RECIPE.format(root=folder, images=images, engine=engine, workers=workers))


def test_without_ray_a_line_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    make_images(tmp_path / "images", 2)
    _recipe(tmp_path, "images")
    ended = CliRunner().invoke(app, ["run", str(tmp_path / "far.yaml"), "--output", str(tmp_path / "runs")])
    assert ended.exit_code == 4
    assert "Ray is not installed." in ended.stderr
    assert "next: pip install 'vlcli[ray]'" in ended.stderr


def test_the_engine_decides_nothing_about_the_result(tmp_path):
    from vlcli.recipe.load import load
    from vlcli.recipe.plan import RunOptions, make

    make_images(tmp_path / "images", 2)
    made = []
    for engine, workers in (("local", 0), ("ray", 7)):
        _recipe(tmp_path, "images", engine, workers)
        planner, (step,) = make(load(str(tmp_path / "far.yaml"), []), RunOptions(output=tmp_path / "runs"))
        made.append((planner.folder, step.key))
    assert made[0] == made[1]


def _start(folder, output, address="local"):
    words = [sys.executable, "-m", "vlcli", "run", "far.yaml", "--output", output, "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "RAY_ADDRESS": address}
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _ended(process) -> str:
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0, err.decode()
    return err.decode()


def _below(pid: int) -> list[tuple[int, str]]:
    """Processes that a process started, and those that they started, each with its command."""
    found = []
    for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        name = Path(f"/proc/{word}/cmdline").read_text().replace("\0", " ")
        found += [(int(word), name), *_below(int(word))]
    return found


def _wait_for_some(process, folder, output, least=1):
    part = folder / output / "far" / "regions" / "features.h5.part"
    while process.poll() is None and len(list(part.glob("*.h5"))) < least:
        time.sleep(0.02)
    assert process.poll() is None


def _store(folder, output) -> bytes:
    return (folder / output / "far" / "regions" / "features.h5").read_bytes()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Pictures, and the store that one machine makes of them."""
    folder = tmp_path_factory.mktemp("far")
    images = make_images(folder / "images", COUNT)
    images[5][1].write_bytes(b"")
    _recipe(folder, "images", "local", 0)
    _ended(_start(folder, "alone"))
    return folder


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("where", ["images", "file://{folder}/images"])
def test_a_killed_worker_changes_nothing(pictures, where):
    output = "near" if where == "images" else "remote"
    _recipe(pictures, where.format(folder=pictures))
    process = _start(pictures, output)
    _wait_for_some(process, pictures, output)
    worker = next(pid for pid, name in _below(process.pid) if name.startswith("ray::Worker"))
    os.kill(worker, signal.SIGKILL)
    assert "a worker of the Ray cluster died: others do what it had" in _ended(process)
    assert _store(pictures, output) == _store(pictures, "alone")
    errors = (pictures / output / "far" / "regions" / "errors.jsonl").read_text().splitlines()
    assert [json.loads(line)["reason"] for line in errors] == ["the file is empty"]


@needs_ray
@pytest.mark.slow
def test_what_is_made_is_not_made_again_by_whichever_engine(pictures):
    _recipe(pictures, "images")
    process = _start(pictures, "resumed")
    _wait_for_some(process, pictures, "resumed")
    process.kill()  # Ray's processes end by themselves, a minute later
    process.communicate(timeout=60)
    part = pictures / "resumed" / "far" / "regions" / "features.h5.part"
    kept = {path.name: path.stat().st_mtime_ns for path in part.glob("*.h5")}
    assert kept
    process = _start(pictures, "resumed")
    _wait_for_some(process, pictures, "resumed", len(kept) + 1)
    assert {name: (part / name).stat().st_mtime_ns for name in kept} == kept
    below = _below(process.pid)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err.decode()
    _gone([pid for pid, _ in below])
    _recipe(pictures, "images", "local", 0)
    _ended(_start(pictures, "resumed"))
    assert _store(pictures, "resumed") == _store(pictures, "alone")


def _gone(pids) -> None:
    """Ray's processes end with the one that started them."""
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < until
        time.sleep(0.1)


@needs_ray
@pytest.mark.slow
def test_a_lost_machine_changes_nothing(pictures):
    """Two of Ray's nodes, here side by side; one of them is killed with all its processes."""
    script = (
        "import os, sys\nfrom ray.cluster_utils import Cluster\n"
        "made = Cluster(initialize_head=True, head_node_args={'num_cpus': 1, 'include_dashboard': False})\n"
        "node = made.add_node(num_cpus=1)\nprint(made.address, flush=True)\n"
        "sys.stdin.readline()\nmade.remove_node(node, allow_graceful=False)\n"
        "sys.stdin.readline()\nmade.shutdown()\n"
    )
    environment = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}
    nodes = subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        address = next(line.strip() for line in nodes.stdout if line[:1].isdigit())
        _recipe(pictures, f"file://{pictures}/images")
        process = _start(pictures, "machine", address)
        _wait_for_some(process, pictures, "machine")
        nodes.stdin.write("\n")
        nodes.stdin.flush()
        assert "a worker of the Ray cluster died" in _ended(process)
        assert _store(pictures, "machine") == _store(pictures, "alone")
    finally:
        nodes.communicate("\n\n", timeout=60)


@needs_ray
@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_one_message(pictures):
    _recipe(pictures, "images")
    process = _start(pictures, "nowhere", "127.0.0.1:1")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "The Ray cluster cannot be joined." in err.decode()
    assert "Traceback" not in err.decode()
