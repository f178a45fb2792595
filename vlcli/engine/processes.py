"""Starts devices, processes and threads with accelerate and torch.distributed, and seeds them."""

import math
import os
import random
import time
from collections.abc import Set
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from accelerate import Accelerator, InitProcessGroupKwargs
from accelerate.state import AcceleratorState, GradientState
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from vlcli.ahead import usable_cores
from vlcli.errors import UsageError, VlcliError

_patient: dict[str, Any] = {}
_seconds = 600.0

PRECISIONS = {"float32": "no", "bf16": "bf16", "fp16": "fp16"}


def resolve_device(name: str | None) -> str:
    """Return the device of that name; for ``auto`` or None the best available. Raises UsageError: no such device."""
    counts = {"cuda": torch.cuda.device_count() if torch.cuda.is_available() else 0}
    counts |= {"mps": int(torch.backends.mps.is_available()), "cpu": 1}
    known = [kind for kind, count in counts.items() if count]
    if name is None or name == "auto":
        return known[0]
    kind, colon, index = name.partition(":")
    if kind not in known or (colon and not (index.isdecimal() and int(index) < counts[kind])):
        expected = ", ".join(kind if counts[kind] == 1 else f"{kind}:0 to {kind}:{counts[kind] - 1}" for kind in known)
        raise UsageError("This device is not there.", got=name, expected=expected, hint="--device auto")
    return name if kind == "cuda" else kind


def start(device: str, precision: str = "float32") -> Accelerator:
    """Return an Accelerator for a stage; process group and ranks come from torchrun or accelerate's launcher.

    Raises:
        UsageError: there is no such device, or fp16 on a CPU.
        VlcliError: the processes do not reach one another.
    """
    chosen = resolve_device(device)
    if chosen == "cpu" and precision == "fp16":
        raise UsageError("Half precision (fp16) needs a GPU.", got="device cpu", hint="precision=bf16 or float32")
    # accelerate keeps one state per process; a recipe's stages may differ in precision and device.
    alone = int(os.environ.get("WORLD_SIZE", "1")) == 1
    AcceleratorState._reset_state(reset_partial_state=alone)
    GradientState._reset_state()
    if chosen.startswith("cuda:") and alone:
        torch.cuda.set_device(int(chosen.split(":")[1]))
    # A step that one process does not join must not hold the others for hours; see vlcli.engine.peers.
    limit = InitProcessGroupKwargs(timeout=timedelta(seconds=hang_timeout() + 30))
    try:
        _rejoin("nccl" if chosen.startswith("cuda") else "gloo", limit.timeout)
        accelerator = Accelerator(
            mixed_precision=PRECISIONS[precision],
            cpu=chosen == "cpu",
            kwargs_handlers=[limit],
            step_scheduler_with_optimizer=False,
        )
        if world() > 1 and "all" not in _patient:
            # A second group, for what may take long: waiting while rank 0 evaluates or writes.
            _patient["all"] = dist.new_group(backend="gloo", timeout=timedelta(hours=24))
    except RuntimeError as error:
        if alone:
            raise
        what, got = "The processes of this run did not find one another.", str(error).strip().split("\n")[0]
        where = f"rank {os.environ.get('RANK', '?')} of {os.environ['WORLD_SIZE']}"
        expected = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')} and all processes within reach"
        hint = "see whether another process of this run ended before it began; then start all of them again"
        raise VlcliError(what, where=where, got=got, expected=expected, hint=hint) from error
    return accelerator


def _rejoin(backend: str, timeout: timedelta | None) -> None:
    # On one machine torchrun's store outlives a restart, and with it the addresses of processes that are gone: the new
    # group must not read them. On several machines torchrun makes a new store for each restart.
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    one_machine = os.environ.get("LOCAL_WORLD_SIZE", "1") == os.environ.get("WORLD_SIZE", "1")
    if count == "0" or not one_machine or _grouped():
        return
    store, rank_, world_ = next(rendezvous("env://", timeout=timeout or timedelta(minutes=10)))
    store = dist.PrefixStore(f"restart-{count}", store)  # type: ignore[attr-defined]  # its stubs do not name it
    dist.init_process_group(backend, store=store, rank=rank_, world_size=world_, timeout=timeout)


def set_hang_timeout(seconds: float) -> None:
    """Set the recipe's hang timeout; see :func:`hang_timeout`."""
    global _seconds
    _seconds = seconds


def hang_timeout() -> float:
    """Return the seconds after which a process counts as hung: ``VLCLI_HANG_TIMEOUT``, else the recipe's (600).

    Raises:
        UsageError: the variable is no number from 1 to 2,592,000.
    """
    said = os.environ.get("VLCLI_HANG_TIMEOUT", str(_seconds))
    seconds = math.nan
    with suppress(ValueError):
        seconds = float(said)
    if not 1 <= seconds <= 86400 * 30:
        what, expected = "VLCLI_HANG_TIMEOUT is no number of seconds.", "seconds, from 1 to 2592000"
        raise UsageError(what, where="environment", got=said, expected=expected)
    return seconds


def patient_group() -> Any:
    """Return the gloo group for long waits; None for a single process."""
    return _patient.get("all") if world() > 1 else None


def world() -> int:
    """Return the number of processes."""
    return dist.get_world_size() if _grouped() else 1


def rank() -> int:
    """Return the rank of this process."""
    return dist.get_rank() if _grouped() else 0


def _grouped() -> bool:
    return dist.is_available() and dist.is_initialized()


def summed(values: Tensor) -> Tensor:
    """Return the sum of ``values`` over all processes, without gradient."""
    if world() == 1:
        return values
    values = values.detach().clone()
    dist.all_reduce(values)
    return values


def share(value: Any) -> Any:
    """Return rank 0's ``value`` on every process."""
    if world() == 1:
        return value
    box = [value]
    dist.broadcast_object_list(box, src=0, group=_patient.get("all"))
    return box[0]


def collect(value: Any) -> list[Any]:
    """Return every process's ``value``, in order of rank, on every process."""
    values: list[Any] = [value] * world()
    if world() > 1:
        dist.all_gather_object(values, value, group=_patient.get("all"))
    return values


def highest(number: int, device: torch.device) -> int:
    """Return the largest ``number`` of all processes."""
    if world() == 1:
        return number
    value = torch.tensor(number, device=device)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return int(value)


def wait() -> None:
    """Wait for every process."""
    if world() > 1:
        dist.barrier(group=_patient.get("all"))


def gather(tensor: Tensor) -> Tensor:
    """Return the rows of all processes in rank order, (B, ...) to (sum of B, ...), with gradient to every process.

    The backward pass sums the gradients of all processes: a loss over gathered rows has the gradient of one process
    with all rows.
    """
    if world() == 1:
        return tensor
    return cast("Tensor", _Gather.apply(tensor)) if tensor.is_floating_point() else _collect(tensor)[0]


def _collect(tensor: Tensor) -> tuple[Tensor, list[int]]:
    counts = torch.zeros(world(), dtype=torch.long, device=tensor.device)
    counts[rank()] = len(tensor)
    dist.all_reduce(counts)
    rows = counts.tolist()
    sent = tensor.to(torch.uint8) if tensor.dtype == torch.bool else tensor
    padded = sent.new_zeros(max(rows), *sent.shape[1:])
    padded[: len(sent)] = sent
    parts = [torch.empty_like(padded) for _ in rows]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, rows, strict=True)]).to(tensor.dtype), rows


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        whole, rows = _collect(tensor.contiguous())
        ctx.start, ctx.count = sum(rows[: rank()]), rows[rank()]
        return whole

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        grad = grads[0].contiguous().clone()
        dist.all_reduce(grad)
        return grad[ctx.start : ctx.start + ctx.count]


def seed_step(seed: int, step: int, part: int = 0, stream: int | None = None) -> None:
    """Seed every generator from (seed, step, part of the step, ``stream``, by default the rank)."""
    stream = rank() if stream is None else stream
    word = int(np.random.SeedSequence([seed & 0xFFFFFFFF, step, part, stream]).generate_state(1, np.uint64)[0])
    # torch.manual_seed notes the call stack for each kind of device that it could seed later: half a millisecond.
    (torch.manual_seed if _other_devices() else torch.default_generator.manual_seed)(word & 0x7FFFFFFFFFFFFFFF)
    random.seed(word)
    np.random.seed(word & 0xFFFFFFFF)


_other_devices = cache(torch.accelerator.is_available)


def use_threads(wanted: int | None) -> int:
    """Set and return torch's threads: ``wanted``, else OMP_NUM_THREADS, else the number of idle cores."""
    variable = os.environ.get("OMP_NUM_THREADS", "")
    count = wanted or (int(variable) if variable.isdigit() and int(variable) > 0 else _free_cores())
    torch.set_num_threads(count)
    return count


def _free_cores() -> int:
    cores = usable_cores()
    free = min(math.floor(len(cores) - busy_cores(cores) + 0.5), _quota())
    return max(1, free // int(os.environ.get("LOCAL_WORLD_SIZE", "1")))


def busy_cores(cores: Set[int], seconds: float = 0.3) -> float:
    """Return how many of ``cores`` other programs keep busy over ``seconds`` (without /proc/stat: the load average)."""
    try:
        before, spent, began = _ticks(cores), sum(os.times()[:2]), time.monotonic()
        time.sleep(seconds)
        passed, spent = time.monotonic() - began, sum(os.times()[:2]) - spent
        busy = (_ticks(cores) - before) / os.sysconf("SC_CLK_TCK") - spent
    except (OSError, ValueError, AttributeError):
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return min(max(busy / passed, 0.0), float(len(cores)))


def _ticks(cores: Set[int]) -> int:
    # All but idle and waiting for the disk.
    rows = [line.split() for line in Path("/proc/stat").read_text(encoding="ascii").splitlines()]
    names = {f"cpu{core}" for core in cores}
    return sum(sum(map(int, row[1:9])) - int(row[4]) - int(row[5]) for row in rows if row and row[0] in names)


def _quota() -> int:
    # Of a container (cgroup v2); unlimited: very many.
    with suppress(OSError, ValueError):
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, int(limit) // int(period))
    return 1 << 16
