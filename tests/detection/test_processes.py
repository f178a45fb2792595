"""Several processes fill one store."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.features._world import MeanColour, make_images
from vlcli.detection.extraction import Share, extract_images
from vlcli.features import FeatureStore, verify

COUNT = 23


def _share(rank, count, barrier, desk):
    """What a launcher's process group does, by a barrier and files."""

    def gather(value):
        desk[rank] = value
        barrier.wait(30)
        values = [desk[other] for other in range(count)]
        barrier.wait(30)
        return values

    return Share(rank, count, lambda: barrier.wait(30), gather)


def _work(rank, count, barrier, desk, images, out, kill_at):
    class Dying(MeanColour):
        left = kill_at.get(rank, 10**9)

        def extract(self, batch):
            type(self).left -= 1
            if type(self).left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().extract(batch)

        def provenance(self):
            return {"extractor": "mean"}

    share = _share(rank, count, barrier, desk)
    report = extract_images(images, Dying(), out, batch_size=2, share=share)
    if rank == 0:
        desk["report"] = (report.counts, [error.id for error in report.errors])


def _together(images, out, count, kill_at=None):
    """Run; where a process is killed, its launcher would end the others."""
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager:
        desk, barrier = manager.dict(), context.Barrier(count)
        args = (count, barrier, desk, images, out, kill_at or {})
        processes = [context.Process(target=_work, args=(rank, *args)) for rank in range(count)]
        for process in processes:
            process.start()
        if kill_at:
            for rank in kill_at:
                processes[rank].join(30)
            time.sleep(0.1)
            for process in processes:
                process.kill()
        for process in processes:
            process.join(60)
        return desk.get("report")


def test_their_number_does_not_change_the_file(tmp_path):
    images = make_images(tmp_path / "images", COUNT)
    images[4][1].write_bytes(b"")
    images[20][1].write_bytes(b"no picture")
    files = []
    for count in (1, 2, 3):
        out = tmp_path / f"{count}" / "f.h5"
        counts, errors = _together(images, out, count)
        files.append((out.read_bytes(), out.with_name("errors.jsonl").read_bytes()))
        assert counts == {"images": 21, "regions": 84, "written": 21, "resumed": 0, "errors": 2}
        assert errors == ["im004", "im020"]
        assert not out.with_name("f.h5.part").exists()
    assert len(set(files)) == 1
    names = [name for name, _ in images if name not in ("im004", "im020")]
    assert FeatureStore(tmp_path / "3" / "f.h5").ids == names


@pytest.mark.parametrize("later", [1, 2, 3])
def test_a_killed_process_is_made_up_for(tmp_path, later):
    """Killed among three, gone on with by any number."""
    images = make_images(tmp_path / "images", COUNT)
    out = tmp_path / "f.h5"
    assert _together(images, out, 3, {1: 2}) is None
    assert not out.exists()
    counts, _ = _together(images, out, later)
    assert counts["images"] == COUNT
    _together(images, tmp_path / "whole.h5", 1)
    assert out.read_bytes() == (tmp_path / "whole.h5").read_bytes()
    assert verify(out) == []


RECIPE = """\
name: joint
root: {root}
stages:
  regions:
    kind: extract
    extractor: {{name: backbone, arch: tiny-conv, short: 32, boxes: grid, grid: [2, 2]}}
    data: [{{name: folder, images: images}}]
    batch_size: 2
"""


def _launch(folder, count, output):
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(count), "-m", "vlcli"]
    words += ["run", "joint.yaml", "--output", output, "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(words, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_torchrun_and_a_killed_rank(tmp_path):
    make_images(tmp_path / "images", 400)
    (tmp_path / "joint.yaml").write_text(RECIPE.format(root=tmp_path))
    for count in (1, 2, 3):
        process = _launch(tmp_path, count, f"runs{count}")
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err.decode()
        assert json.loads(out)
    process = _launch(tmp_path, 2, "killed")
    part = tmp_path / "killed" / "joint" / "regions" / "features.h5.part"
    while process.poll() is None and not any(part.glob("0001-*.h5")):
        time.sleep(0.01)
    os.kill(_children(process.pid)[1], signal.SIGKILL)
    process.communicate(timeout=300)
    assert process.returncode != 0
    process = _launch(tmp_path, 3, "killed")
    process.communicate(timeout=300)
    assert process.returncode == 0
    files = [tmp_path / run / "joint" / "regions" / "features.h5" for run in ("runs1", "runs2", "runs3", "killed")]
    assert len({file.read_bytes() for file in files}) == 1
