"""A training step on an idle and on a busy machine: one thread, two, and as many as vlcli chooses; with and without
the allocator's thresholds.

    python benchmarks/busy.py --rounds 5

The step is that of a transformer encoder (``--hidden``, ``--layers``) with a vocabulary of 30,522, forward, backward
and AdamW. Each figure is the median wall time of a step over all rounds, in which the variants take turns; a second
process keeps one core busy in the second half. Goals: two threads 1.5 times as fast as one on two idle cores, and at no
load slower than one by more than 10 %.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from vlcli.cli import WAITS

STEP = """
import json, sys, time
import torch
from torch import nn
from vlcli.engine.allocator import keep_freed_memory
from vlcli.engine.processes import use_threads
threads, hidden, layers, steps, kept = json.loads(sys.argv[1])
threads = use_threads(threads or None)
kept and keep_freed_memory()
layer = nn.TransformerEncoderLayer(hidden, hidden // 64, 4 * hidden, activation="gelu", batch_first=True)
encoder, words = nn.TransformerEncoder(layer, layers), nn.Embedding(30522, hidden)
optimizer = torch.optim.AdamW([*encoder.parameters(), *words.parameters()], 1e-5, fused=True)
ids = torch.randint(30522, (8, 40))
seconds = []
for step in range(steps + 1):
    began = time.perf_counter()
    logits = encoder(words(ids))[:, :10] @ words.weight.T
    nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, :10].flatten()).backward()
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - began)
print(json.dumps([threads, seconds[1:]]))
"""
VARIANTS = {"1 thread": (1, True), "2 threads": (2, True), "vlcli's choice": (0, True), "2, glibc's own": (2, False)}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", type=int, default=768)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep as many cores busy."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def timed(options: argparse.Namespace, threads: int, kept: bool) -> tuple[int, list[float]]:
    """Return the threads of a process and the seconds of its steps, with the waits that vlcli sets."""
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    words = json.dumps([threads, options.hidden, options.layers, options.steps, kept])
    ended = subprocess.run(
        [sys.executable, "-c", STEP, words], env=WAITS | environment, capture_output=True, text=True, check=True
    )
    count, seconds = json.loads(ended.stdout)
    return count, seconds


def main() -> None:
    """Print a table of seconds and of ratios to one thread, for each load."""
    options = arguments()
    for busy in (0, 1):
        steps: dict[str, list[float]] = {name: [] for name in VARIANTS}
        counts: dict[str, set[int]] = {name: set() for name in VARIANTS}
        with load(busy):
            for _ in range(options.rounds):
                for name, (threads, kept) in VARIANTS.items():
                    count, seconds = timed(options, threads, kept)
                    counts[name].add(count)
                    steps[name] += seconds
        print(f"{busy} of {os.cpu_count()} cores busy")
        one = statistics.median(steps["1 thread"])
        for name, seconds in steps.items():
            middle, used = statistics.median(seconds), " or ".join(map(str, sorted(counts[name])))
            print(f"  {name:<16}{used:>6} thread(s)  {middle:7.3f} s  {middle / one:5.2f} of one thread")


if __name__ == "__main__":
    main()
