"""A loader process that dies ends the reading with one error, soon, wherever the reader is."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from typing import ClassVar

import pytest
from torch.utils.data import DataLoader

from vlcli.ahead import Ahead, from_workers
from vlcli.data.loader import BatchLoader
from vlcli.errors import VlcliError

SOON = 8.0


class Numbers(list):
    """A batch."""

    unreadable: ClassVar[dict[str, str]] = {}


class Source:
    """The worker that is asked for the batch ``deadly`` is killed, as the kernel does when memory ends."""

    deadly = -1

    def __getitems__(self, picks):
        if self.deadly in picks:
            os.kill(os.getpid(), signal.SIGKILL)
        return [Numbers(picks)]


class Order(list):
    world = 1


def loader(deadly=-1):
    source = Source()
    source.deadly = deadly
    return BatchLoader(source, {}, 2, None)


def batches(count):
    return Order([number] for number in range(count))


@pytest.fixture
def soon():
    began = time.monotonic()
    yield
    while multiprocessing.active_children() and time.monotonic() - began < SOON:
        time.sleep(0.05)
    assert time.monotonic() - began < SOON
    assert not multiprocessing.active_children()  # the other worker would be waited for at the end


def test_a_worker_that_is_killed_over_a_batch_is_told(soon):
    with pytest.raises(VlcliError, match="A process that loads data died") as caught:
        list(loader(deadly=20).over(batches(40)))
    assert "SIGKILL, perhaps because memory ran out" in caught.value.got


def test_workers_that_die_between_two_epochs_are_told(soon):
    made = loader()
    assert list(made.over(batches(4))) == [[0], [1], [2], [3]]
    multiprocessing.active_children()[0].kill()
    with pytest.raises(VlcliError, match="A process that loads data died"):
        list(made.over(batches(40)))


def test_half_a_batch_in_the_pipe_holds_nobody_up(soon):
    reader, writer = multiprocessing.Pipe(duplex=False)

    def send_half():
        os.write(writer.fileno(), (1000).to_bytes(4, "big") + b"half")
        os.kill(os.getpid(), signal.SIGKILL)

    child = multiprocessing.get_context("fork").Process(target=send_half, daemon=True)
    child.start()
    items = Ahead(iter(reader.recv, None), [child])  # this process holds an end to write to, so the pipe never ends
    with pytest.raises(VlcliError, match="A process that loads data died"):
        next(items)
    items.close()
    writer.close()


def test_a_death_is_told_while_no_worker_is_asked_for_anything(soon):
    made = loader()
    reading = iter(made.over(batches(40)))
    assert next(reading) == [0]
    here = BatchLoader(Source(), {}, 0, None)  # an evaluation without workers
    scored = iter(here.over(batches(1000)))
    assert next(scored) == [0]
    multiprocessing.active_children()[0].kill()
    time.sleep(0.3)
    with pytest.raises(VlcliError, match="A process that loads data died"):
        list(scored)


def test_a_loader_watches_no_process_of_another(soon):
    other = multiprocessing.get_context("fork").Process(target=time.sleep, args=(60,), daemon=True)
    other.start()
    source = from_workers(DataLoader(range(40), num_workers=2, batch_size=None))
    assert len(source.workers) == 2
    assert next(source) == 0
    other.kill()
    other.join()
    assert list(source) == list(range(1, 40))
    source.close()


def test_no_process_of_a_dead_loader_is_left_when_its_death_is_told(soon):
    made = loader(deadly=3)
    with pytest.raises(VlcliError, match="A process that loads data died"):
        list(made.over(batches(40)))
    assert not multiprocessing.active_children()


LEFT = """
from tests.engine.test_dead_workers import batches, loader
kept = loader()
first = iter(kept.over(batches(9)))
print(next(first), flush=True)
"""


@pytest.mark.parametrize("more", ["", "print(len(list(first)))", "raise SystemExit(3)"])
def test_a_process_ends_though_a_loader_of_its_is_open(more):
    begun = subprocess.run([sys.executable, "-c", LEFT + more], capture_output=True, text=True, timeout=60, check=False)
    assert begun.returncode == (3 if "3" in more else 0), begun.stderr
    assert begun.stdout.startswith("[0]")
    assert not begun.stderr


IN_TORCH = """
import os, sys, torch
from vlcli.ahead import Ahead, from_workers

def source():
    for number in range(100):
        for _ in range(3000 if number else 0):
            torch.ones(3) + 1
        yield number

codes = []
for _ in range(6):
    child = os.fork()
    if not child:
        reading = Ahead(source())
        next(reading), next(reading)
        raise SystemExit(3)
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(codes)
"""


def test_a_process_ends_though_its_thread_is_in_torch():
    ended = subprocess.run([sys.executable, "-c", IN_TORCH], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stdout == "[3, 3, 3, 3, 3, 3]\n", ended.stderr
    assert not ended.stderr


def test_a_loader_in_a_circle_of_references_leaves_no_process(soon):
    kept = loader()
    assert len(list(kept.over(batches(3)))) == 3
    circle = [kept]
    circle.append(circle)
    del kept, circle
    gc.collect()
