"""Compares a training step on two processes (gloo, on the CPU) with the same step on one."""

import json
import multiprocessing
import os
import sys
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
from vlcli.registry.contract import blame, in_a_line
from vlcli.runner.trial_step import rehearse

_EXAMPLES = 5  # an odd number: the two shares differ in size, so that a mean of means is not the mean
# Seconds after which two processes count as waiting for one another
PATIENCE = 60.0
_START = 120.0  # seconds in which both must have started


@dataclass
class Share:
    """Result of one step over all processes.

    ``gradients`` are zeros where a step leaves a parameter out; ``apart`` says why two processes may compute something
    else than one without a fault.
    """

    losses: dict[str, float]
    gradients: dict[str, Tensor]
    apart: list[str] = field(default_factory=list)


class Draws(TorchDispatchMode):
    """Records which operators draw random numbers; attention counts as one for its dropout, which is 0 here."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        if torch.Tag.nondeterministic_seeded in func.tags and not name.startswith("_scaled_dot_product"):
            self.seen.add(name)
        return func(*args, **(kwargs or {}))


def share_of(trial: Trial) -> Share:
    """Run the step of a trial without dropout; this process takes its part of the batch.

    Raises VlcliError: the stage cannot be built, or the processes disagree about its losses.
    """
    with trial.context() as context, rehearse(context, _EXAMPLES) as rehearsal:
        module = rehearsal.module
        without_dropout(module)
        batch = rehearsal.batch(processes.rank(), processes.world())
        if trial.double:
            module.double()
            batch = batch.map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)
        with Draws() as draws:
            result = rehearsal.loss(batch)
        result.total.backward()
        gradients = {
            name: processes.summed(torch.zeros_like(value) if value.grad is None else value.grad) / processes.world()
            for name, value in module.named_parameters()
            if value.requires_grad
        }
        module.close_step()
    apart = [f"it draws random numbers ({', '.join(sorted(draws.seen))})"] if draws.seen else []
    norms = {name: part for name, part in module.named_modules() if isinstance(part, nn.modules.batchnorm._BatchNorm)}
    if name := next((name for name, part in norms.items() if part.training), ""):
        apart.append(f"its batch normalisation takes the statistics of its own rows ({name})")
    return Share({name: float(mean.value()) for name, mean in result.losses.items()}, gradients, apart)


def without_dropout(module: nn.Module) -> None:
    """Set every rate of dropout and stochastic depth to 0: two processes draw other numbers than one."""
    for part in module.modules():
        rates = [name for name, value in vars(part).items() if isinstance(value, float) and "drop" in name]
        rates += ["p"] if isinstance(part, nn.modules.dropout._DropoutNd) else []
        rates += ["rate"] if isinstance(part, DropPath) else []
        for name in rates:
            setattr(part, name, 0.0)


class Pair:
    """Two processes that run steps together, until :meth:`close`.

    Each receives a trial as JSON, and answers with a JSON document and, from rank 0, the gradient as safetensors.
    """

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.links: list[Connection] = []
        self.children = []
        self.components = registered()
        # Held by this process: between a search for a free port and its use, another process could take the port.
        self.store = torch.distributed.TCPStore(  # type: ignore[attr-defined]  # its stubs do not name it
            "127.0.0.1", 0, is_master=True, wait_for_workers=False
        )
        for rank in (0, 1):
            ours, theirs = spawn.Pipe()
            files = [str(one.__file__) for name, one in sys.modules.items() if name.startswith("vlcli_plugin_")]
            arguments = (rank, self.store.port, theirs, self.components, files)
            child = spawn.Process(target=serve, args=arguments, daemon=True)
            child.start()
            theirs.close()
            self.links.append(ours)
            self.children.append(child)
        self._answers(_START)

    def step(self, trial: Trial) -> Share:
        """Run the step of a trial. Raises Failure: one of the processes fails, or they wait for one another."""
        for link in self.links:
            link.send_bytes(json.dumps(trial._asdict()).encode())
        document = self._answers(PATIENCE)[0]
        return Share(document["losses"], tensors_of(self.links[0].recv_bytes()), document["apart"])

    def close(self) -> None:
        for link in self.links:
            link.close()
        for child in self.children:
            child.kill()
            child.join()

    def _answers(self, seconds: float) -> dict[int, dict[str, Any]]:
        documents: dict[int, dict[str, Any]] = {}
        while missing := [rank for rank in range(len(self.links)) if rank not in documents]:
            ready = wait([self.links[rank] for rank in missing], seconds)
            if not ready:
                got = f"rank {', '.join(map(str, missing))} did not end its step within {seconds:.0f} s"
                expected = "every process takes part in the same collective operations, whatever it holds"
                raise Failure(f"of two processes {got}", f"a step in which {expected}")
            documents |= {rank: self._answer(rank) for rank in missing if self.links[rank] in ready}
        return documents

    def _answer(self, rank: int) -> dict[str, Any]:
        try:
            document: dict[str, Any] = json.loads(self.links[rank].recv_bytes())
        except (EOFError, OSError):
            self.children[rank].join(5)
            code = self.children[rank].exitcode
            raise Failure(f"of two processes rank {rank} ended (exit code {code})", "a training step") from None
        if "fault" in document:
            raise Failure(f"rank {rank} of two processes fails: {document['fault']}", "a training step")
        return document


def serve(
    rank: int, port: int, link: Connection, components: list[tuple[str, str, str, str]], files: list[str]
) -> None:
    """Answer trials as one of the two processes until the link is closed."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}  # rank 0 opens no port
    torch.set_num_threads(1)
    try:
        for file in files:
            registry.load_file(file)
        known = {(entry.kind, entry.name, entry.distribution) for entry in registry.entries()}
        for kind, name, value, distribution in components:
            if (kind, name, distribution) not in known:
                registry.register(kind, name, imported(Entry(kind, name, value, distribution)), distribution)
        processes.start("cpu")
        link.send_bytes(b"{}")
    except Exception as error:
        with suppress(OSError):
            link.send_bytes(json.dumps({"fault": _in_words(error)}).encode())
        return
    with suppress(EOFError, OSError, KeyboardInterrupt):
        while True:
            _reply(link, Trial(**json.loads(link.recv_bytes())))


def _reply(link: Connection, trial: Trial) -> None:
    try:
        share = share_of(trial)
    except Exception as error:
        named = [("objectives", registry.as_spec(spec)["name"]) for spec in trial.stage.get("objectives", [])]
        targets = [registry.load(kind, name) for kind, name in [*named, ("models", trial.model["name"])]]
        link.send_bytes(json.dumps({"fault": _in_words(error, *targets)}).encode())
        return
    link.send_bytes(json.dumps({"losses": share.losses, "apart": share.apart}).encode())
    if processes.rank() == 0:
        link.send_bytes(bytes_of({name: value.contiguous() for name, value in share.gradients.items()}))


def _in_words(error: Exception, *targets: Any) -> str:
    if isinstance(error, VlcliError):
        return f"{error.what} {error.got}".strip()
    return f"{in_a_line(error)} ({blame(error, *targets)})"


def registered() -> list[tuple[str, str, str, str]]:
    """Return components that this process registered itself, from folders that are not installed."""
    session = [entry for entry in registry.entries() if entry.loaded is not None and "<" not in entry.value]
    return [(entry.kind, entry.name, entry.value, entry.distribution) for entry in session]


def difference(one: Share, two: Share, tolerance: float) -> str:
    """Return in words what differs between one process and two; empty where all is equal.

    Numbers are equal if they differ by at most ``tolerance`` times the larger of 1 and the largest of the tensor.
    """
    if one.losses.keys() != two.losses.keys():
        return f"losses {', '.join(two.losses) or 'none'} instead of {', '.join(one.losses)}"
    lines = [
        f"loss {name!r} is {one.losses[name]:.6g} on one process and {two.losses[name]:.6g} on two"
        for name in one.losses
        if not abs(one.losses[name] - two.losses[name]) <= tolerance * max(1.0, abs(one.losses[name]))
    ]
    apart = dict.fromkeys(one.gradients, 0.0)
    for name, value in one.gradients.items():
        if value.numel():
            scale = max(1.0, float(value.abs().max()))
            apart[name] = float((value - two.gradients[name]).abs().max()) / scale
    worst = max(apart, key=lambda name: apart[name], default="")
    if worst and not apart[worst] <= tolerance:
        count = sum(not value <= tolerance for value in apart.values())
        many = f"{count} of {len(apart)} parameters differ"
        lines.append(f"the gradient of {worst} differs by {apart[worst]:.3g} ({many})")
    return "; ".join(lines)
