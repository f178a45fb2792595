"""Averages gradients with DDP if a step may reach only a part of the parameters.

Recipe, epoch and batch decide which ones. Instead of DDP's search of the graph (``find_unused_parameters``), an edge
from the loss to every parameter gives DDP an empty gradient for those that nothing else reaches, and one small
reduction after the backward pass tells which of them any process reached. The others keep no gradient, so that the
optimizer does not update them, as in a run of one process.

Parameters that no loss has reached so far are not reduced. Checkpoints name them: more than two processes sum in an
order that depends on what is reduced together, and a resumed run must compute the same bits.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from vlcli.engine import processes


class Copies:
    """A training module in DDP; called like the module itself.

    Args:
        module: on its device, its precision prepared.
        idle: names of parameters that no loss has reached so far; None in a run that begins.
    """

    def __init__(self, module: nn.Module, idle: Sequence[str] | None = None) -> None:
        self.module = module
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        self.names, self.parameters = [name for name, _ in trained], [p for _, p in trained]
        self._reached: set[int] = set()
        self._hooks = [
            p.register_post_accumulate_grad_hook(partial(self._note, r)) for r, p in enumerate(self.parameters)
        ]
        self._settled = idle is not None
        rows = set(range(len(trained)))
        self._covered = {row for row in rows if self.names[row] not in (idle or ())} or rows
        _ = self._ddp  # made at once: rank 0 gives its weights to the others before the first step

    def __call__(self, *args: Any, **options: Any) -> Any:
        return self._ddp(*args, **options)

    @property
    def idle(self) -> list[str] | None:
        """Names of trained parameters that no loss has reached so far; None before the first step."""
        return [name for row, name in enumerate(self.names) if row not in self._covered] if self._settled else None

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        with self._ddp.no_sync():
            yield

    def settle(self) -> None:
        """Called after a step's last backward pass; removes the gradients of parameters that no process reached."""
        reached = [row in self._reached for row in range(len(self.parameters))]
        used = torch.tensor(reached, dtype=torch.int32, device=self.parameters[0].device)
        dist.all_reduce(used, op=dist.ReduceOp.MAX)
        self._reached.clear()
        anywhere = set(used.nonzero().flatten().tolist())
        for row in self._covered - anywhere:
            self.parameters[row].grad = None
        for row in sorted(anywhere - self._covered):  # of an objective in its first step: DDP left them alone
            parameter = self.parameters[row]
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.contiguous()
            dist.all_reduce(grad)
            parameter.grad = grad / processes.world()
        wanted = self._covered | anywhere if self._settled else anywhere or self._covered
        self._settled = True
        if wanted != self._covered:
            self._covered = wanted
            del self._ddp

    def release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def _note(self, row: int, parameter: Tensor) -> None:
        if parameter.grad is not None:  # an empty gradient comes here too
            self._reached.add(row)

    @cached_property
    def _ddp(self) -> DistributedDataParallel:
        # Built anew only once the optimizer has taken the gradients.
        covered = [self.parameters[row] for row in sorted(self._covered)]
        body: Any = _Body(self.module, covered)
        ids = {id(parameter) for parameter in covered}
        named = body.named_parameters(remove_duplicate=False)
        body._ddp_params_and_buffers_to_ignore = [name for name, p in named if id(p) not in ids]
        devices = [covered[0].device] if covered[0].is_cuda else None
        with warnings.catch_warnings():
            # Later versions of torch have another name for it; this one is known to all.
            warnings.filterwarnings("ignore", ".*broadcast_buffers.*", FutureWarning)
            ddp = DistributedDataParallel(body, device_ids=devices, broadcast_buffers=False)
        # After an empty backward pass DDP never lays out its buckets again. Else it would do so after a process's first
        # step, and a resumed run would add numbers in another order.
        ddp().backward()
        for parameter in covered:
            parameter.grad = None
        return ddp


class _Body(nn.Module):
    def __init__(self, module: nn.Module, covered: list[nn.Parameter]) -> None:
        super().__init__()
        self.module = module
        self._covered = tuple(covered)

    def forward(self, *args: Any, **options: Any) -> Any:
        if not args:
            total = torch.zeros((), device=self._covered[0].device)
            for parameter in self._covered:  # a chain, whose backward pass comes to the last parameter first
                total = _Edges.apply(total, parameter)
            return total
        result = self.module(*args, **options)
        return replace(result, total=_Edges.apply(result.total, *self._covered))


class _Edges(torch.autograd.Function):
    # A scalar with edges to parameters that get an empty gradient (None, not zeros).

    @staticmethod
    def forward(ctx: Any, total: Tensor, *parameters: Tensor) -> Tensor:
        ctx.count = len(parameters)
        return total.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return (grads[0], *[None] * ctx.count)
