"""One training step on two processes beside the same step on one: ``vlcli plugin check`` compares what they compute.

The two processes (gloo, on the CPU) are started once and serve all checks; each gets the sizes of a trial and answers
with its share: a JSON document and, from rank 0, the gradient as safetensors.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from safetensors.torch import load as tensors_of
from safetensors.torch import save as bytes_of
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from vlcli import registry
from vlcli.engine import processes
from vlcli.errors import VlcliError
from vlcli.nn.blocks import DropPath
from vlcli.plugin_kit.conformance import Failure, imported
from vlcli.plugin_kit.trials import Trial
from vlcli.registry import Entry
from vlcli.registry.contract import blame
from vlcli.runner.smoke_test import rehearse

EXAMPLES = 5
"""An odd number: the two shares differ in size, so that a mean of means is not the mean."""
PATIENCE = 60.0
"""Seconds after which two processes count as waiting for one another."""
START = 120.0
"""Seconds in which both must have started."""


@dataclass
class Share:
    """What one step computes, over all processes.

    Attributes:
        losses: unweighted means by name.
        gradients: by the parameter's name; zeros where a step leaves a parameter out.
        apart: why two processes may compute something else than one without a fault, in words.
    """

    losses: dict[str, float]
    gradients: dict[str, Tensor]
    apart: list[str] = field(default_factory=list)


class _Draws(TorchDispatchMode):
    """Notes which operators draw random numbers; attention counts as one for its dropout, which is 0 here."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded in func.tags and not name.startswith("_scaled_dot_product"):
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


def share_of(trial: Trial) -> Share:
    """The step of a trial, without dropout; this process takes its part of the batch.

    Raises:
        VlcliError: the stage cannot be built, or the processes disagree about its losses.
    """
    with trial.context() as context, rehearse(context, EXAMPLES) as rehearsal:
        module = rehearsal.module
        _without_dropout(module)
        batch = rehearsal.batch(processes.rank(), processes.world())
        with _Draws() as draws:
            result = rehearsal.loss(batch)
        result.total.backward()
        found = {
            name: processes.summed(torch.zeros_like(value) if value.grad is None else value.grad) / processes.world()
            for name, value in module.named_parameters()
            if value.requires_grad
        }
        module.close_step()
    losses = {name: float(mean.value()) for name, mean in result.losses.items()}
    return Share(losses, found, _apart_by_nature(module, draws.seen))


def _apart_by_nature(module: nn.Module, drawn: set[str]) -> list[str]:
    """What a process does for itself: random numbers, and statistics of its own rows."""
    found = [f"it draws random numbers ({', '.join(sorted(drawn))})"] if drawn else []
    norms = [
        name
        for name, part in module.named_modules()
        if isinstance(part, nn.modules.batchnorm._BatchNorm) and part.training
    ]
    return [*found, f"its batch normalisation takes the statistics of its own rows ({norms[0]})"] if norms else found


def _without_dropout(module: nn.Module) -> None:
    """Set every rate of dropout and stochastic depth to 0: two processes draw other numbers than one."""
    for part in module.modules():
        rates = [name for name, value in vars(part).items() if isinstance(value, float) and "drop" in name]
        rates += ["p"] if isinstance(part, nn.modules.dropout._DropoutNd) else []
        rates += ["rate"] if isinstance(part, DropPath) else []
        for name in rates:
            setattr(part, name, 0.0)


class Pair:
    """Two processes that compute steps together, until :meth:`close`."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.links: list[Connection] = []
        self.children = []
        port, self.components = _free_port(), _registered()
        for rank in (0, 1):
            ours, theirs = spawn.Pipe()
            child = spawn.Process(target=serve, args=(rank, port, theirs, self.components), daemon=True)
            child.start()
            theirs.close()
            self.links.append(ours)
            self.children.append(child)
        self._answers(START)

    @property
    def current(self) -> bool:
        """Whether the two know all components that are registered here."""
        return self.components == _registered()

    def step(self, trial: Trial) -> Share:
        """What the two compute.

        Raises:
            Failure: one of them fails, or they wait for one another.
        """
        for link in self.links:
            link.send_bytes(json.dumps(trial._asdict()).encode())
        documents = self._answers(PATIENCE)
        gradients = tensors_of(self.links[0].recv_bytes())
        return Share(documents[0]["losses"], gradients, documents[0]["apart"])

    def close(self) -> None:
        """End both."""
        for link in self.links:
            link.close()
        for child in self.children:
            child.kill()
            child.join()

    def _answers(self, seconds: float) -> list[dict[str, Any]]:
        """A document from each."""
        found: dict[int, dict[str, Any]] = {}
        while len(found) < len(self.links):
            waiting = [link for rank, link in enumerate(self.links) if rank not in found]
            ready = wait(waiting, seconds)
            if not ready:
                ranks = ", ".join(str(rank) for rank in range(len(self.links)) if rank not in found)
                raise Failure(
                    f"of two processes rank {ranks} did not end its step within {seconds:.0f} s",
                    "a step in which every process takes part in the same collective operations, whatever it holds",
                )
            for link in ready:
                rank = self.links.index(link)  # type: ignore[arg-type]
                found[rank] = self._answer(rank)
        return [found[rank] for rank in sorted(found)]

    def _answer(self, rank: int) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(self.links[rank].recv_bytes())
        except (EOFError, OSError):
            self.children[rank].join(5)
            code = self.children[rank].exitcode
            raise Failure(f"of two processes rank {rank} ended (exit code {code})", "a training step") from None
        if "fault" in document:
            raise Failure(f"of two processes rank {rank} fails: {document['fault']}", "a training step")
        return document


def serve(rank: int, port: int, link: Connection, components: list[tuple[str, str, str, str]]) -> None:
    """One of the two processes: answer trials until the link is closed."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    torch.set_num_threads(1)
    try:
        _register(components)
        processes.start("cpu")
        link.send_bytes(b"{}")
    except Exception as error:
        with suppress(OSError):
            link.send_bytes(json.dumps({"fault": _told(error)}).encode())
        return
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            _reply(link, Trial(**json.loads(link.recv_bytes())))


def _reply(link: Connection, trial: Trial) -> None:
    try:
        share = share_of(trial)
    except Exception as error:
        link.send_bytes(json.dumps({"fault": _told(error, *_components_of(trial))}).encode())
        return
    link.send_bytes(json.dumps({"losses": share.losses, "apart": share.apart}).encode())
    if processes.rank() == 0:
        link.send_bytes(bytes_of({name: value.contiguous() for name, value in share.gradients.items()}))


def _told(error: Exception, *targets: Any) -> str:
    """A fault in one line, with the line of code that raised it."""
    if isinstance(error, VlcliError):
        return f"{error.what} {error.got}".strip()
    text = (str(error).strip() or "no message").split("\n")[0]
    return f"{type(error).__name__}: {text} ({blame(error, *targets)})"


def _components_of(trial: Trial) -> list[Any]:
    """The classes whose code a trial runs."""
    named = [("objectives", registry.as_spec(spec)["name"]) for spec in trial.stage.get("objectives", [])]
    return [registry.load(kind, name) for kind, name in [*named, ("models", trial.model["name"])]]


def _registered() -> list[tuple[str, str, str, str]]:
    """Components that this process registered itself, from folders that are not installed."""
    session = [entry for entry in registry.entries() if entry.loaded is not None and "<" not in entry.value]
    return [(entry.kind, entry.name, entry.value, entry.distribution) for entry in session]


def _register(components: list[tuple[str, str, str, str]]) -> None:
    known = {(entry.kind, entry.name, entry.distribution) for entry in registry.entries()}
    for kind, name, value, distribution in components:
        if (kind, name, distribution) in known:
            continue
        registry.register(kind, name, imported(Entry(kind, name, value, distribution)), distribution)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


def difference(one: Share, two: Share, tolerance: float) -> str:
    """What two processes compute otherwise than one, in words; empty where all is equal.

    Numbers count as equal if they differ by at most ``tolerance`` times the larger of 1 and the largest of the tensor.
    """
    if one.losses.keys() != two.losses.keys():
        return f"losses {', '.join(two.losses) or 'none'} instead of {', '.join(one.losses)}"
    said = [
        f"loss {name!r} is {one.losses[name]:.6g} on one process and {two.losses[name]:.6g} on two"
        for name in one.losses
        if not abs(one.losses[name] - two.losses[name]) <= tolerance * max(1.0, abs(one.losses[name]))
    ]
    apart = _apart(one.gradients, two.gradients)
    worst = max(apart, key=lambda name: apart[name], default="")
    if worst and not apart[worst] <= tolerance:
        count = sum(not value <= tolerance for value in apart.values())
        said.append(
            f"the gradient of {worst} differs by {apart[worst]:.3g} ({count} of {len(apart)} parameters differ)"
        )
    return "; ".join(said)


def _apart(one: Mapping[str, Tensor], two: Mapping[str, Tensor]) -> dict[str, float]:
    """The largest difference of each gradient, in units of the larger of 1 and its largest number."""
    scale = {name: max(1.0, float(value.abs().max())) if value.numel() else 1.0 for name, value in one.items()}
    return {
        name: float((value - two[name]).abs().max()) / scale[name] if value.numel() else 0.0
        for name, value in one.items()
    }
