"""Text-to-image search over stored vectors beside the bare matrix product.

    python benchmarks/search.py

One million vectors of 256 numbers in a memory-mapped file, 256 queries, the 10 best of each, exact. The bare product
reads the same blocks of the same file and throws the scores away (in blocks of 65,536 rows, for comparison, too). All
in turn; prints the ratio of the medians, and checks that the results are those of a plain top-k for some queries.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from vlcli.metrics.search import block_rows, search


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=256)
    parser.add_argument("--queries", type=int, default=256)
    parser.add_argument("--k", type=int, default=10)
    parser.add_argument("--memory", type=int, default=256, help="MiB")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    draw = torch.Generator().manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        stored = np.memmap(Path(folder) / "vectors", np.float32, "w+", shape=(args.vectors, args.dim))
        for start in range(0, args.vectors, 1 << 16):
            rows = stored[start : start + (1 << 16)]
            rows[:] = torch.nn.functional.normalize(torch.randn(rows.shape, generator=draw), dim=1).numpy()
        queries = torch.nn.functional.normalize(torch.randn(args.queries, args.dim, generator=draw), dim=1)
        rows = block_rows(args.queries, args.dim, args.memory)
        times: tuple[list[float], ...] = ([], [], [])
        for _ in range(args.repeats + 1):
            begun = time.process_time()
            found = search(queries, stored, args.k, memory_mb=args.memory)
            times[0].append(time.process_time() - begun)
            for number, size in ((1, rows), (2, 1 << 16)):
                begun = time.process_time()
                for start in range(0, args.vectors, size):
                    queries @ torch.as_tensor(stored[start : start + size]).T
                times[number].append(time.process_time() - begun)
        plain = (queries[:8] @ torch.as_tensor(stored).T).topk(args.k)
        assert torch.equal(plain.indices, found[1][:8])
    own, bare, large = (statistics.median(values[1:]) for values in times)
    print(f"{args.queries} queries, {args.vectors} vectors of {args.dim}, {args.memory} MiB, {args.threads} thread(s)")
    print(f"search {own:.2f} s, product alone {bare:.2f} s in blocks of {rows}, {large:.2f} s in blocks of 65,536")
    print(f"ratio {own / bare:.3f}")


if __name__ == "__main__":
    main()
