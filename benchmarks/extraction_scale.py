"""Extraction of a hundred thousand small pictures: rate, memory, store, kills, a full disk, two processes, tar shards.

    python benchmarks/extraction_scale.py [--count 100000] [--folder FOLDER] [--rows folder,shards,...]

Draws pictures of 64 x 64 pixels, packs the same files into ten tar shards, and runs `vlcli extract` on them, a process
for each row: `network` (the forward passes alone, on pictures that lie decoded in memory), `folder`, `shards`,
`processes` (two that share the work), `killed` (SIGKILL at three moments, each time begun again) and `full` (a disk of
half the size that is needed, then made large enough; needs the right to mount a tmpfs). Every store must hold the same
records as that of `folder`. Memory is that of all processes (PSS).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch
from PIL import Image

from vlcli.detection.extractor import Extractor, Prepared
from vlcli.detection.jobs import jobs_of, prepare
from vlcli.registry import build

SIDE, SHARDS, KILLS = 64, 10, (0.2, 0.5, 0.8)
EXTRACTOR = {"name": "backbone", "arch": "tiny-conv", "short": SIDE, "boxes": "grid", "grid": [3, 3]}
DATA = {"folder": {"images": "images"}, "shards": {"data": {"name": "webdataset", "shards": "shards/*.tar"}}}


def draw(root: Path, count: int) -> None:
    """Write smooth pictures in a hundred folders, and the same with captions in tar shards."""
    rng = np.random.default_rng(0)
    (root / "shards").mkdir(parents=True)
    (root / "caption.txt").write_text("a smooth picture")
    for shard in range(SHARDS):
        with tarfile.open(root / f"shards/{shard}.tar", "w") as tar:
            for number in range(shard * count // SHARDS, (shard + 1) * count // SHARDS):
                path = root / f"images/{number % 100:02}/{number:06}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                small = Image.fromarray(rng.integers(0, 256, (6, 6, 3), np.uint8))
                small.resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(path, quality=88)
                tar.add(path, path.name)
                tar.add(root / "caption.txt", f"{path.stem}.txt")


def start(root: Path, output: Path, data: str = "folder", *options: str) -> subprocess.Popen[str]:
    """Start `vlcli extract` with a recipe of one stage."""
    recipe = root / f"{data}.yaml"
    recipe.write_text(json.dumps({"stages": {"regions": {"kind": "extract", "extractor": EXTRACTOR, **DATA[data]}}}))
    words = ["extract", "--recipe", str(recipe), f"root={root}", "--output", str(output), *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([sys.executable, "-m", "vlcli", *words], **pipes)


def watched(process: subprocess.Popen[str], stop: Callable[[], bool] = lambda: False) -> dict[str, Any]:
    """Wait for a process, sampling memory and processor time; kill it once `stop` says so."""
    begun, samples, busy = time.perf_counter(), [], 0.0
    while process.poll() is None:
        samples.append(sum(pss(pid) for pid in tree(process.pid)))
        busy = max(busy, sum(processor(pid) for pid in tree(process.pid)))
        if stop():
            process.kill()
        time.sleep(0.25)
    seconds = time.perf_counter() - begun
    text = process.stdout.read() if process.stdout else ""
    tenth = max(1, len(samples) // 10)
    memory = [max(samples[at : at + tenth]) >> 20 for at in range(0, len(samples), tenth)][:10]
    return {"rc": process.returncode, "seconds": seconds, "cores": busy / seconds, "memory": memory, "text": text}


def tree(pid: int) -> list[int]:
    """Return a process and all below it."""
    try:
        below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(other for child in below for other in tree(int(child)))]


def pss(pid: int) -> int:
    """Return the bytes of memory of a process, shared pages by parts."""
    try:
        found = re.search(r"^Pss:\s+(\d+)", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0
    return int(found[1]) << 10 if found else 0


def processor(pid: int) -> float:
    """Return the seconds of processor time of a process."""
    try:
        numbers = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(numbers[11]) + int(numbers[12])) / os.sysconf("SC_CLK_TCK")


def store_of(output: Path) -> Path:
    return next(output.glob("*/regions/features.h5"))


def different(first: Path, second: Path) -> int:
    """Return how many records of two stores differ."""
    with h5py.File(first) as one, h5py.File(second) as other:
        left, right = ({n: f["sets/boxes"][n][:] for n in ("ids", "checksums")} for f in (one, other))
    checksums = dict(zip(right["ids"], right["checksums"], strict=True))
    return sum(checksums.get(n) != c for n, c in zip(left["ids"], left["checksums"], strict=True))


@torch.inference_mode()
def network(root: Path, count: int) -> dict[str, Any]:
    """Time the forward passes on at most 8,192 pictures, in batches as extraction cuts them."""
    extractor: Extractor = build("extractors", EXTRACTOR)
    files = [(path.stem, path) for path in sorted(root.glob("images/*/*.jpg"))[: min(count, 8192)]]
    items = [item for job in jobs_of(files, {}) if isinstance(item := prepare(job, extractor.preparation), Prepared)]
    begun = time.perf_counter()
    for at in range(0, len(items), extractor.batch_size):
        extractor.extract(items[at : at + extractor.batch_size])
    return {"seconds": (time.perf_counter() - begun) * count / len(items)}


def killed(root: Path, output: Path, seconds: float) -> dict[str, Any]:
    """Kill the extraction at shares of an undisturbed run's time, and run it to the end."""
    total, last = 0.0, 0.0
    for share in KILLS:
        due = time.perf_counter() + (share - last) * seconds
        total += watched(start(root, output), lambda due=due: time.perf_counter() > due)["seconds"]
        last = share
    done = watched(start(root, output))
    return done | {"seconds": total + done["seconds"]}


def full(root: Path, output: Path, needed: int) -> dict[str, Any]:
    """Extract to a disk of half the bytes that are needed, make it larger, and go on."""
    output.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={needed // 2}", "tmpfs", str(output)], check=True)
    stopped = watched(start(root, output))
    print(f"  a full disk: exit code {stopped['rc']}")
    print("  " + "\n  ".join(stopped["text"].strip().splitlines()[-6:]))
    subprocess.run(["mount", "-o", f"remount,size={needed * 2}", str(output)], check=True)
    done = watched(start(root, output))
    return done | {"seconds": stopped["seconds"] + done["seconds"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--folder", type=Path, help="for pictures and stores; default: a temporary folder")
    parser.add_argument("--rows", default="network,folder,processes,shards,killed,full")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        root, outputs = Path(temporary), Path(temporary, "runs")
        draw(root, options.count)
        reference, seconds = None, 0.0
        print("| row | pictures a second | cores | memory in ten parts, MB | store, MB | records that differ |")
        print("| --- | --- | --- | --- | --- | --- |")
        for name in options.rows.split(","):
            output = outputs / name
            if name == "network":
                row = network(root, options.count)
            elif name == "killed":
                row = killed(root, output, seconds)
            elif name == "full":
                row = full(root, output, 2 * store_of(outputs / "folder").stat().st_size)
            elif name == "processes":
                row = watched(start(root, output, "folder", "--processes", "2"))
            else:
                row = watched(start(root, output, name))
            if row.get("rc"):
                sys.exit(f"{name}: exit code {row['rc']}\n{row['text'][-2000:]}")
            cells = [name, f"{options.count / row['seconds']:.0f}", f"{row.get('cores', 0):.2f}"]
            cells.append(", ".join(map(str, row.get("memory", []))))
            if name != "network":
                store = store_of(output)
                reference, seconds = reference or store, seconds or row["seconds"]
                cells += [f"{store.stat().st_size / 1e6:.0f}", str(different(reference, store))]
                told = [line for line in row["text"].splitlines() if "the store will take" in line]
                print(*(f"  {name}: {line}" for line in told), sep="\n", end="\n" if told else "")
            print("| " + " | ".join(cells) + " |", flush=True)
            if name == "full":
                subprocess.run(["umount", str(output)], check=True)


if __name__ == "__main__":
    main()
