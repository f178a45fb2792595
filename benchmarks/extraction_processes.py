"""Extraction by two processes of this machine (``engine: processes``) beside one network on two threads.

    python benchmarks/extraction_processes.py

Generated pictures, from files to the finished store: those of the quickstart (128 pixels) by five small convolutions
and larger ones (480 x 360) by ResNets, each with a grid of 36 boxes and random weights. One network has two threads and
a worker that decodes, two networks have one thread each. The stores must hold the same within rounding. The two take
turns; prints the seconds of the medians and the ratio.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from vlcli.detection.extraction import extract_images
from vlcli.detection.processes import Processes
from vlcli.features import FeatureStore
from vlcli.progress import Silent
from vlcli.registry import build

CASES = {"tiny-conv": (1500, (128, 128), 0), "resnet18": (60, (480, 360), 360), "resnet50": (30, (480, 360), 360)}


def pictures(folder: Path, count: int, size: tuple[int, int]) -> list[tuple[str, Path]]:
    """Blurred noise: JPEG files of a photograph's size."""
    rng, made = np.random.default_rng(0), []
    for number in range(count):
        noise = Image.fromarray(rng.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8)).resize(size)
        path = folder / f"{number:05}.jpg"
        noise.save(path, quality=90)
        made.append((path.stem, path))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    ways = {"processes": {"cluster": Processes(2, 1, "cpu", Silent())}, "threads": {"workers": 1}}
    for name, (count, size, short) in CASES.items():
        times: dict[str, list[float]] = {way: [] for way in ways}
        spec = {"name": "backbone", "arch": name, "boxes": "grid", "grid": [6, 6], "short": short}
        with tempfile.TemporaryDirectory() as folder:
            images = pictures(Path(folder), count, size)
            for number in range(args.rounds):
                for way, options in ways.items():
                    torch.set_num_threads(1 if way == "processes" else 2)
                    begun, out = time.perf_counter(), Path(folder) / f"{way}{number}.h5"
                    extract_images(images, build("extractors", spec), out, **options)  # type: ignore[arg-type]
                    times[way].append(time.perf_counter() - begun)
            ours, theirs = (FeatureStore(Path(folder) / f"{way}0.h5").read(images[0][0]).features for way in ways)
            np.testing.assert_allclose(ours, theirs, rtol=1e-2, atol=1e-2)
        middle = {way: statistics.median(each) for way, each in times.items()}
        spent = ", ".join(f"{way} {seconds:.2f} s" for way, seconds in middle.items())
        print(f"{name:<10} {spent}  ratio {middle['processes'] / middle['threads']:.2f}")


if __name__ == "__main__":
    main()
