"""Computes the shortest path from a patch to a word over an anchor (Eq. 7), as exact min-plus passes.

Steps are independent, so the minimum splits: over words, then patches; the L1 distance also into rows and columns.
Windows are shifts, so nothing larger than the distances is built.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor

Metric = Literal["euclidean", "l1", "chebyshev"]
Move = tuple[tuple[int, ...], float]  # A shift along the last dimensions, and what it costs


def shortest_paths(
    distances: Tensor,
    grid: tuple[int, int],
    *,
    words: int | None = 5,
    side: int | None = 3,
    metric: Metric = "euclidean",
    word_step: float = 1.0,
    patch_step: float = 1.0,
) -> Tensor:
    """Eq. 7 on a grid of patches: (B, G, M, N).

    Args:
        distances: (B, G, M, N) between patches in row-major order and words; masked pairs hold the largest distance.
        words: window over words, an odd number, 1 for no step; None: the whole sentence.
        side: side of the square window over patches, odd, 1 for no step; None: the whole picture.
        metric: of steps between patches.
    """
    paths = _word_steps(distances, words, word_step).unflatten(2, grid)  # (B, G, h, w, N)
    down, across = _steps(side, grid[0]), _steps(side, grid[1])
    if metric == "l1":
        paths = min_plus(paths, [((step, 0, 0), patch_step * abs(step)) for step in down])
        paths = min_plus(paths, [((step, 0), patch_step * abs(step)) for step in across])
    else:
        far = math.hypot if metric == "euclidean" else lambda dy, dx: max(abs(dy), abs(dx))
        paths = min_plus(paths, [((dy, dx, 0), patch_step * far(dy, dx)) for dy, dx in itertools.product(down, across)])
    return paths.flatten(2, 3)


def shortest_paths_between(
    distances: Tensor, steps: Tensor, *, words: int | None = 5, word_step: float = 1.0
) -> Tensor:
    """Eq. 7 for regions anywhere, each of which may be stepped to: (B, G, R, N).

    Args:
        distances: (B, G, R, N) between regions and words.
        steps: (B, R, R) cost of a step between two regions; infinite where it is not allowed.
    """
    paths = _word_steps(distances, words, word_step)
    with torch.no_grad():  # the path is chosen here; the gradient goes to where it begins
        nearest = torch.stack([(paths + row[:, None, :, None]).argmin(2) for row in steps.unbind(1)], 2)  # (B, G, R, N)
    cost = steps[:, None].expand(-1, paths.shape[1], -1, -1).gather(3, nearest)
    return paths.gather(2, nearest) + cost


def _word_steps(distances: Tensor, window: int | None, cost: float) -> Tensor:
    return min_plus(distances, [((step,), cost * abs(step)) for step in _steps(window, distances.shape[-1])])


def _steps(window: int | None, count: int) -> list[int]:
    reach = count - 1 if window is None else min(window // 2, count - 1)
    return sorted(range(-reach, reach + 1), key=abs)


def min_plus(values: Tensor, moves: Sequence[Move]) -> Tensor:
    """Returns the minimum over ``moves`` of the moved values plus the move's cost, places outside left out.

    Moves shift along the last dimensions; one stands still at no cost. Of equal minima the cheapest move has the
    gradient.
    """
    moves = sorted(moves, key=lambda move: move[1])
    assert not any(moves[0][0]), "standing still comes first"
    return values if len(moves) == 1 else cast("Tensor", _MinPlus.apply(values, moves))


class _MinPlus(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, moves: Sequence[Move]) -> Tensor:
        best = values.clone()
        keep = ctx.needs_input_grad[0]
        kind = torch.int8 if len(moves) < 128 else torch.int16
        won = torch.zeros(values.shape, dtype=kind, device=values.device) if keep else None
        for number, (shift, cost) in enumerate(moves[1:], 1):
            here, there = _windows(values.shape, shift)
            lowest, term = best[here], values[there] + cost
            if won is not None:
                won[here].masked_fill_(term < lowest, number)
            torch.minimum(lowest, term, out=lowest)
        ctx.moves = moves
        if won is not None:
            ctx.save_for_backward(won)
        return best

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (won,), grad = ctx.saved_tensors, grads[0]
        back = grad * (won == 0)
        for number, (shift, _) in enumerate(ctx.moves[1:], 1):
            here, there = _windows(grad.shape, shift)
            back[there].addcmul_(grad[here], (won[here] == number).to(grad.dtype))
        return back, None


def _windows(shape: Sequence[int], shift: tuple[int, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    here, there = [], []
    for size, step in zip(shape[-len(shift) :], shift, strict=True):
        here.append(slice(max(0, -step), size - max(0, step)))
        there.append(slice(max(0, step), size - max(0, -step)))
    return (..., *here), (..., *there)
