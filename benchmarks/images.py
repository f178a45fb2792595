"""Loading JPEG files for training: vlcli beside torch's DataLoader, webdataset, datasets and LitData.

    python benchmarks/images.py [--images 2000] [--side 500 375] [--batch 64] [--workers 2] [--rounds 3] [--kill]

Every loader reads the same drawn pictures, cuts a random part, resizes it to 224 pixels by bicubic interpolation,
mirrors half and normalises; the peers by torchvision's transforms on Pillow's images. Each runs in a process of its
own, in turns. Printed are medians: images a second of the first and the second epoch, memory of all its processes
(PSS), and with ``--kill`` the examples lost and repeated where a reader is killed in the middle of an epoch and goes on
from what it saved after each batch. A package that is not installed is left out:
pip install torchvision webdataset datasets litdata
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

SIDE = 224
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def draw(root: Path, count: int, size: tuple[int, int]) -> None:
    """Write smooth pictures with some noise, as folders of classes and as two tar shards."""
    rng = np.random.default_rng(0)
    for number in range(count):
        small = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8))
        pixels = np.asarray(small.resize(size, Image.Resampling.BICUBIC), np.int16)
        pixels = np.clip(pixels + rng.integers(-12, 13, pixels.shape), 0, 255).astype(np.uint8)
        path = root / f"images/{number % 10}/{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(path, quality=88)
    for half in range(2):
        with tarfile.open(root / f"shard-{half}.tar", "w") as shard:
            for path in sorted(root.glob("images/*/*.jpg"))[half::2]:
                shard.add(path, path.name)


class Given(NamedTuple):
    """What every loader is given: folder, examples a batch, processes."""

    root: Path
    batch: int
    workers: int


Batches = Iterable[tuple[list[int], Any]]
"""The numbers of a batch's pictures; the loader's state after the batch, as JSON, or None."""
Start = Callable[[Given, int, Any], Batches]
"""The batches of an epoch (counted from 0), from a saved state on."""


def transform() -> Callable[[Image.Image], torch.Tensor]:
    """The peers' transform."""
    from torchvision import transforms as T

    bicubic = T.InterpolationMode.BICUBIC
    cut = T.RandomResizedCrop(SIDE, interpolation=bicubic)
    return T.Compose([cut, T.RandomHorizontalFlip(), T.ToTensor(), T.Normalize(MEAN, STD)])


def in_vlcli() -> Start:
    """The pipeline of vlcli with the transform ``imagenet``; batches of an epoch can be passed over."""
    from vlcli import registry
    from vlcli.builders.readers import build_reader
    from vlcli.data.pipeline import Pipeline
    from vlcli.data.transforms import Transform, TransformInput
    from vlcli.nn.model import InputSpec

    needs = InputSpec(pixels=True, size=(SIDE, SIDE), mean=MEAN, std=STD)
    spec = {"name": "imagenet", "augment": "", "jitter": 0.0, "erasing": 0.0}
    cut = registry.of(Transform).build(spec, needs)
    cut.train(TransformInput(Image.new("RGB", (SIDE, SIDE))), np.random.default_rng())  # imports timm
    pipelines: dict[Path, Pipeline] = {}

    def start(given: Given, epoch: int, state: Any) -> Iterator[tuple[list[int], Any]]:
        if given.root not in pipelines:
            reader = build_reader({"name": "folder", "images": "images", "label": True}, given.root)
            pipelines[given.root] = Pipeline([reader], needs=needs, transform=cut, training=True)
        options = {"shuffle": True, "epoch": epoch, "workers": given.workers, "start_batch": state or 0}
        for number, batch in enumerate(pipelines[given.root].loader(given.batch, **options), (state or 0) + 1):
            yield [int(Path(key).stem) for key in batch.keys], number

    return start


class Files(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """The pictures for torch's DataLoader."""

    def __init__(self, root: Path) -> None:
        self.paths, self.change = sorted(root.glob("images/*/*.jpg")), transform()

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        with Image.open(self.paths[number]) as image:
            return self.change(image.convert("RGB")), int(self.paths[number].stem)


def in_torch() -> Start:
    """The DataLoader of torch; it saves no state."""
    loaders: dict[Path, Any] = {}

    def start(given: Given, _epoch: int, _state: Any) -> Iterator[tuple[list[int], Any]]:
        if given.root not in loaders:
            options: dict[str, Any] = {"num_workers": given.workers, "persistent_workers": given.workers > 0}
            loaders[given.root] = torch.utils.data.DataLoader(Files(given.root), given.batch, shuffle=True, **options)
        yield from ((numbers.tolist(), None) for _, numbers in loaders[given.root])

    return start


def in_webdataset() -> Start:
    """The pipeline of webdataset on two tar shards; it saves no state."""
    import webdataset

    change = transform()
    made: dict[Path, Any] = {}

    def start(given: Given, _epoch: int, _state: Any) -> Iterator[tuple[list[int], Any]]:
        if given.root not in made:
            shards = str(given.root / "shard-{0..1}.tar")
            data = webdataset.WebDataset(shards, shardshuffle=2).shuffle(1000).decode("pil").to_tuple("jpg", "__key__")
            data = data.map_tuple(change, int).batched(given.batch)
            made[given.root] = webdataset.WebLoader(data, batch_size=None, num_workers=given.workers)
        yield from ((torch.as_tensor(numbers).tolist(), None) for _, numbers in made[given.root])

    return start


def in_datasets() -> Start:
    """An image folder of datasets with a transform, in torch's DataLoader; it saves no state of a shuffled one."""
    import datasets

    change = transform()
    made: dict[Path, Any] = {}

    def decode(rows: dict[str, list[Any]]) -> dict[str, list[Any]]:
        return {"pixels": [change(image.convert("RGB")) for image in rows["image"]], "number": rows["number"]}

    def start(given: Given, _epoch: int, _state: Any) -> Iterator[tuple[list[int], Any]]:
        if given.root not in made:
            paths = sorted(given.root.glob("images/*/*.jpg"))
            rows = {"image": list(map(str, paths)), "number": [int(path.stem) for path in paths]}
            data = datasets.Dataset.from_dict(rows).cast_column("image", datasets.Image()).with_transform(decode)
            options: dict[str, Any] = {"num_workers": given.workers, "persistent_workers": given.workers > 0}
            made[given.root] = torch.utils.data.DataLoader(data, given.batch, shuffle=True, **options)
        yield from ((batch["number"].tolist(), None) for batch in made[given.root])

    return start


def in_litdata() -> Start:
    """LitData's chunks of the JPEG files, which it writes before; its loader saves a state."""
    import litdata

    change = transform()

    class Streamed(litdata.StreamingDataset):  # type: ignore[misc]
        def __getitem__(self, index: Any) -> Any:
            row = super().__getitem__(index)
            with Image.open(io.BytesIO(row["jpeg"])) as image:
                return change(image.convert("RGB")), row["number"]

    made: dict[Path, Any] = {}

    def start(given: Given, _epoch: int, state: Any) -> Iterator[tuple[list[int], Any]]:
        if given.root not in made:
            data = Streamed(str(given.root / "litdata"), shuffle=True, seed=0)
            options = {"batch_size": given.batch, "num_workers": given.workers}
            made[given.root] = litdata.StreamingDataLoader(data, **options)
        if state:
            made[given.root].load_state_dict(state)
        for _, numbers in made[given.root]:
            yield torch.as_tensor(numbers).tolist(), made[given.root].state_dict()

    return start


def row_of(path: str) -> dict[str, Any]:
    """A row of LitData's chunks."""
    return {"jpeg": Path(path).read_bytes(), "number": int(Path(path).stem)}


def write_chunks(root: Path) -> None:
    """Write the pictures as LitData's chunks."""
    import litdata

    paths = [str(path) for path in sorted(root.glob("images/*/*.jpg"))]
    litdata.optimize(row_of, paths, output_dir=str(root / "litdata"), num_workers=1, chunk_bytes="32MB")


LOADERS: dict[str, Callable[[], Start]] = {
    "vlcli": in_vlcli,
    "torch": in_torch,
    "webdataset": in_webdataset,
    "datasets": in_datasets,
    "litdata": in_litdata,
}


class Memory(threading.Thread):
    """Watches the memory that this process and its children hold, shared pages counted once."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most = 0

    def run(self) -> None:
        """Look four times a second."""
        while True:
            self.most = max(self.most, sum(map(_pss, [os.getpid(), *_children()])))
            time.sleep(0.25)


def _children() -> list[int]:
    tasks = Path("/proc/self/task")
    return [int(pid) for task in tasks.iterdir() for pid in (task / "children").read_text().split()]


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def measure(start: Start, given: Given) -> dict[str, Any]:
    """Rates of two epochs, and the memory."""
    memory = Memory()
    memory.start()
    rates = []
    for epoch in range(2):
        began = time.perf_counter()
        seen = [number for numbers, _ in start(given, epoch, None) for number in numbers]
        rates.append(len(seen) / (time.perf_counter() - began))
    return {"rates": rates, "memory": memory.most, "different": len(set(seen)), "seen": len(seen)}


def note(start: Start, given: Given, log: Path, saved: Path) -> None:
    """Read an epoch; after every batch note its pictures, then the state."""
    before = json.loads(saved.read_text()) if saved.exists() else None
    for numbers, state in start(given, 0, before):
        with log.open("a") as file:
            file.write(json.dumps(numbers) + "\n")
        if state is not None:
            saved.with_suffix(".new").write_text(json.dumps(state))
            saved.with_suffix(".new").replace(saved)


def killed(command: list[str], log: Path, total: int) -> tuple[int, int]:
    """Kill a reader in the middle of an epoch, begin again; examples lost, and read twice."""
    running = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < total // 2):
        time.sleep(0.02)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    counts = Counter(number for line in log.read_text().splitlines() for number in json.loads(line))
    return len(counts), counts.total() - len(counts)


def main() -> None:
    """Print a row for each loader."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--side", type=int, nargs=2, default=(500, 375), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kill", action="store_true", help="kill each in the middle of an epoch, and go on")
    parser.add_argument("--one", choices=LOADERS, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        torch.set_num_threads(1)
        start, what = LOADERS[given.one](), Given(given.root, given.batch, given.workers)
        if given.log:
            note(start, what, given.log, given.log.with_suffix(".state"))
        else:
            print(json.dumps(measure(start, what)))
        return
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        draw(root, given.images, tuple(given.side))
        names = [name for name in LOADERS if name == "vlcli" or importlib.util.find_spec(name) is not None]
        if "litdata" in names:
            write_chunks(root)
        size = shutil.disk_usage(root).total and sum(path.stat().st_size for path in root.rglob("*.jpg")) >> 10
        print(f"{given.images:,} JPEG files of {given.side[0]} x {given.side[1]}, {size / given.images:.0f} KB each")
        options = ["--batch", str(given.batch), "--workers", str(given.workers), "--root", str(root)]
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
        for _ in range(given.rounds):
            for name in names:
                command = [sys.executable, __file__, "--one", name, *options]
                rows[name].append(json.loads(subprocess.check_output(command, text=True).splitlines()[-1]))
        for name, some in rows.items():
            first, second = (statistics.median(row["rates"][epoch] for row in some) for epoch in range(2))
            memory = statistics.median(row["memory"] for row in some) / 2**20
            line = f"{name:12} epoch 1 {first:6.0f}, epoch 2 {second:6.0f} images/s, {memory:5.0f} MB"
            line += f", {given.images - some[-1]['different']} of an epoch not read" * (
                some[-1]["different"] != given.images
            )
            if given.kill:
                log = root / f"{name}.log"
                command = [sys.executable, __file__, "--one", name, *options, "--log", str(log)]
                known, again = killed(command, log, given.images // given.batch)
                line += f"; killed: {given.images - known} lost, {again} repeated"
            print(line, flush=True)


if __name__ == "__main__":
    main()
