"""Shards parameters over the processes of a run (FSDP2, ``torch.distributed.fsdp.fully_shard``).

Every block of the model's stacks is gathered for its forward and backward pass; parameters outside blocks stay gathered
between forward and backward. FSDP2 cannot shard scalars (learnt temperatures): every process holds them, and their
gradients are averaged here. Optimizer, moving average and momentum copies work on each process's shards as plain
tensors: torch's fused and foreach updates refuse a mixture of DTensors and plain tensors.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from vlcli.engine import processes
from vlcli.engine.copies import Copies

if TYPE_CHECKING:  # more than a second to import, for those alone who shard parameters
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor

DIMENSION = "shard"


class Shards:
    """Distributes the parameters of a training module, which is on its device, over the processes.

    Args:
        mode: ``none``: every process holds all parameters (DDP); ``full``: each holds its shards; ``hybrid``: the
            processes of one machine hold shards, and machines hold copies.
    """

    def __init__(self, module: nn.Module, mode: str = "none") -> None:
        self.module = module
        self.mesh: DeviceMesh | None = None
        self.copies: Copies | None = None
        self.sharded: dict[str, DTensor] = {}
        self._hooks: list[tuple[nn.Module, dict[int, Any]]] = []
        if mode == "none" or processes.world() == 1:
            return
        from torch.distributed.fsdp import fully_shard

        self.mesh = _mesh(mode, next(module.parameters()).device.type)
        for value in module.state_dict(keep_vars=True).values():
            dist.broadcast(value.detach(), src=0)
        single = {parameter for parameter in module.parameters() if not parameter.ndim}
        for block in blocks_of(module):
            fully_shard(block, mesh=self.mesh, ignored_params=single)
        fully_shard(module, mesh=self.mesh, ignored_params=single, reshard_after_forward=False)
        self.sharded = {name: value for name, value in self.state().items() if is_share(value)}

    @property
    def active(self) -> bool:
        """Whether parameters are sharded now."""
        return self.mesh is not None

    def prepare(
        self, accelerator: Any, optimizer: torch.optim.Optimizer, idle: Sequence[str] | None = None
    ) -> tuple[Any, Any]:
        """Return module and optimizer for the training loop; ``idle``: see :class:`Copies`."""
        # Precision alone: no DDP, and no move, after which shares would lie elsewhere than the optimizer knows.
        module = accelerator.prepare_model(self.module, device_placement=False, evaluation_mode=True)
        if not self.active and processes.world() > 1:
            self.copies = Copies(module, idle)
        # Without a scaler the wrapper adds nothing to a step but a search of the disk for an optional package.
        wrapped = accelerator.prepare_optimizer(optimizer) if accelerator.scaler is not None else optimizer
        return self.copies or module, wrapped

    def localise(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
        """Return the optimizer, now over this process's shards as plain tensors."""
        if self.active:
            for group in optimizer.param_groups:
                group["params"] = [nn.Parameter(local(p)) if is_share(p) else p for p in group["params"]]
            optimizer.register_step_pre_hook(self._hand_over)
        return optimizer

    def _hand_over(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for name, share in zip(group["names"], group["params"], strict=True):
                if (sharded := self.sharded.get(name)) is not None:
                    share.grad, sharded.grad = None if sharded.grad is None else local(sharded.grad), None

    def no_sync(self) -> AbstractContextManager[None]:
        return nullcontext() if self.copies is None else self.copies.no_sync()

    def average_rest(self) -> None:
        """Average the gradients that the backward pass did not average."""
        if self.copies is not None:
            self.copies.settle()
        rest = [p for p in self.module.parameters() if not is_share(p) and p.requires_grad] if self.active else []
        if not rest:
            return
        sums = torch.stack([torch.zeros_like(p) if p.grad is None else p.grad for p in rest]).float()
        used = torch.tensor([float(p.grad is not None) for p in rest], device=sums.device)
        both = torch.stack([sums, used])
        dist.all_reduce(both)
        for parameter, value, count in zip(rest, both[0] / processes.world(), both[1].tolist(), strict=True):
            parameter.grad = value.to(parameter.dtype) if count else None

    def total_norm(self, grads: list[Tensor]) -> Tensor:
        """Return the norm of the whole gradient."""
        plain = [grad for grad in grads if not is_share(grad)]
        if self.mesh is None:
            return torch.nn.utils.get_total_norm(plain)
        square = torch.nn.utils.get_total_norm([local(grad) for grad in grads if is_share(grad)]).square()
        dist.all_reduce(square, group=self.mesh[DIMENSION].get_group())
        return (square + torch.nn.utils.get_total_norm(plain).square()).sqrt() if plain else square.sqrt()

    def clip(self, trained: list[nn.Parameter], limit: float, norm: Tensor) -> None:
        if not self.active:
            torch.nn.utils.clip_grads_with_norm_(trained, limit, norm)
            return
        factor = (limit / (norm + 1e-6)).clamp(max=1.0)  # as torch has it
        torch._foreach_mul_([local(p.grad) for p in trained if p.grad is not None], factor)

    def agreed(self, total: Tensor) -> Tensor:
        """Return the loss, with an empty gradient for parameters outside blocks that only other processes use.

        All processes must reduce the same gradients; which of them a loss reaches may depend on the batch.
        """
        if not self.active or total.grad_fn is None:
            return total
        outside = [p for p in self.module.parameters() if p.requires_grad and not is_share(p) and p.ndim]
        reached = _leaves(total)
        used = torch.tensor([id(p) in reached for p in outside], dtype=torch.int32, device=total.device)
        anywhere = used.clone()
        dist.all_reduce(anywhere, op=dist.ReduceOp.MAX)
        for row in (anywhere - used).nonzero().flatten().tolist():
            total = total + outside[row].flatten()[:0].sum()
        return total

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Gather all parameters on every process meanwhile, which can then compute alone."""
        self._gather()
        try:
            yield
        finally:
            if self.active:
                for part in self._parts():
                    part.reshard()
                    part.set_reshard_after_forward(part is not self.module, recurse=False)
                for module, hooks in self._hooks:
                    module._state_dict_pre_hooks.update(hooks)
                self._hooks.clear()

    def dissolve(self, averages: dict[str, Tensor]) -> None:
        """Turn all parameters and averages into plain, whole tensors for good."""
        if self.copies is not None:
            self.copies.release()
            self.copies = None
        for name, share in averages.items():
            placed = self.spread(name, share)
            averages[name] = placed.full_tensor() if is_share(placed) else share
        self._gather()
        self.mesh, self.sharded = None, {}

    def _gather(self) -> None:
        if not self.active:
            return
        parts = self._parts()
        parts[0]._get_fsdp_state()._lazy_init()  # else the first block called would take itself for the whole
        for part in parts:
            part.set_reshard_after_forward(False, recurse=False)
            part.unshard()
        for module in self.module.modules():  # they would let the parameters go when somebody asks for the state
            self._hooks.append((module, dict(module._state_dict_pre_hooks)))
            module._state_dict_pre_hooks.clear()

    def _parts(self) -> list[Any]:
        return [part for part in self.module.modules() if hasattr(part, "unshard")]

    def spread(self, name: str, share: Tensor) -> Tensor:
        """Return the DTensor of which this process holds ``share``, laid out as the parameter ``name``."""
        like = self.sharded.get(name)
        if like is None or not share.ndim:
            return share
        from torch.distributed.tensor import DTensor

        mesh, layout = like.device_mesh, like.placements
        return DTensor.from_local(share, mesh, layout, run_check=False, shape=like.shape, stride=like.stride())

    def part_of(self, name: str, value: Tensor) -> Tensor:
        """Return this process's shard of a whole tensor, laid out as the parameter ``name``."""
        like = self.sharded.get(name)
        if like is None or value.shape != like.shape:
            return value
        from torch.distributed.tensor import distribute_tensor

        moved = value.to(like.device)
        return local(distribute_tensor(moved, like.device_mesh, like.placements, src_data_rank=None))

    def state(self) -> dict[str, Tensor]:
        """Return the module's state; tied names hold one tensor, shards are DTensors."""
        return dict(self.module.state_dict(keep_vars=True))

    def gathered(self) -> dict[str, Tensor]:
        """Return the whole state on rank 0, else an empty one; every process calls this."""
        if not self.active:
            return dict(self.module.state_dict())
        whole: dict[int, Tensor] = {}
        first, state = processes.rank() == 0, self.state()
        for value in {id(value): value for value in state.values()}.values():
            full = value.full_tensor() if is_share(value) else value.detach()
            whole[id(value)] = full.cpu() if first else full.new_empty(0)
        return {name: whole[id(value)] for name, value in state.items()} if first else {}


def is_share(value: Tensor) -> TypeGuard[DTensor]:
    """Whether the tensor is a ``torch.distributed.tensor.DTensor``."""
    return hasattr(value, "to_local")


def local(value: Tensor) -> Tensor:
    """Return this process's shard of a tensor (all of a plain one), detached, sharing its memory."""
    plain: Any = value.detach()
    return cast("Tensor", plain.to_local() if is_share(value) else plain)


def blocks_of(module: nn.Module) -> list[nn.Module]:
    """Return the blocks (members of module lists of modules with ``checkpointing``) that share no parameter."""
    stacks = [part for part in module.modules() if hasattr(part, "checkpointing")]
    lists = [part for stack in stacks for part in stack.children() if isinstance(part, nn.ModuleList)]
    blocks = [block for part in lists for block in part]
    inside = {id(part) for block in blocks for part in block.modules()}
    outside = {id(p) for part in module.modules() if id(part) not in inside for p in part.parameters(recurse=False)}
    owners = Counter(id(p) for block in blocks for p in block.parameters())
    alone = {key for key, count in owners.items() if count == 1 and key not in outside}
    return [block for block in blocks if (ids := {id(p) for p in block.parameters()}) and ids <= alone]


def _mesh(mode: str, device: str) -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    world, here = processes.world(), int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if mode == "full" or world % here:
        return init_device_mesh(device, (world,), mesh_dim_names=(DIMENSION,))
    return init_device_mesh(device, (world // here, here), mesh_dim_names=("copies", DIMENSION))


def _leaves(total: Tensor) -> set[int]:
    seen: set[Any] = {None}
    left: list[Any] = [total.grad_fn]
    while left:
        if (node := left.pop()) not in seen:
            seen.add(node)
            left.extend(each for each, _ in node.next_functions)
    return {id(node.variable) for node in seen if hasattr(node, "variable")}
