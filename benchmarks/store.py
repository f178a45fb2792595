"""Read random records of 36 x 2048 float16: the feature store beside a raw numpy memory map and others.

    python benchmarks/store.py [--images 2000] [--rounds 5]

Everything is timed interleaved in one run, on a warm cache. Rows of the table are ratios of bytes per second
to the memory map's (1.00); the loader rows are both read by a DataLoader with 2 workers. Below it: opening a
store of 100,000 images, time and memory added.
"""

from __future__ import annotations

import argparse
import base64
import csv
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from vlcli.features import FeatureStore, FeatureWriter, Record

BOXES, DIM, BATCH, WORKERS = 36, 2048, 32, 2

OPEN = """
import sys, time
import h5py, numpy
from vlcli.features import FeatureStore


def resident():
    # The kernel's counter of getrusage survives exec and would hide what is added here.
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


before = resident()
start = time.perf_counter()
store = FeatureStore(sys.argv[1])
store.read(store.ids[77777])
seconds = time.perf_counter() - start
print(len(store), seconds, (resident() - before) / 1024)
"""


class MapRecords(Dataset[Tensor]):
    """What one would write by hand: one raw array, one slice per item."""

    def __init__(self, path: Path, count: int) -> None:
        self.path, self.count = path, count
        self.rows: np.memmap | None = None

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Tensor:
        if self.rows is None:
            self.rows = np.memmap(self.path, np.float16, "r", shape=(self.count, BOXES, DIM))
        return torch.from_numpy(np.array(self.rows[index]))


class StoreRecords(Dataset[Tensor]):
    """The store as the training data set uses it: by image id."""

    def __init__(self, path: Path) -> None:
        self.store = FeatureStore(path)
        self.ids: list[str] = []

    def __len__(self) -> int:
        return len(self.store)

    def __getitem__(self, index: int) -> Tensor:
        self.ids = self.ids or self.store.ids
        return torch.from_numpy(self.store.read(self.ids[index], fields=()).features)


def make(folder: Path, count: int) -> None:
    """The same values as a store, a raw array, and (a tenth of them) an obj36 TSV."""
    rng = np.random.default_rng(0)
    raw = np.memmap(folder / "raw.bin", np.float16, "w+", shape=(count, BOXES, DIM))
    box = np.tile(np.array([[0, 0, 640, 480]], np.float32), (BOXES, 1))
    with FeatureWriter(folder / "f.h5") as writer, (folder / "obj36.tsv").open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t")
        for number in range(count):
            features = rng.standard_normal((BOXES, DIM), dtype=np.float32)
            raw[number] = features
            writer.append(Record(f"{number:012d}", features, box, (480, 640)))
            if number < count // 10:
                texts = [base64.b64encode(array.tobytes()).decode() for array in (box, features)]
                table.writerow([f"{number:012d}", 480, 640, BOXES, *texts])
    raw.flush()


def read_tsv(path: Path) -> int:
    """Bytes of features read from an obj36 file the way the field does: the whole file, base64 by line."""
    csv.field_size_limit(sys.maxsize)
    with path.open() as file:
        rows = [np.frombuffer(base64.b64decode(row[5]), np.float32) for row in csv.reader(file, delimiter="\t")]
    return sum(row.nbytes for row in rows) // 2  # float32 there, float16 here


def loops(folder: Path, count: int) -> dict[str, Callable[[list[int]], object]]:
    """Named ways of filling one tensor with 32 records."""
    raw = np.memmap(folder / "raw.bin", np.float16, "r", shape=(count, BOXES, DIM))
    store = FeatureStore(folder / "f.h5")
    ids = store.ids
    slow = h5py.File(folder / "f.h5", "r")["sets/boxes/features"]
    target = torch.empty(BATCH, BOXES, DIM, dtype=torch.float16).numpy()
    # One target for all: a buffer that the way before has just touched lies in the cache.
    buffers = {**store.read_batch(ids[:BATCH], fields=("features",)), "features": target}

    def by_map(batch: list[int]) -> None:
        for row, index in enumerate(batch):
            target[row] = raw[index]

    def by_store(batch: list[int]) -> None:
        store.read_batch([ids[index] for index in batch], ("features",), out=buffers)

    def by_record(batch: list[int]) -> None:
        for row, index in enumerate(batch):
            target[row] = store.read(ids[index], fields=(), copy=False).features

    def by_h5py(batch: list[int]) -> None:
        for row, index in enumerate(batch):
            target[row] = slow[index * BOXES : (index + 1) * BOXES]

    return {
        "memory map, 32 into a tensor": by_map,
        "store.read_batch": by_store,
        "store.read, record by record": by_record,
        "h5py, record by record": by_h5py,
    }


def time_loops(ways: dict[str, Callable[[list[int]], object]], count: int, rounds: int) -> dict[str, float]:
    """Bytes per second of each way, by its median batch; the ways take turns at every batch."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    random = np.random.default_rng(1)
    for number in range(rounds + 1):
        order = random.permutation(count)
        for first in range(0, count - BATCH + 1, BATCH):
            batch = order[first : first + BATCH].tolist()
            for way, read in ways.items():
                start = time.perf_counter()
                read(batch)
                if number:  # the first round warms the cache
                    seconds[way].append(time.perf_counter() - start)
    return {way: BATCH * BOXES * DIM * 2 / float(np.median(values)) for way, values in seconds.items()}


def time_epochs(ways: dict[str, Callable[[], int]], rounds: int) -> dict[str, float]:
    """Bytes per second of whole passes, taking turns, by the best pass (neighbours only ever slow one down)."""
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(rounds + 1):
        for way, read in ways.items():
            start = time.perf_counter()
            size = read()
            if number:  # the first round starts the workers
                speeds[way].append(size / (time.perf_counter() - start))
    return {way: max(values) for way, values in speeds.items()}


def loader(data: Dataset[Tensor], size: int) -> Callable[[], int]:
    """An epoch through a DataLoader whose workers stay."""
    feed = DataLoader(
        data, BATCH, shuffle=True, num_workers=WORKERS, drop_last=True, persistent_workers=True, prefetch_factor=4
    )

    def epoch() -> int:
        for batch in feed:
            assert batch.shape[0] == BATCH
        return size

    return epoch


def opening(folder: Path) -> str:
    """Open a store of 100,000 images in a fresh process."""
    with FeatureWriter(folder / "many.h5", flush_every=20_000) as writer:
        features, box = np.zeros((36, 4), np.float16), np.tile(np.array([[0, 0, 9, 9]], np.float32), (36, 1))
        for number in range(100_000):
            writer.append(Record(f"COCO_train2014_{number:012d}", features, box, (480, 640)))
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(folder / "many.h5")], capture_output=True, text=True, check=True
    )
    count, seconds, added = done.stdout.split()
    return f"opening {count} images and reading one: {float(seconds):.2f} s, {float(added):.0f} MiB added"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    args = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, args.images)
        speeds = time_loops(loops(folder, args.images), args.images, args.rounds)
        size = args.images // BATCH * BATCH * BOXES * DIM * 2
        epochs = {
            "memory map, DataLoader": loader(MapRecords(folder / "raw.bin", args.images), size),
            "store, DataLoader": loader(StoreRecords(folder / "f.h5"), size),
            "obj36 TSV, whole file": lambda: read_tsv(folder / "obj36.tsv"),
        }
        table(speeds | time_epochs(epochs, args.rounds))
        print(opening(folder))


def table(speeds: dict[str, float]) -> None:
    """Print the speeds and their ratios to the memory map read the same way."""
    print(f"{'way':32} {'GB/s':>6} {'ratio':>6}")
    for way, value in speeds.items():
        base = "memory map, DataLoader" if way.endswith("DataLoader") else "memory map, 32 into a tensor"
        print(f"{way:32} {value / 1e9:6.2f} {value / speeds[base]:6.2f}")


if __name__ == "__main__":
    main()
