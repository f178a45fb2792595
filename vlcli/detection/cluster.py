"""Extraction by a Ray cluster whose machines share no disk: batches go to workers, records come back.

Ray's actors rather than Ray Data: a worker loads the extractor once, and gets the batches that one machine would cut,
from the whole list; Ray Data cuts blocks of its own, so that records could differ in their last bits. This process
alone writes: its unfinished stores (:mod:`vlcli.features.writer`) are those of any extraction, so that what a cluster
began one machine may end. The cluster is trusted: Ray's processes send one another pickled objects.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Full, Queue
from typing import Any

import torch

from vlcli.detection.extraction_report import Failure
from vlcli.detection.extractor import Extractor, Preparation, Prepared
from vlcli.detection.jobs import Items, Job, Made, input_sizes, make_records, prepare_all, read_regions
from vlcli.errors import ComponentError, VlcliError
from vlcli.features.reader import FeatureStore
from vlcli.images.files import BadImageError, read_content
from vlcli.progress import Progress, Silent

INSTALL = "pip install 'vlcli[ray]'"
IN_FLIGHT = 3
"""Batches that a worker has: one in the network, the others fetched and decoded meanwhile."""
TRIES = 5
"""Workers that may die over one batch, or one after another as they start."""
PATIENCE = 60.0
"""Seconds without a worker after which a line says so."""
REACH = 10.0
"""Seconds in which a cluster that is named must answer."""
AHEAD, LOOKED = 64, 64
"""Batches planned ahead, and remote headers that one task reads."""


class Worker:
    """One process of the cluster, with its own copy of the extractor."""

    def __init__(self, threads: int) -> None:
        self.threads, self.turn = threads, threading.Lock()
        self.extractor: Extractor | None = None

    def start(self, extractor: Extractor, device: str) -> None:
        """Take the extractor to the device."""
        torch.set_num_threads(self.threads)
        self.extractor = extractor.to(device)

    def extract(self, batch: list[Job | Prepared | Failure]) -> Made:
        """Decode a batch beside others, and extract it when it is its turn."""
        assert self.extractor is not None
        torch.set_num_threads(self.threads)  # a setting of each thread
        jobs = [item for item in batch if isinstance(item, Job)]
        items: Items = [item for item in batch if not isinstance(item, Job)]
        items += prepare_all(jobs, self.extractor.preparation)
        with self.turn:
            return make_records(self.extractor, items)


@dataclass
class _Hand:
    actor: Any
    ready: bool = False
    load: int = 0


@dataclass
class _Sent:
    hand: _Hand
    batch: list[Job] | None = None
    deaths: int = 0


class RayCluster:
    """Extracts on the Ray cluster that ``RAY_ADDRESS`` names or this machine belongs to, else on one of this machine.

    Args:
        workers: how many; 0: one for each GPU of the cluster, where it has none one for each ``threads`` cores.
        threads: of a worker on a CPU.
        device: ``auto``, ``cuda`` or ``cpu``; each worker on ``cuda`` has one GPU.
        progress: where to report.

    Raises:
        ComponentError: Ray is not installed.
    """

    def __init__(
        self, workers: int = 0, threads: int = 1, device: str = "auto", progress: Progress | None = None
    ) -> None:
        self.workers, self.threads, self.device = workers, threads, device
        self.progress = progress or Silent()
        self.ray = _imported()

    def input_sizes(self, jobs: Sequence[Job], preparation: Preparation) -> list[tuple[int, int]]:
        """As :func:`vlcli.detection.jobs.input_sizes`; headers of remote pictures are read by the cluster."""
        near, far = ([job for job in jobs if job.far is there] for there in (False, True))
        look = self.ray.remote(input_sizes).options(num_cpus=0, max_retries=TRIES, scheduling_strategy="SPREAD")
        asked = [look.remote(far[start : start + LOOKED], preparation) for start in range(0, len(far), LOOKED)]
        known = dict(zip([job.id for job in near], input_sizes(near, preparation), strict=True))
        with self._translated():
            sizes = [size for part in self.ray.get(asked) for size in part]
        known |= zip([job.id for job in far], sizes, strict=True)
        return [known[job.id] for job in jobs]

    def extract(
        self, batches: Iterator[list[Job]], extractor: Extractor, source: FeatureStore | None = None
    ) -> Generator[Made, None, None]:
        """What becomes of each batch, in the order in which they end.

        Raises:
            VlcliError: no cluster, or workers die over the same pictures.
        """
        with _joined(self.ray, self.workers * self.threads):
            gpus, count = self._room()
            crew = _Crew(self, extractor, source, gpus)
            try:
                with closing(_Planned(batches)) as planned:
                    yield from crew.work(planned, count)
            finally:
                crew.dismiss()

    def _room(self) -> tuple[int, int]:
        there = self.ray.cluster_resources()
        gpus, cores = int(there.get("GPU", 0)), int(there.get("CPU", 1))
        on_gpu = self.device.startswith("cuda") or (self.device == "auto" and gpus > 0)
        return int(on_gpu), self.workers or max(1, gpus if on_gpu else cores // self.threads)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self.ray.exceptions.RayTaskError as error:
            raise (error.cause or error) from None


class _Crew:
    def __init__(self, cluster: RayCluster, extractor: Extractor, source: FeatureStore | None, gpus: int) -> None:
        self.cluster, self.ray, self.source = cluster, cluster.ray, source
        self.device = "cuda" if gpus else "cpu"
        self.stored = _put(self.ray, extractor)
        self.kind = self.ray.remote(Worker).options(
            num_cpus=cluster.threads, num_gpus=gpus, max_concurrency=IN_FLIGHT, max_restarts=0
        )
        self.hands: list[_Hand] = []
        self.sent: dict[Any, _Sent] = {}
        self.again: list[_Sent] = []
        self.false_starts = 0
        self.since = time.monotonic()

    def work(self, planned: _Planned, count: int) -> Generator[Made, None, None]:
        """Hand out the batches and take what comes back; another worker does what a dead one had."""
        for _ in range(count):
            self._hire()
        while self._busy() or not planned.ended:
            self._hand_out(planned)
            for ref in self._ended():
                made = self._take(ref)
                if made is not None:
                    yield made
            self._mention()

    def _ended(self) -> list[Any]:
        if not self.sent:
            time.sleep(0.02)
            return []
        done, _ = self.ray.wait(list(self.sent), num_returns=1, timeout=1.0 if self._busy() else 0.1)
        return list(done)

    def dismiss(self) -> None:
        """End the workers."""
        for hand in self.hands:
            self.ray.kill(hand.actor)

    def _busy(self) -> bool:
        return bool(self.again) or any(sent.batch is not None for sent in self.sent.values())

    def _hire(self) -> None:
        hand = _Hand(self.kind.remote(self.cluster.threads))
        self.hands.append(hand)
        self.sent[hand.actor.start.remote(self.stored, self.device)] = _Sent(hand)

    def _hand_out(self, planned: _Planned) -> None:
        while free := [hand for hand in self.hands if hand.ready and hand.load < IN_FLIGHT]:
            hand = min(free, key=lambda each: each.load)
            again = self.again.pop() if self.again else None
            batch = planned.next() if again is None else again.batch
            if batch is None:
                return
            hand.load += 1
            sent = _Sent(hand, batch, 0 if again is None else again.deaths)
            self.sent[hand.actor.extract.remote(self._loaded(batch))] = sent

    def _loaded(self, batch: list[Job]) -> list[Job | Prepared | Failure]:
        if self.source is not None:
            return [read_regions(job, self.source) for job in batch]
        return [job if job.far else _with_content(job) for job in batch]

    def _take(self, ref: Any) -> Made | None:
        sent = self.sent.pop(ref)
        try:
            with self.cluster._translated():
                made: Made | None = self.ray.get(ref)
        except self.ray.exceptions.RayError as error:
            self._lost(sent, error)
            return None
        if sent.batch is None:
            sent.hand.ready, self.false_starts = True, 0
            return None
        sent.hand.load -= 1
        return made

    def _lost(self, sent: _Sent, error: Exception) -> None:
        if sent.hand in self.hands:
            self.hands.remove(sent.hand)
            self.ray.kill(sent.hand.actor)  # where it only went out of reach
            self.cluster.progress.warn("a worker of the Ray cluster died: others do what it had")
            self._hire()
        if sent.batch is None:
            self.false_starts += 1
        else:
            self.again.append(replace(sent, deaths=sent.deaths + 1))
        if max(self.false_starts, sent.deaths + 1) >= TRIES:
            raise _deaths(sent, error)

    def _mention(self) -> None:
        if any(hand.ready for hand in self.hands):
            self.since = float("inf")
        elif time.monotonic() - self.since > PATIENCE:
            self.since = float("inf")
            there = {name: self.ray.cluster_resources().get(name, 0) for name in ("CPU", "GPU")}
            wanted = f"{len(self.hands)} workers with {self.cluster.threads} CPU each on {self.device}"
            self.cluster.progress.warn(f"waiting for the Ray cluster: {wanted} asked for; it has {there}")


class _Planned:
    def __init__(self, batches: Iterator[list[Job]]) -> None:
        self.ended = False
        self._queue: Queue[list[Job] | BaseException | None] = Queue(AHEAD)
        self._closed = threading.Event()
        threading.Thread(target=self._fill, args=(batches,), name="plan", daemon=True).start()

    def next(self) -> list[Job] | None:
        """The next batch; None where none is planned yet, or there is no further one."""
        try:
            found = None if self.ended else self._queue.get_nowait()
        except Empty:
            return None
        if isinstance(found, BaseException):
            raise found
        self.ended = found is None
        return found

    def close(self) -> None:
        """Plan no more."""
        self._closed.set()

    def _fill(self, batches: Iterator[list[Job]]) -> None:
        try:
            for batch in batches:
                self._put(batch)
                if self._closed.is_set():
                    return
            self._put(None)
        except BaseException as error:  # raised again where batches are taken
            self._put(error)

    def _put(self, item: list[Job] | BaseException | None) -> None:
        while not self._closed.is_set():
            try:
                return self._queue.put(item, timeout=0.2)
            except Full:
                continue
        return None


def _with_content(job: Job) -> Job | Failure:
    assert isinstance(job.path, Path)
    try:
        return replace(job, content=read_content(job.path))
    except BadImageError as error:
        return Failure(job.id, str(job.path), str(error))


def _imported() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ComponentError("Ray is not installed.", where="engine: ray", hint=INSTALL) from None
    return ray


@contextmanager
def _joined(ray: Any, cores: int) -> Iterator[None]:
    if ray.is_initialized():
        yield
        return
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        _join(ray, cores)
        if threading.current_thread() is threading.main_thread():
            for number, handler in kept.items():  # Ray sets its own
                signal.signal(number, handler)
        yield
    finally:
        ray.shutdown()


def _join(ray: Any, cores: int) -> None:
    # Join what ``RAY_ADDRESS`` names, or the cluster of this machine; where there is none, begin one
    named = os.environ.get("RAY_ADDRESS", "")
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    if named != "local":
        try:
            _reach(named)
            ray.init(address=named or "auto", **quiet)
            return
        except (OSError, RuntimeError, ValueError) as error:
            if named or not isinstance(error, ConnectionError):
                where, got = f"RAY_ADDRESS={named}" if named else "this machine's cluster", str(error).split("\n")[0]
                hint = "start it, or unset RAY_ADDRESS: the extraction then begins a cluster on this machine"
                raise VlcliError("The Ray cluster cannot be joined.", where=where, got=got, hint=hint) from None
    cores = max(cores, os.cpu_count() or 1)
    ray.init(address="local", num_cpus=cores, include_dashboard=False, **quiet)


def _reach(address: str) -> None:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=REACH).close()


def _put(ray: Any, extractor: Extractor) -> Any:
    try:
        return ray.put(extractor)
    except TypeError as error:
        got, hint = str(error).split("\n")[0], "extract it on one machine: engine=local"
        name = type(extractor).__name__
        raise ComponentError(
            "The extractor cannot be sent to other processes.", where=name, got=got, hint=hint
        ) from None


def _deaths(sent: _Sent, error: Exception) -> VlcliError:
    words = " ".join(str(error).split())[:300]
    if sent.batch is None:
        what, where, hint = "Workers of the Ray cluster die as they start.", "", "is vlcli installed on all machines?"
    else:
        what, where = "Workers of the Ray cluster die over the same pictures.", str(sent.batch[0].path)
        hint = "is their memory large enough? a smaller batch_size takes less; what is done is kept"
    return VlcliError(what, where=where, got=f"{TRIES} deaths; the last: {words}", hint=hint)
