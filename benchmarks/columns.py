"""Examples as columns: time, memory, order and resumes at a number of pairs, beside webdataset and datasets.

    python benchmarks/columns.py [--examples 1000000] [--folder FOLDER] [--rivals FOLDER] [--batches 200] [--rounds 3]

Synthetic pairs as JSON lines: an id, a picture's name, nine words. Every system turns sentences into ids by the same
tokenizer and pads batches of 256 in two workers; each row is a process of its own. ``index`` is processor time of
whatever the system makes before its first batch (columns with the sentences' ids; an Arrow table; tar shards),
``restart`` the wall time of a new process to its first batch, imports left out, ``memory`` the summed proportional
memory (PSS) of the trainer and two workers after the batches, less that of the same processes over 20,000 pairs,
``resume`` the longest time to the first batch of a resumed epoch, less that to the epoch's first. The systems take
turns in ``--rounds`` rounds: medians, and the ratio of pairs a second to the first system's of the same round. Rivals
are measured where ``--rivals`` names a folder that holds them (``pip install --target FOLDER webdataset datasets``);
vlcli does not depend on them. What was made in ``--folder`` is kept and found again, and with it the time that it took;
without it everything is in a temporary folder. ``--parts`` runs some of the tables alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_WORDS = "a the red green blue man woman dog horse street above below left right of is on near holding riding"
WORDS = _WORDS.split()
BATCH, LENGTH, FEW = 256, 20, 20_000
PARTS = ("systems", "formats", "resume", "order")
SYSTEMS = ("vlcli", "memory", "datasets", "datasets-iterable", "webdataset")


def make_pairs(folder: Path, count: int) -> Path:
    """``train.jsonl`` with so many pairs."""
    import numpy as np

    file = folder / "train.jsonl"
    if file.is_file():
        return file
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with file.with_suffix(".part").open("w") as out:
        for first in range(0, count, 10_000):
            picks = rng.integers(len(WORDS), size=(min(10_000, count - first), 9)).tolist()
            for number, row in enumerate(picks, first):
                text = " ".join([WORDS[word] for word in row])
                picture = f"{number // 10_000:05d}/{number:09d}.jpg"
                out.write(f'{{"id": "p{number}", "image": "{picture}", "text": "{text}"}}\n')
    file.with_suffix(".part").replace(file)
    return file


def tokenizer() -> Any:
    """A vocabulary of the words and their letters."""
    from vlcli.data.vocabulary import Tokenizer

    return Tokenizer.train(WORDS * 3, 200)


def pipeline(folder: Path, cached: bool = True) -> Any:
    """Our data: sentences alone, as a model of text reads them."""
    from vlcli.data.pipeline import Pipeline
    from vlcli.data.readers.generic import JsonLines
    from vlcli.nn.model import InputSpec

    reader = JsonLines(folder)
    reader.cache = folder / "columns" if cached else None
    return Pipeline([reader], needs=InputSpec(text=True), tokenizer=tokenizer(), length=LENGTH, seed=3)


class Padded:
    """What the rivals' batches become: ids and a mask."""

    def __init__(self) -> None:
        self.tokenizer = tokenizer()

    def __call__(self, rows: list[dict[str, Any]]) -> Any:
        """Pads what the same tokenizer makes of the sentences."""
        from vlcli.data.collate import collate_texts

        found = [row["text"] if isinstance(row, dict) else row for row in rows]
        return collate_texts([self.tokenizer.encode(text, "", LENGTH) for text in found])


def batches_of(system: str, folder: Path, workers: int, start: int = 0) -> Iterator[Any]:
    """An epoch's batches, shuffled."""
    if system in ("vlcli", "memory"):
        data = pipeline(folder, system == "vlcli")
        yield from data.loader(BATCH, shuffle=True, epoch=1, start_batch=start, workers=workers)
        return
    import torch

    options = {"batch_size": BATCH, "num_workers": workers, "collate_fn": Padded()}
    if system == "webdataset":
        import webdataset as wds

        shards = sorted(map(str, (folder / "shards").glob("*.tar")))
        data = wds.WebDataset(shards, shardshuffle=len(shards), seed=3).shuffle(10_000).decode().map(_caption)
        yield from torch.utils.data.DataLoader(data, **options)
        return
    import datasets

    datasets.disable_progress_bars()
    table = datasets.load_dataset(
        "json", data_files=str(folder / "train.jsonl"), cache_dir=str(folder / "arrow"), split="train"
    )
    if system == "datasets":
        yield from torch.utils.data.DataLoader(table, shuffle=True, **options)
    else:
        stream = table.to_iterable_dataset(num_shards=64).shuffle(3, buffer_size=10_000)
        yield from torch.utils.data.DataLoader(stream, **options)


def _caption(row: dict[str, Any]) -> dict[str, Any]:
    return {"text": row["txt"]}


def prepare(system: str, folder: Path) -> None:
    """Whatever a system makes before its first batch."""
    if system == "vlcli":
        pipeline(folder)
    elif system == "webdataset":
        _make_shards(folder)
    elif system.startswith("datasets"):
        next(batches_of("datasets", folder, 0))


def _make_shards(folder: Path) -> None:
    """Shards of 10,000 pairs, sentences alone, in order."""
    import webdataset as wds

    (folder / "shards").mkdir(exist_ok=True)
    if any((folder / "shards").iterdir()):
        return
    with wds.ShardWriter(str(folder / "shards" / "%06d.tar"), maxcount=10_000, verbose=0) as writer:
        for line in (folder / "train.jsonl").open():
            row = json.loads(line)
            writer.write({"__key__": row["id"], "txt": row["text"]})


def pss() -> float:
    """Proportional memory of this process and its children, MB."""
    own = os.getpid()
    children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
    total = 0
    for process in (str(own), *children):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            total += int(line.split()[1]) if line.startswith("Pss:") else 0
    return total / 1024


def measure(system: str, folder: Path, batches: int) -> dict[str, float]:
    """One system: index, then first batch, throughput and memory. Runs in a process of its own."""
    import torch

    import vlcli.data.pipeline  # noqa: F401  # imports are not what is measured

    torch.set_num_threads(1)
    begun, cpu = time.perf_counter(), time.process_time()
    prepare(system, folder)
    found = {"index": time.process_time() - cpu, "index_wall": time.perf_counter() - begun}
    return found | _epoch(system, folder, batches)


def _epoch(system: str, folder: Path, batches: int) -> dict[str, float]:
    begun = time.perf_counter()
    source = batches_of(system, folder, 2)
    next(source)
    first = time.perf_counter()
    count = sum(1 for _, _ in zip(range(batches), source, strict=False))
    spent = time.perf_counter() - first
    return {"restart": first - begun, "rate": count * BATCH / spent, "pss": pss()}


def resumes(folder: Path) -> dict[str, float]:
    """The longest time to the first batch of a resumed epoch, less that to the epoch's first."""
    total = -(-len(pipeline(folder)) // BATCH)
    times = []
    for start in (0, 1, total // 2, total - 1):
        begun = time.perf_counter()
        next(batches_of("vlcli", folder, 0, start))
        times.append(time.perf_counter() - begun)
    return {"resume": max(times[1:]) - times[0]}


def write_order(folder: Path, rank: int, world: int, workers: int, start: int, stop: int, out: Path) -> None:
    """Keys of this process's share of batches, a line each, as they come."""
    loader = pipeline(folder).loader(
        BATCH, shuffle=True, epoch=1, start_batch=start, rank=rank, world=world, workers=workers
    )
    with out.open("a") as file:
        for number, batch in zip(range(start, stop), loader, strict=False):
            file.write(json.dumps([number, batch.keys]) + "\n")
            file.flush()


def orders(folder: Path, child: Callable[..., list[str]], batches: int = 120) -> dict[str, str]:
    """The digest of the order of the first batches by processes and workers, and after three kills."""
    return {
        **{f"{world} processes, {workers} workers": _digest(folder, child, world, workers, batches)
           for world, workers in ((1, 0), (2, 1), (4, 0), (1, 3))},
        "three kills": _killed(folder, child, batches),
    }  # fmt: skip


def _digest(folder: Path, child: Callable[..., list[str]], world: int, workers: int, batches: int) -> str:
    with tempfile.TemporaryDirectory() as place:
        files = [Path(place) / f"{rank}" for rank in range(world)]
        running = [
            subprocess.Popen(child("order", folder, rank, world, workers, 0, batches, file))
            for rank, file in enumerate(files)
        ]
        for one in running:
            if one.wait():
                raise SystemExit("a process failed")
        shares = [[json.loads(line)[1] for line in file.read_text().splitlines()] for file in files]
    merged = []
    for parts in zip(*shares, strict=True):
        row: list[Any] = [None] * sum(map(len, parts))
        for rank, part in enumerate(parts):
            row[rank::world] = part
        merged.append(row)
    return hashlib.sha256(json.dumps(merged).encode()).hexdigest()[:16]


def _killed(folder: Path, child: Callable[..., list[str]], batches: int) -> str:
    """One process that is killed three times on its way, each time resumed behind its last whole batch."""
    with tempfile.TemporaryDirectory() as place:
        file, kept = Path(place) / "run", list[Any]()
        for stop in (batches // 4, batches // 2, 3 * batches // 4, None):
            file.unlink(missing_ok=True)
            running = subprocess.Popen(child("order", folder, 0, 1, 1, len(kept), batches, file))
            while running.poll() is None:
                if stop is not None and len(kept) + len(_lines(file)) >= stop:
                    running.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.01)
            running.wait()
            kept += _lines(file)
        return hashlib.sha256(json.dumps(kept[:batches]).encode()).hexdigest()[:16]


def _lines(file: Path) -> list[Any]:
    """Whole lines that were written so far."""
    text = file.read_text() if file.is_file() else ""
    return [json.loads(line)[1] for line in text.split("\n")[:-1]]


def read_at_random(kind: str, folder: Path, reads: int = 100_000) -> dict[str, float]:
    """Microseconds an example drawn at random, and what the reads leave in this process's memory: one format."""
    import numpy as np

    found = pipeline(folder).dataset.all if kind == "columns" else _arrow(folder)
    rows = np.random.default_rng(0).integers(0, len(found), reads).tolist()
    before, begun = pss(), time.process_time()
    for row in rows:
        found[row]
    spent = time.process_time() - begun
    return {"microseconds": spent / reads * 1e6, "pss": pss() - before}


class _arrow:  # noqa: N801  # stands where a sequence does
    """The same examples in an Arrow IPC file, mapped into memory."""

    def __init__(self, folder: Path) -> None:
        import pyarrow as pa

        file = folder / "examples.arrow"
        if not file.is_file():
            rows = [(one.key, one.text, one.images) for one in pipeline(folder).examples]
            columns = dict(zip(("key", "text", "images"), map(list, zip(*rows, strict=True)), strict=True))
            with pa.OSFile(str(file), "wb") as sink:
                written = pa.table(columns)
                with pa.ipc.new_file(sink, written.schema) as out:
                    out.write_table(written)
        self._columns = pa.ipc.open_file(pa.memory_map(str(file))).read_all().columns

    def __len__(self) -> int:
        return len(self._columns[0])

    def __getitem__(self, row: int) -> Any:
        from vlcli.data import Example

        return Example(*(column[row].as_py() for column in self._columns))


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, default=1_000_000)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--rivals", type=Path, default=None)
    parser.add_argument("--systems", nargs="*", default=SYSTEMS)
    parser.add_argument("--child", nargs="*", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return _child(options.child)
    place = options.folder or Path(tempfile.mkdtemp())
    try:
        table(options, place)
    finally:
        if options.folder is None:
            shutil.rmtree(place)


def _child(given: list[str]) -> None:
    kind, folder, *rest = given
    if kind == "order":
        rank, world, workers, start, stop = map(int, rest[:5])
        write_order(Path(folder), rank, world, workers, start, stop, Path(rest[5]))
    elif kind == "formats":
        print(json.dumps(read_at_random(rest[0], Path(folder))))
    elif kind == "resumes":
        print(json.dumps(resumes(Path(folder))))
    else:
        print(json.dumps(measure(kind, Path(folder), int(rest[0]))))


def table(options: argparse.Namespace, place: Path) -> None:
    """All systems over so many pairs, and what their processes take over few."""
    environment = {**os.environ, "VLCLI_COLUMNS_MB": "0", "HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
    if options.rivals:
        environment["PYTHONPATH"] = str(options.rivals)

    def child(*words: Any) -> list[str]:
        os.environ.update(environment)
        return [sys.executable, __file__, "--child", *map(str, words)]

    def asked(*words: Any) -> dict[str, float]:
        found = subprocess.run(child(*words), stdout=subprocess.PIPE, check=True, text=True)
        return json.loads(found.stdout.splitlines()[-1])

    few, many = place / f"{FEW}", place / f"{options.examples}"
    make_pairs(few, FEW)
    make_pairs(many, options.examples)
    if "systems" in options.parts:
        systems = [name for name in options.systems if options.rivals or name in ("vlcli", "memory")]
        _print_systems(asked, systems, few, many, options)
    if "formats" in options.parts:
        _print_formats(asked, many, ("columns", "arrow") if options.rivals else ("columns",))
    if "resume" in options.parts:
        print(f"\nresume of vlcli: {asked('resumes', many)['resume']:+.2f} s", flush=True)
    if "order" in options.parts:
        print("\n| order of vlcli | digest |\n| --- | --- |")
        for name, digest in orders(many, child).items():
            print(f"| {name} | {digest} |", flush=True)


def _print_systems(
    asked: Callable[..., dict[str, float]], systems: list[str], few: Path, many: Path, options: argparse.Namespace
) -> None:
    print(f"{options.examples:,} pairs, batches of {BATCH}, two workers\n")
    made = {system: _made(asked, system, many) for system in systems}
    base = {system: asked(system, few, 2)["pss"] for system in systems}
    rounds = [{system: asked(system, many, options.batches) for system in systems} for _ in range(options.rounds)]
    print("| system | index, s | restart, s | memory, MB | pairs a second | to the first's |\n" + "| --- " * 6 + "|")
    for system in systems:
        turns = [turn[system] for turn in rounds]
        found = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
        ratio = statistics.median(turn[system]["rate"] / turn[systems[0]]["rate"] for turn in rounds)
        cells = f"{made[system]:.1f} | {found['index_wall'] + found['restart']:.2f} | {found['pss'] - base[system]:.0f}"
        print(f"| {system} | {cells} | {found['rate']:,.0f} | {ratio:.2f} |", flush=True)


def _made(asked: Callable[..., dict[str, float]], system: str, many: Path) -> float:
    """Seconds of processor time for what a system makes before its first batch, from when it was made."""
    note = many / f"{system}-index.json"
    if not note.is_file():
        note.write_text(json.dumps(asked(system, many, 1)["index"]))
    return float(json.loads(note.read_text()))


def _print_formats(asked: Callable[..., dict[str, float]], many: Path, kinds: tuple[str, ...]) -> None:
    print("\n| examples drawn at random | microseconds | left in memory, MB |\n| --- | --- | --- |")
    for kind in kinds:
        asked("formats", many, kind)  # what is not there yet is made
        read = asked("formats", many, kind)
        print(f"| {kind} | {read['microseconds']:.1f} | {read['pss']:.1f} |", flush=True)


if __name__ == "__main__":
    main()
