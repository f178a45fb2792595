"""The optimizer Muon: matrices move by an orthogonal step, all other parameters as with AdamW."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients: steep at 0, so that five iterations are enough
_ITERATIONS = 5


def orthogonal(matrices: Tensor) -> Tensor:
    """Return the nearest matrices with orthonormal rows, roughly: singular values between 0.7 and 1.2.

    Args:
        matrices: (N, rows, columns), rows <= columns.
    """
    x: Tensor = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=1e-7)
    x = x.to(_type_of_products(x.device.type))
    a, b, c = _NEWTON_SCHULZ
    for _ in range(_ITERATIONS):
        gram = x @ x.mT  # (N, rows, rows)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


@cache
def _type_of_products(device: str) -> torch.dtype:
    # Processors without bfloat16 compute its products several times more slowly than those of float32.
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.bfloat16 if device != "cpu" or found.get("avx512_bf16") else torch.float32


class Muon(torch.optim.Optimizer):
    """Muon for groups with ``matrices``, AdamW for the others.

    update = orthogonal(nesterov momentum);  p <- p - lr * (0.2 * sqrt(longer side) * update + weight_decay * p)

    The factor gives the update the root mean square of AdamW's, as ``torch.optim.Muon`` with ``match_rms_adamw`` does.
    That class takes one matrix after another; here matrices of one shape are taken together, in float32 on processors
    without bfloat16.

    Args:
        groups: parameter groups; the parameters of groups with ``matrices`` are (rows, columns).
        momentum: decay of the gradients' mean.
        betas: of AdamW, as ``eps``.
    """

    paper = "Jordan et al. 2024, Muon; Liu et al. 2025, Muon is Scalable for LLM Training, section 2.2"

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]  # torch: float
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            if used := [p for p in group["params"] if p.grad is not None]:
                (self._move if group["matrices"] else self._adamw)(group, used)
        return loss

    def _adamw(self, group: dict[str, Any], used: list[Tensor]) -> None:
        for p in used:
            if not self.state[p]:
                moments = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                self.state[p] = {"step": torch.tensor(0.0), **moments}
        first, second, steps = ([self.state[p][key] for p in used] for key in ("exp_avg", "exp_avg_sq", "step"))
        (beta1, beta2), grads = group["betas"], [p.grad for p in used if p.grad is not None]
        rates = {"lr": group["lr"], "weight_decay": group["weight_decay"], "eps": group["eps"]}
        fixed: dict[str, Any] = {"amsgrad": False, "maximize": False, "foreach": True}
        adamw(used, grads, first, second, [], steps, beta1=beta1, beta2=beta2, **rates, **fixed)

    def _move(self, group: dict[str, Any], used: list[Tensor]) -> None:
        alike: dict[tuple[int, ...], list[Tensor]] = {}
        for p in used:
            alike.setdefault(tuple(sorted(p.shape)), []).append(p)
        for (_, longer), parameters in alike.items():
            directions = [_lying(self._direction(p, group["momentum"])) for p in parameters]
            steps = orthogonal(torch.stack(directions))  # (N, rows, columns)
            moved = [step if p.shape[0] <= p.shape[1] else step.mT for p, step in zip(parameters, steps, strict=True)]
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, moved, alpha=-0.2 * longer**0.5 * group["lr"])

    def _direction(self, parameter: Tensor, momentum: float) -> Tensor:
        assert parameter.grad is not None
        state = self.state[parameter]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(parameter)
        mean = state["momentum_buffer"].lerp_(parameter.grad, 1 - momentum)
        return parameter.grad.lerp(mean, momentum)


def _lying(matrix: Tensor) -> Tensor:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.mT


def with_matrices(groups: Iterable[dict[str, Any]], model: nn.Module) -> Iterator[dict[str, Any]]:
    """Divide groups: the weights of the model's linear layers, except tables of embeddings, have ``matrices``."""
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    found = {id(part.weight) for part in model.modules() if isinstance(part, nn.Linear)} - tables
    for group in groups:
        pairs = list(zip(group["names"], group["params"], strict=True))
        for matrices in (True, False):
            if chosen := [(name, p) for name, p in pairs if (id(p) in found) == matrices]:
                names, params = map(list, zip(*chosen, strict=True))
                yield {**group, "names": names, "params": params, "matrices": matrices}
