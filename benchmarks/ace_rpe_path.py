"""ACE-RPE's shortest-path step beside the joint unfolded form: forward and backward, time and memory.

    python benchmarks/ace_rpe_path.py

576 patches (24 x 24), 30 words, 8 groups, a window of 5 words and 3 x 3 patches: the unfolded form builds all 45 terms
of Eq. 7 and takes their minimum. Both are taken in turn; results and gradients must agree. Memory is the most that
tensors hold beyond the input, as torch's profiler counts it.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor
from vlcli_ace_rpe import shortest_paths


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=24)
    parser.add_argument("--words", type=int, default=30)
    parser.add_argument("--groups", type=int, default=8)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--threads", type=int, default=1)
    return parser.parse_args()


def unfolded(near: Tensor, grid: tuple[int, int], words: int = 5, side: int = 3) -> Tensor:
    """Eq. 7 with all its terms side by side."""
    batch, groups, _, count = near.shape
    half, reach = side // 2, words // 2
    padded = F.pad(near.unflatten(2, grid), (reach, reach, half, half, half, half), value=torch.inf)
    terms = padded.unfold(2, side, 1).unfold(3, side, 1).unfold(4, words, 1)  # (B, G, h, w, N, s, s, b)
    offset = torch.arange(side) - half
    step = torch.hypot(offset[:, None].float(), offset[None].float())
    cost = step[:, :, None] + (torch.arange(words) - reach).abs()
    return (terms + cost).flatten(-3).amin(-1).reshape(batch, groups, -1, count)


def run(form: Callable[[Tensor], Tensor], near: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, float]:
    """The result, the gradient and the processor seconds."""
    leaf = near.clone().requires_grad_()
    begun = time.process_time()
    found = form(leaf)
    (grad,) = torch.autograd.grad(found, leaf, weight)
    return found.detach(), grad, time.process_time() - begun


def peak(form: Callable[[Tensor], Tensor], near: Tensor, weight: Tensor) -> int:
    """The most bytes that tensors made on the way hold at once."""
    leaf = near.clone().requires_grad_()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        found = form(leaf)
        torch.autograd.grad(found, leaf, weight)
    held = most = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            most = max(most, held)
    return most


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    grid = (args.side, args.side)
    near = 1 + 99 * torch.rand(args.batch, args.groups, args.side**2, args.words)
    weight = torch.rand_like(near)
    forms = {"passes": lambda x: shortest_paths(x, grid), "unfolded": lambda x: unfolded(x, grid)}
    times: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(args.repeats + 1):
        made = {name: run(form, near, weight) for name, form in forms.items()}
        for name, (_, _, seconds) in made.items():
            times[name].append(seconds)
        torch.testing.assert_close(made["passes"][0], made["unfolded"][0], rtol=0, atol=1e-4)
        torch.testing.assert_close(made["passes"][1], made["unfolded"][1], rtol=1e-4, atol=1e-4)
    own, other = (statistics.median(times[name][1:]) for name in forms)
    small, large = (peak(form, near, weight) for form in forms.values())
    sizes = f"{args.side**2} patches, {args.words} words, {args.groups} groups, batch {args.batch}"
    print(f"{sizes}, {args.threads} thread(s)")
    print(f"time {own * 1e3:.1f} ms against {other * 1e3:.1f} ms: ratio {own / other:.3f}")
    print(f"memory {small / 2**20:.1f} MiB against {large / 2**20:.1f} MiB: ratio {small / large:.3f}")


if __name__ == "__main__":
    main()
