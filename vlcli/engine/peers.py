"""Ends processes that train together, with one message, when one of them dies or hangs.

A thread of each process holds a connection to rank 0, which closes when the process dies. Rank 0 prints the message
(rank 1 if rank 0 is gone) and ends the others. A process hangs if for ``hang_timeout`` seconds it has not begun a step
that others have begun, has not changed its work (:mod:`vlcli.engine.pulse`), or its thread has not answered.
"""

import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from vlcli.engine import processes, pulse
from vlcli.errors import VlcliError
from vlcli.stopping import LAUNCHER, Stopped

BEAT = pulse.EVERY
_GRACE = 2.0
_FOLLOWING = 20.0
GONE = "its connection closed without a word: it was killed, perhaps because memory ran out"
HINT = "run the same command again: it goes on from the last checkpoint"


class Watch:
    """Connections and state of this process; see :func:`watched`."""

    def __init__(self, rank: int, world: int, hang_timeout: float) -> None:
        self.rank, self.world, self.hang_timeout = rank, world, hang_timeout
        self.told = threading.Lock()  # held by the thread that reports how the run ended
        self.steps: dict[int, int] = {}
        self.heard: dict[int, float] = {}
        self.works: dict[int, tuple[float, str, str]] = {}  # seconds, what, line of code: see pulse.look
        self.links: dict[int, socket.socket] = {}
        self.left: set[int] = set()
        self.newest, self.since = -1, time.monotonic()
        self.over = False

    def open(self) -> None:
        """Connect to rank 0 and start the thread; every process calls this."""
        address, listening = os.environ.get("MASTER_ADDR", "127.0.0.1"), None
        if self.rank == 0:
            try:
                listening = socket.create_server((address, 0))
            except OSError:  # behind a translated address
                listening = socket.create_server(("", 0))
        port_and_word = (listening.getsockname()[1], secrets.token_hex(8)) if listening else None
        port, word = processes.share(port_and_word)
        if listening:
            self._accept(listening, word)
        else:
            with suppress(OSError):  # nothing gets through (a firewall): this process goes unwatched
                link = socket.create_connection((address, port), _FOLLOWING)
                link.settimeout(None)
                self.links[0] = link
                self._say(0, sender=self.rank, word=word)
        processes.wait()
        threading.Thread(target=self._lead if self.rank == 0 else self._follow, daemon=True).start()

    def _accept(self, listening: socket.socket, word: str) -> None:
        listening.settimeout(_FOLLOWING)
        with listening, suppress(TimeoutError):
            while len(self.links) < self.world - 1:
                link, _ = listening.accept()
                link.settimeout(_FOLLOWING)
                with suppress(OSError, ValueError, KeyError):
                    hello = json.loads(_line(link))
                    if hello["word"] == word:
                        self.links[hello["sender"]] = link
                        self.heard[hello["sender"]] = time.monotonic()
        for link in self.links.values():
            link.settimeout(5)

    def _say(self, rank: int, **message: Any) -> None:
        link = self.links.get(rank)
        if link is not None:
            with suppress(OSError):
                link.sendall(json.dumps(message).encode() + b"\n")

    def at(self, step: int) -> None:
        if self.rank:
            self._say(0, at=step)
        else:
            self._note(0, step)

    def _note(self, rank: int, step: int) -> None:
        self.steps[rank] = step
        if step > self.newest:
            self.newest, self.since = step, time.monotonic()

    def bye(self) -> None:
        """Called when this process has finished or was asked to end."""
        self.over = True
        for rank in self.links:
            self._say(rank, bye=True)

    def failed(self, error: Exception) -> None:
        """Called with an error of this process; ends it if another process prints the message."""
        if _is_consequence(error):
            time.sleep(_FOLLOWING)  # meanwhile the thread learns which process is gone, and ends this one
        if self.rank == 0:
            if not self.told.acquire(blocking=False):
                time.sleep(_FOLLOWING)
            self._end_others()
        elif 0 in self.links:
            self._say(0, failed=str(error))
            time.sleep(_FOLLOWING)

    def _end_others(self) -> None:
        self.over = True
        for rank in self.links:
            self._say(rank, end=True)

    def _lead(self) -> None:
        selector = selectors.DefaultSelector()
        for rank, link in self.links.items():
            selector.register(link, selectors.EVENT_READ, rank)
        rest: dict[int, bytes] = {}
        beaten = time.monotonic()
        while not self.over and len(self.left) < len(self.links):
            for key, _ in selector.select(BEAT):
                data = _read(self.links[key.data])
                lines = (rest.pop(key.data, b"") + data).split(b"\n")
                rest[key.data] = lines.pop()
                for line in lines:
                    self._hear(key.data, json.loads(line))
                if not data:
                    selector.unregister(key.fileobj)
                    self._lost(key.data)
            if time.monotonic() - beaten > BEAT:
                self._wake(time.monotonic() - beaten)
                beaten = time.monotonic()
                for rank in self.links:
                    self._say(rank, beat=True)
                self.works[0] = pulse.look()
                self._check()

    def _wake(self, gap: float) -> None:
        # While this process itself stood still (SIGSTOP), no other one counts as hung.
        if gap > 5 * BEAT:
            self.since += gap
            self.heard = {rank: time.monotonic() for rank in self.heard}

    def _hear(self, rank: int, message: dict[str, Any]) -> None:
        self.heard[rank] = time.monotonic()
        if "works" in message:
            seconds, doing, where = message["works"]
            self.works[rank] = (seconds, doing, where)
        elif "at" in message:
            self._note(rank, message["at"])
        elif "bye" in message:
            self.left.add(rank)
        elif "failed" in message:
            self.left.add(rank)
            time.sleep(_GRACE)  # rank 0 may fail for the same reason, and then reports it as usual
            self._tell(f"Process {rank} of {self.world} failed.", rank, message["failed"])

    def _lost(self, rank: int) -> None:
        if rank not in self.left and not self.over:
            self._tell(f"Process {rank} of {self.world} is gone; the others are ended too.", rank, GONE)

    def _check(self) -> None:
        now = time.monotonic()
        for rank in range(self.world):
            step = self.steps.get(rank, -1)
            if step < self.newest and rank in self.steps and now - self.since > self.hang_timeout:
                got = f"it has not begun step {self.newest + 1}, which others began {now - self.since:.0f} s ago"
                doing, where = self.works.get(rank, (0, "", ""))[1:]
                got += f"; it {doing}" if doing and doing != pulse.COMPUTES else ""
                got += f" at {where}" if where else ""
            elif now - self.heard.get(rank, now) > self.hang_timeout and rank not in self.left:
                got = f"nothing was heard of it for {now - self.heard[rank]:.0f} s"
            else:
                continue
            self._tell(f"Process {rank} of {self.world} hangs; the others are ended.", rank, got)
        self._check_works()

    def _check_works(self) -> None:
        # A process that computes may wait inside a collective operation for another one: it is named only if none does
        # anything else.
        late = {
            rank: work for rank, work in self.works.items() if work[0] > self.hang_timeout and rank not in self.left
        }
        if all(work[1] == pulse.WAITS for work in late.values()) and len(late) < self.world:
            return
        near = {rank: work for rank, work in self.works.items() if work[0] > 0.8 * self.hang_timeout}
        causes = [rank for rank, work in near.items() if work[1] not in (pulse.COMPUTES, pulse.WAITS)]
        if causes:
            rank = causes[0]
            seconds, doing, where = near[rank]
            got = f"it {doing} for {seconds:.0f} s, at {where}"
            self._tell(f"Process {rank} of {self.world} hangs; the others are ended.", rank, got)
        elif len(near) == self.world:
            told = "; ".join(f"rank {rank} {work[1]} at {work[2]}" for rank, work in sorted(near.items()))
            got = f"no process got on for {min(work[0] for work in near.values()):.0f} s: {told}"
            self._tell(f"All {self.world} processes of this run hang, and are ended.", 0, got)

    def _follow(self) -> None:
        rest = b""
        while (link := self.links.get(0)) is not None and not self.over:
            data = _read(link)
            lines = (rest + data).split(b"\n")
            rest = lines.pop()
            for message in map(json.loads, lines):
                if "end" in message:
                    os._exit(VlcliError.exit_code)
                if "bye" in message:
                    return
                self._say(0, works=pulse.look())
            if not data:
                break
        else:
            return
        if self.over:
            return
        if self.rank > 1:
            time.sleep(_GRACE)
            os._exit(VlcliError.exit_code)
        self._tell(f"Process 0 of {self.world} is gone; the others are ended too.", 0, GONE)

    def _tell(self, what: str, rank: int, got: str) -> None:
        if not self.told.acquire(blocking=False):
            return
        if got != GONE or LAUNCHER not in os.environ:  # the launcher also knows which signal it was
            hint = pulse.HINT if "hang" in what else HINT
            error = VlcliError(what, where=f"rank {rank}", got=got.replace("\n", "\n    "), hint=hint)
            with suppress(OSError):
                sys.stderr.write(f"error: {error}\n")
                sys.stderr.flush()
        if self.rank == 0:
            self._end_others()
        os._exit(VlcliError.exit_code)


def _read(link: socket.socket) -> bytes:
    try:
        return link.recv(1 << 16)
    except OSError:
        return b""


def _line(link: socket.socket) -> bytes:
    line = b""
    while (byte := link.recv(1)) not in (b"", b"\n") and len(line) < 1000:
        line += byte
    return line


def _is_consequence(error: Exception) -> bool:
    names = {kind.__name__ for kind in type(error).__mro__}
    words = ("gloo", "nccl", "connection closed by peer", "connection reset by peer", "timed out waiting")
    text = str(error).lower()
    return "DistError" in names or (isinstance(error, RuntimeError) and any(word in text for word in words))


_current: list[Watch] = []


def at(step: int) -> None:
    """Report that this process begins a step, if it is watched."""
    if _current:
        _current[-1].at(step)


@contextmanager
def watched() -> Iterator[None]:
    """Watch the processes of an initialised process group meanwhile.

    Raises:
        VlcliError: a collective operation failed because another process is gone or does not answer.
    """
    if processes.world() == 1:
        yield
        return
    watch = Watch(processes.rank(), processes.world(), processes.hang_timeout())
    watch.open()
    _current.append(watch)
    try:
        yield
    except (Stopped, KeyboardInterrupt):
        watch.bye()
        raise
    except Exception as error:
        watch.failed(error)
        if _is_consequence(error):
            began = f"all had begun step {watch.newest + 1}" if watch.newest >= 0 else "before the first step"
            what, where = "The processes of this run lost one another.", f"rank {watch.rank} of {watch.world}, {began}"
            got = str(error).strip().split("\n")[0]
            expected = f"an answer within {watch.hang_timeout:.0f} s (`hang_timeout` of the recipe)"
            raise VlcliError(what, where=where, got=got, expected=expected, hint=HINT) from error
        raise
    else:
        watch.bye()
    finally:
        _current.remove(watch)
