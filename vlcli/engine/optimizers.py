"""The optimizers that torch lacks, or has for one matrix after another."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


class _Grouped(torch.optim.Optimizer):
    # calls ``_update`` for the parameters of a group that have a gradient

    @torch.no_grad()
    def step(self, closure: Callable[[], Tensor] | None = None) -> Tensor | None:  # type: ignore[override]  # torch: float
        with torch.enable_grad():
            loss = None if closure is None else closure()
        for group in self.param_groups:
            if used := [p for p in group["params"] if p.grad is not None]:
                self._update(group, used)
        return loss

    def _update(self, group: dict[str, Any], used: list[Tensor]) -> None:
        raise NotImplementedError

    def _of(self, used: list[Tensor], key: str) -> list[Tensor]:
        for p in used:
            if key not in self.state[p]:
                self.state[p][key] = torch.zeros_like(p)
        return [self.state[p][key] for p in used]


class BertAdam(_Grouped):
    """Adam as BERT's and LXMERT's released code have it: no bias correction, decay added to the update.

    update = m / (sqrt(v) + eps) + weight_decay * p;  p <- p - lr * update

    Args:
        betas: decay of the two moments.
        eps: added outside the square root.
        weight_decay: decoupled, scaled by the learning rate.
    """

    paper = "Devlin et al. 2019, released code; reference numbers of LXMERT (Tan and Bansal 2019)"

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    def _update(self, group: dict[str, Any], used: list[Tensor]) -> None:
        (first, second), grads = group["betas"], [p.grad for p in used if p.grad is not None]
        m, v = self._of(used, "exp_avg"), self._of(used, "exp_avg_sq")
        torch._foreach_lerp_(m, grads, 1 - first)
        torch._foreach_mul_(v, second)
        torch._foreach_addcmul_(v, grads, grads, 1 - second)
        roots = torch._foreach_sqrt(v)
        torch._foreach_add_(roots, group["eps"])
        update = torch._foreach_div(m, roots)
        torch._foreach_add_(update, used, alpha=group["weight_decay"])
        torch._foreach_add_(used, update, alpha=-group["lr"])


_NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # Jordan's coefficients: steep at 0, so that five iterations are enough


def orthogonal(matrices: Tensor) -> Tensor:
    """Return the nearest matrices with orthonormal rows, roughly: most singular values are between 0.7 and 1.2.

    Args:
        matrices: (N, rows, columns), rows <= columns.
    """
    x: Tensor = matrices / torch.linalg.matrix_norm(matrices, keepdim=True).clamp(min=1e-7)
    x = x.to(_type_of_products(x.device.type))
    a, b, c = _NEWTON_SCHULZ
    for _ in range(5):
        gram = x @ x.mT  # (N, rows, rows)
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


@cache
def _type_of_products(device: str) -> torch.dtype:
    # A processor without instructions for bfloat16 would emulate them.
    found: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return torch.bfloat16 if device != "cpu" or found.get("avx512_bf16") else torch.float32


class Muon(_Grouped):
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
        self, groups: Iterable[dict[str, Any]], lr: float, momentum: float, betas: tuple[float, float], eps: float
    ) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "betas": betas, "eps": eps, "weight_decay": 0.0})

    def _update(self, group: dict[str, Any], used: list[Tensor]) -> None:
        (self._move if group["matrices"] else self._adamw)(group, used)

    def _adamw(self, group: dict[str, Any], used: list[Tensor]) -> None:
        steps = [self.state[p].setdefault("step", torch.tensor(0.0)) for p in used]
        first, second = self._of(used, "exp_avg"), self._of(used, "exp_avg_sq")
        (beta1, beta2), grads = group["betas"], [p.grad for p in used if p.grad is not None]
        options: dict[str, Any] = {key: group[key] for key in ("lr", "weight_decay", "eps")}
        options |= {"foreach": True, "amsgrad": False, "maximize": False}
        adamw(used, grads, first, second, [], steps, beta1=beta1, beta2=beta2, **options)

    def _move(self, group: dict[str, Any], used: list[Tensor]) -> None:
        alike: dict[tuple[int, ...], list[Tensor]] = {}
        for p in used:
            alike.setdefault(tuple(sorted(p.shape)), []).append(p)
        for (_, longer), parameters in alike.items():
            means, grads = self._of(parameters, "momentum_buffer"), [p.grad for p in parameters if p.grad is not None]
            torch._foreach_lerp_(means, grads, 1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, means, group["momentum"])  # Nesterov's momentum
            lying = torch.stack([m if m.shape[0] <= m.shape[1] else m.mT for m in ahead])  # (N, rows, columns)
            steps = zip(parameters, orthogonal(lying), strict=True)
            moved = [step if p.shape[0] <= p.shape[1] else step.mT for p, step in steps]
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(parameters, moved, alpha=-0.2 * longer**0.5 * group["lr"])


def linear_weights(model: nn.Module) -> set[int]:
    """Return the ids of the weights of linear layers, except tables of embeddings."""
    tables = {id(part.weight) for part in model.modules() if isinstance(part, nn.Embedding)}
    return {id(part.weight) for part in model.modules() if isinstance(part, nn.Linear)} - tables
