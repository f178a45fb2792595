"""Runs an extraction on a Ray cluster whose machines share no disk.

Actors load the extractor once and get the batches of one machine; Ray Data cuts blocks of its own, so that records
could differ in their last bits. The calling process alone writes. The cluster is trusted: processes exchange pickled
objects.
"""

import os
import signal
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from vlcli.detection import Extractor
from vlcli.errors import ComponentError, VlcliError
from vlcli.progress import Progress

INSTALL = "pip install 'vlcli[ray]'"
IN_FLIGHT = 3  # Batches that a worker has: one in the network, the others fetched and decoded meanwhile
TRIES = 5  # Workers that may die over one batch, or one after another as they start
PATIENCE = 60.0  # Seconds without a worker after which a line says so
REACH = 10.0  # Seconds in which a cluster that is named must answer
AHEAD = 64  # Batches planned ahead


class Worker:
    """A process of the cluster with a copy of the extractor."""

    def __init__(self, threads: int) -> None:
        self.threads, self.turn = threads, threading.Lock()

    def start(self, extractor: Extractor, device: str) -> None:
        torch.set_num_threads(self.threads)
        self.extractor = extractor.to(device)

    def extract(self, batch: Any, decode: Callable[..., Any], extract: Callable[..., Any]) -> Any:
        """Decodes a batch beside others, then extracts it alone."""
        torch.set_num_threads(self.threads)  # a setting of each thread
        items = decode(batch, self.extractor.preparation)
        with self.turn:
            return extract(self.extractor, items)


@dataclass
class _Hand:
    actor: Any
    ready: bool = False
    load: int = 0


@dataclass
class _Sent:
    hand: _Hand
    batch: list[Any] | None = None  # None: to start
    deaths: int = 0


class RayCluster:
    """Extracts on the Ray cluster that ``RAY_ADDRESS`` names or this machine belongs to, else on one of this machine.

    Args:
        workers: 0: one for each GPU of the cluster, where it has none one for each ``threads`` cores.
        threads: of a worker on a CPU.
        device: ``auto``, ``cuda`` or ``cpu``; each worker on ``cuda`` has one GPU.

    Raises ComponentError: Ray is not installed.
    """

    def __init__(self, workers: int, threads: int, device: str, progress: Progress) -> None:
        self.workers, self.threads, self.device, self.progress = workers, threads, device, progress
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray
        except ImportError:
            raise ComponentError("Ray is not installed.", where="engine: ray", hint=INSTALL) from None
        self.ray: Any = ray
        self.hands: list[_Hand] = []
        self.sent: dict[Any, _Sent] = {}
        self.again: list[_Sent] = []
        self.false_starts = 0

    def map(self, function: Callable[..., Any], parts: Sequence[Any], *shared: Any) -> list[Any]:
        """Return ``function(part, *shared)`` of each part, in order."""
        task = self.ray.remote(function).options(num_cpus=0, max_retries=TRIES, scheduling_strategy="SPREAD")
        return list(self._get([task.remote(part, *shared) for part in parts]))

    def extract(
        self,
        batches: Iterator[list[Any]],
        extractor: Extractor,
        load: Callable[[list[Any]], list[Any]],
        decode: Callable[..., Any],
        extract: Callable[..., Any],
    ) -> Generator[Any, None, None]:
        """Yields the records of each batch as it ends; another worker does what a dead one had.

        Args:
            batches: items with a ``path``; read in a thread.
            extractor: sent to every worker once.
            load: returns what is sent of a batch; called in this process.
            decode: takes that and the preparation; called in workers, side by side.
            extract: takes the extractor and the decoded items; called in workers, one batch at a time.

        Raises:
            VlcliError: no cluster, or workers die over the same pictures.
        """
        with _joined(self.ray, self.workers * self.threads):
            resources = self.ray.cluster_resources()
            gpus, cores = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
            on_gpu = self.device.startswith("cuda") or (self.device == "auto" and gpus > 0)
            self.device = "cuda" if on_gpu else "cpu"
            self.stored = self._put(extractor)
            self.kind = self.ray.remote(Worker).options(
                num_cpus=self.threads, num_gpus=int(on_gpu), max_concurrency=IN_FLIGHT, max_restarts=0
            )
            planner = ThreadPoolExecutor(1, "plan")
            planned = deque(planner.submit(next, batches, None) for _ in range(AHEAD))
            ended, self.since = False, time.monotonic()
            try:
                for _ in range(self.workers or max(1, gpus if on_gpu else cores // self.threads)):
                    self._hire()
                while self._busy() or not ended:
                    while free := [hand for hand in self.hands if hand.ready and hand.load < IN_FLIGHT]:
                        if self.again:
                            sent = self.again.pop()
                        elif not ended and planned[0].done():
                            sent = _Sent(free[0], planned.popleft().result())
                            planned.append(planner.submit(next, batches, None))
                            ended = sent.batch is None
                        else:
                            break
                        if sent.batch is not None:
                            sent.hand = min(free, key=lambda each: each.load)
                            sent.hand.load += 1
                            self.sent[sent.hand.actor.extract.remote(load(sent.batch), decode, extract)] = sent
                    for ref in self._finished():
                        records = self._take(ref)
                        if records is not None:
                            yield records
                    self._mention()
            finally:
                planner.shutdown(wait=False, cancel_futures=True)
                for hand in self.hands:
                    self.ray.kill(hand.actor)

    def _mention(self) -> None:
        if any(hand.ready for hand in self.hands):
            self.since = float("inf")
        elif time.monotonic() - self.since > PATIENCE:
            self.since = float("inf")
            has = {name: self.ray.cluster_resources().get(name, 0) for name in ("CPU", "GPU")}
            wanted = f"{len(self.hands)} workers with {self.threads} CPU each on {self.device}"
            self.progress.warn(f"waiting for the Ray cluster: {wanted} asked for; it has {has}")

    def _busy(self) -> bool:
        return bool(self.again) or any(sent.batch is not None for sent in self.sent.values())

    def _finished(self) -> list[Any]:
        if not self.sent:
            time.sleep(0.02)
            return []
        done, _ = self.ray.wait(list(self.sent), num_returns=1, timeout=1.0 if self._busy() else 0.1)
        return list(done)

    def _hire(self) -> None:
        hand = _Hand(self.kind.remote(self.threads))
        self.hands.append(hand)
        self.sent[hand.actor.start.remote(self.stored, self.device)] = _Sent(hand)

    def _take(self, ref: Any) -> Any:
        sent = self.sent.pop(ref)
        try:
            records = self._get(ref)
        except self.ray.exceptions.RayError as error:
            self._lost(sent, error)
            return None
        if sent.batch is None:
            sent.hand.ready, self.false_starts = True, 0
            return None
        sent.hand.load -= 1
        return records

    def _get(self, refs: Any) -> Any:
        try:
            return self.ray.get(refs)
        except self.ray.exceptions.RayTaskError as error:  # what a worker raised, as it was
            raise (error.cause or error) from None

    def _put(self, extractor: Extractor) -> Any:
        try:
            return self.ray.put(extractor)
        except TypeError as error:
            what, where = "The extractor cannot be sent to other processes.", type(extractor).__name__
            hint = "extract it on one machine: engine=local"
            raise ComponentError(what, where=where, got=str(error).split("\n")[0], hint=hint) from None

    def _lost(self, sent: _Sent, error: Exception) -> None:
        if sent.hand in self.hands:
            self.hands.remove(sent.hand)
            self.ray.kill(sent.hand.actor)  # where it only went out of reach
            self.progress.warn("a worker of the Ray cluster died: others do what it had")
            self._hire()
        if sent.batch is None:
            self.false_starts += 1
            what, where = "Workers of the Ray cluster die as they start.", ""
            hint = "is vlcli installed on all machines?"
        else:
            self.again.append(replace(sent, deaths=sent.deaths + 1))
            what, where = "Workers of the Ray cluster die over the same pictures.", str(sent.batch[0].path)
            hint = "is their memory large enough? a smaller batch_size takes less; what is done is kept"
        if max(self.false_starts, sent.deaths + 1) >= TRIES:
            got = f"{TRIES} deaths; the last: {' '.join(str(error).split())[:300]}"
            raise VlcliError(what, where=where, got=got, hint=hint)


@contextmanager
def _joined(ray: Any, cores: int) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _join(ray, cores)
        if threading.current_thread() is threading.main_thread():
            for number, handler in handlers.items():  # Ray sets its own
                signal.signal(number, handler)
        yield
    finally:
        ray.shutdown()


def _join(ray: Any, cores: int) -> None:
    # Joins what RAY_ADDRESS names, or the cluster of this machine; where there is none, begins one
    named = os.environ.get("RAY_ADDRESS", "")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if named != "local":
        try:
            host, _, port = named.rpartition("://")[2].rpartition(":")
            if host and port.isdigit():  # Ray itself tries for minutes
                socket.create_connection((host, int(port)), timeout=REACH).close()
            ray.init(address=named or "auto", **quiet)
            return
        except (OSError, RuntimeError, ValueError) as error:
            if named or not isinstance(error, ConnectionError):
                where, got = f"RAY_ADDRESS={named}" if named else "this machine's cluster", str(error).split("\n")[0]
                hint = "start it, or unset RAY_ADDRESS: the extraction then begins a cluster on this machine"
                raise VlcliError("The Ray cluster cannot be joined.", where=where, got=got, hint=hint) from None
    ray.init(address="local", num_cpus=max(cores, os.cpu_count() or 1), include_dashboard=False, **quiet)
