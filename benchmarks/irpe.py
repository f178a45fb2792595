"""What iRPE costs: DeiT with encodings against the same model without, in one interleaved run.

    python benchmarks/irpe.py                      # DeiT-S forward at 224, one thread
    python benchmarks/irpe.py --size 384 --batch 2
    python benchmarks/irpe.py --train
    python benchmarks/irpe.py --memory
    python benchmarks/irpe.py --memory --inference --size 384 --batch 2
    python benchmarks/irpe.py --device cuda --dtype bfloat16 --train --compile

Every round times each model once, in an order that turns; a ratio is the median over rounds of a model's time divided
by the baseline's in the same round. Baselines are the model without encoding on the fused attention and on the explicit
one (softmax written out). ``naive`` is the authors' formulation in plain PyTorch: advanced indexing for keys, and for
values a vector per pair, O(n^2 d). ``flex`` looks the scores of a query or a key up within torch's flex_attention,
which knows no term on values; its outputs and the gradients of its tables are first compared with those of iRPE.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from vlcli.nn import DataSpec, PairwisePosition
from vlcli.registry import register

KEY, BOTH, ALL = ["key"], ["query", "key"], ["query", "key", "value"]


class Explicit(PairwisePosition):
    """No encoding, but probabilities are asked for, so that attention runs written out."""

    uses_weights = True


def naive_class() -> type[nn.Module]:
    from vlcli_irpe import IRPE

    class Naive(IRPE):
        """The released formulation: one flat index per pair, a vector per pair for values."""

        def logits(self, q: Tensor, k: Tensor, state: object, layer: int) -> Tensor | None:
            total = None
            for side, tokens in (("key", q), ("query", k)):
                if side not in self.sides:
                    continue
                ids, (table,) = state.keys[0][0, 0], self.tables(layer, side)
                z = (tokens * self.scale) @ table  # (B, H, n, K)
                offset = torch.arange(len(ids), device=ids.device)[:, None] * z.shape[-1]
                term = z.flatten(2)[:, :, (ids + offset).flatten()].unflatten(2, ids.shape)
                term = term.transpose(-1, -2) if side == "query" else term
                total = term if total is None else total + term
            return total

        def values(self, weights: Tensor, state: object, layer: int) -> Tensor | None:
            if not self.uses_weights:
                return None
            ids, (table,) = state.keys[0][0, 0], self.tables(layer, "value")
            vectors = table[0][ids.flatten()].view(*ids.shape, -1)  # (n, n, d)
            rows, heads, count, _ = weights.shape
            out = weights.permute(2, 0, 1, 3).reshape(count, rows * heads, -1) @ vectors
            return out.view(count, rows, heads, -1).permute(1, 2, 0, 3)

    return Naive


def flex_class(compile_it: bool) -> type[nn.Module]:
    from torch.nn.attention.flex_attention import flex_attention
    from vlcli_irpe import IRPE

    attend = torch.compile(flex_attention) if compile_it else flex_attention

    class Flex(IRPE):
        """The same encoding in one kernel: scores of queries and buckets are read while it multiplies."""

        def attend(self, q: Tensor, k: Tensor, v: Tensor, state: object, layer: int) -> Tensor:
            tables = {side: self.tables(layer, side)[0] for side in self.sides}
            by_query = self.scores(q, tables["key"], state)  # (B, H, n, K)
            key_ids = state.keys[0][0, 0]  # (n, n)
            if "query" not in tables:
                return attend(q, k, v, score_mod=lambda s, b, h, i, j: s + by_query[b, h, i, key_ids[i, j]])
            by_key = self.scores(k, tables["query"], state)  # (B, H, n, K)
            query_ids = state.queries[0][0, 0]  # (n, n)

            def both(score: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
                return score + by_query[b, h, i, key_ids[i, j]] + by_key[b, h, j, query_ids[i, j]]

            return attend(q, k, v, score_mod=both)

    return Flex


def compare_flex(name: str, options: argparse.Namespace) -> None:
    """Compare outputs and gradients of tables with those of iRPE's own formulation, in float32."""
    from vlcli_deit import DeiT

    results = []
    for one in (name.removeprefix("flex "), name):
        torch.manual_seed(0)
        model = DeiT(DataSpec(), size="tiny", image_size=options.size, position=MODELS[one], drop_path=0.0)
        tables = [parameter for at, parameter in model.named_parameters() if "lookup_table" in at]
        for table in tables:
            nn.init.normal_(table, std=0.1)
        model.to(options.device).train()
        with torch.set_grad_enabled(options.device != "cpu"):  # a CPU's kernel has no backward pass
            out = model(torch.randn(2, 3, options.size, options.size).to(options.device))
        if out.requires_grad:
            out.square().mean().backward()
        results.append([out.detach(), *(table.grad for table in tables if table.grad is not None)])
    apart = max(float((a - b).norm() / a.norm()) for a, b in zip(*results, strict=True))
    print(
        f"{name}: the output and gradients of {len(results[0]) - 1} tables differ from iRPE's by {apart:.1e}",
        flush=True,
    )
    if apart > 1e-3:
        raise SystemExit("they differ: the comparison means nothing")


MODELS: dict[str, object] = {
    "none, fused": None,
    "none, explicit": {"name": "explicit"},
    "bias K": {"name": "irpe", "mode": "bias"},
    "K": {"name": "irpe", "sides": KEY},
    "QK": {"name": "irpe", "sides": BOTH},
    "QKV": {"name": "irpe", "sides": ALL},
    "cross QKV": {"name": "irpe", "sides": ALL, "method": "cross", "ratio": 20.0},
    "shaw": {"name": "shaw"},
    "huang": {"name": "huang"},
    "sasa": {"name": "sasa"},
    "transformer-xl": {"name": "transformer-xl"},
    "flex K": {"name": "flex", "sides": KEY},
    "flex QK": {"name": "flex", "sides": BOTH},
    "naive K": {"name": "naive", "sides": KEY},
    "naive QKV": {"name": "naive", "sides": ALL},
}
DEFAULT = ["none, fused", "none, explicit", "bias K", "K", "QK", "QKV", "naive K", "naive QKV"]


def build(name: str, options: argparse.Namespace) -> Callable[[], None]:
    """One step of a model, ready to be called."""
    from vlcli_deit import DeiT

    torch.manual_seed(0)
    model = DeiT(DataSpec(), size=options.model, image_size=options.size, position=MODELS[name], drop_path=0.0)
    dtype, device = getattr(torch, options.dtype), torch.device(options.device)
    model = model.to(device, dtype)
    run = torch.compile(model) if options.compile else model
    pixels = torch.randn(options.batch, 3, options.size, options.size, device=device, dtype=dtype)

    def forward() -> None:
        with torch.inference_mode():
            run(pixels)

    def train() -> None:
        run(pixels).float().square().mean().backward()
        model.zero_grad()

    model.train(options.train)
    return train if options.train else forward


def clock(options: argparse.Namespace) -> float:
    if options.device == "cpu":
        return time.process_time() if options.threads == 1 else time.perf_counter()
    torch.cuda.synchronize()
    return time.perf_counter()


def measure(options: argparse.Namespace) -> dict[str, list[float]]:
    """Seconds per round of every model."""
    steps = {name: build(name, options) for name in options.models}
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    order = list(steps)
    for number in range(options.rounds):
        for name in order[number % len(order) :] + order[: number % len(order)]:
            begin = clock(options)
            steps[name]()
            times[name].append(clock(options) - begin)
    return times


def peak(name: str, options: argparse.Namespace) -> float:
    """Peak memory in MiB of two steps in a process of its own: resident, or allocated on the GPU."""
    words = [sys.executable, __file__, "--peak-of", name, "--size", str(options.size), "--batch", str(options.batch)]
    words += ["--model", options.model, *(["--train"] if options.train else [])]
    words += ["--device", options.device, "--dtype", options.dtype]
    return float(subprocess.run(words, check=True, capture_output=True, text=True, env=os.environ).stdout)


def peak_of(name: str, options: argparse.Namespace) -> float:
    step = build(name, options)
    step()
    step()
    if options.device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(values: dict[str, list[float]], unit: str, scale: float) -> None:
    """Each model's best value, and its ratio to both baselines round by round."""
    print(f"{'model':16} {unit:>8} {'to fused':>9} {'to explicit':>12}")
    for name, own in values.items():
        ratios = []
        for base in ("none, fused", "none, explicit"):
            pairs = [a / b for a, b in zip(own, values[base], strict=True)] if base in values else []
            ratios.append(f"{statistics.median(pairs):.3f}" if pairs else "-")
        print(f"{name:16} {min(own) * scale:8.1f} {ratios[0]:>9} {ratios[1]:>12}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=["tiny", "small", "base"], default="small")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--train", action=argparse.BooleanOptionalAction, default=False, help="forward and backward")
    parser.add_argument("--memory", action="store_true", help="peak memory of forward and backward instead of time")
    parser.add_argument("--inference", action="store_true", help="with --memory: of the forward pass alone")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--models", nargs="+", choices=sorted(MODELS), default=DEFAULT)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peak-of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    register("positions", "explicit", Explicit)
    register("positions", "naive", naive_class())
    register("positions", "flex", flex_class(options.device != "cpu"))
    if options.peak_of:
        print(peak_of(options.peak_of, options))
        return
    for name in options.models:
        if name.startswith("flex "):
            compare_flex(name, options)
    options.train = options.train or (options.memory and not options.inference)
    values = {name: [peak(name, options)] for name in options.models} if options.memory else measure(options)
    if options.json:
        print(json.dumps(values))
        return
    what = "forward and backward" if options.train else "forward"
    print(f"DeiT {options.model}, {options.size} px, batch {options.batch}, {what}, {options.device} {options.dtype}")
    table(values, "MiB" if options.memory else "ms", 1 if options.memory else 1000)


if __name__ == "__main__":
    main()
