"""A writer that dies, and a disk that ends."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import time

import pytest

from tests.features._world import MeanColour, make_images, make_record
from vlcli.detection.extraction import extract_images
from vlcli.errors import VlcliError
from vlcli.features import FeatureStore, FeatureWriter, verify
from vlcli.features import writer as writing
from vlcli.features.writer import _disk_error

COUNT = 60


def _write(path, pause):
    writer = FeatureWriter(path, flush_every=2)
    for number in range(COUNT):
        if f"im{number}" not in writer:
            writer.append(make_record(f"im{number}", number, rows=number % 9))
            time.sleep(pause)
    writer.finish([f"im{number}" for number in range(COUNT)])


def _extract(images, path, pause):
    class Slow(MeanColour):
        def extract(self, batch):
            time.sleep(pause)
            return super().extract(batch)

    extractor = Slow()
    extractor.provenance = lambda: {"extractor": "slow"}
    original = writing.FeatureWriter.append

    def append(self, record):
        original(self, record)
        if len(self) % 3 == 0:
            self.flush()

    writing.FeatureWriter.append = append
    extract_images(images, extractor, path, batch_size=4)


def _killed_runs(work, args, path, rounds, longest):
    """Kill at random moments; after each kill what is there opens and is sound. Then let one run end."""
    rng = random.Random(7)
    context = multiprocessing.get_context("fork")
    seen = []
    for _ in range(rounds):
        process = context.Process(target=work, args=args)
        process.start()
        if not seen:  # however slow the machine is, some kills find a file
            _wait_for_a_file(process, path)
        time.sleep(rng.random() * longest)
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        part = path.with_name(path.name + ".part")
        there = path if path.exists() else part
        if there.is_file() or any(part.glob("*.h5")):
            assert verify(there) == []
            seen.append(len(FeatureStore(there)))
    process = context.Process(target=work, args=args)
    process.start()
    process.join()
    assert process.exitcode == 0
    assert seen == sorted(seen)  # nothing that was finished is lost
    return seen


def _wait_for_a_file(process, path):
    part = path.with_name(path.name + ".part")
    until = time.monotonic() + 60
    while process.is_alive() and time.monotonic() < until:
        if path.exists() or part.is_file() or any(part.glob("*.h5")):
            return
        time.sleep(0.005)


def _kill_writer(tmp_path, rounds):
    seen = _killed_runs(_write, (tmp_path / "a.h5", 0.004), tmp_path / "a.h5", rounds, 0.25)
    _write(tmp_path / "b.h5", 0)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert not (tmp_path / "a.h5.part").exists()
    return seen


def _kill_extraction(tmp_path, rounds):
    images = make_images(tmp_path / "images", COUNT)
    seen = _killed_runs(_extract, (images, tmp_path / "a.h5", 0.01), tmp_path / "a.h5", rounds, 0.4)
    _extract(images, tmp_path / "b.h5", 0)
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    return seen


@pytest.mark.parametrize("kill", [_kill_writer, _kill_extraction])
def test_killed_at_random_moments(tmp_path, kill, monkeypatch):
    monkeypatch.setattr(writing.FeatureWriter, "append", writing.FeatureWriter.append)  # restored afterwards
    assert kill(tmp_path, 4)


@pytest.mark.slow
@pytest.mark.parametrize("kill", [_kill_writer, _kill_extraction])
def test_killed_at_twenty_random_moments(tmp_path, kill, monkeypatch):
    monkeypatch.setattr(writing.FeatureWriter, "append", writing.FeatureWriter.append)
    assert kill(tmp_path, 20)


def test_killed_between_rename_and_clean_up(tmp_path, monkeypatch):
    monkeypatch.setattr(writing.shutil, "rmtree", lambda *args, **options: None)
    _write(tmp_path / "a.h5", 0)
    monkeypatch.undo()
    assert (tmp_path / "a.h5.part").exists()
    before = (tmp_path / "a.h5").read_bytes()
    _write(tmp_path / "a.h5", 0)
    assert (tmp_path / "a.h5").read_bytes() == before
    assert not (tmp_path / "a.h5.part").exists()


def _limited(path, limit, answer):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        with FeatureWriter(path, flush_every=100) as writer:
            for number in range(100):
                writer.append(make_record(f"im{number}", number, rows=30, dim=256))
        answer.put("finished")
    except VlcliError as error:
        answer.put(str(error))


def test_file_that_cannot_grow_leaves_nothing_half_written(tmp_path):
    context = multiprocessing.get_context("fork")
    answer = context.Queue()
    process = context.Process(target=_limited, args=(tmp_path / "f.h5", 200_000, answer))
    process.start()
    message = answer.get(timeout=30)
    process.join()
    assert "cannot be written" in message
    assert "File too large (" in message
    assert "GB free" in message
    assert "errno" not in message
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("close failed, errno = 28")])
def test_full_disk_says_so(tmp_path, error):
    told = _disk_error(error, tmp_path / "f.h5")
    assert told.exit_code == 1
    assert "the disk is full" in str(told)
    assert "continues where it stopped" in str(told)


def _only_appended(images, path, pause):
    """An extraction as it is, without flushes of the test's own."""

    class Slow(MeanColour):
        def extract(self, batch):
            time.sleep(pause * len(batch))
            return super().extract(batch)

    extractor = Slow()
    extractor.provenance = lambda: {"extractor": "slow"}
    extract_images(images, extractor, path, batch_size=4)


def test_killed_early_keeps_the_first_records(tmp_path):
    images = make_images(tmp_path / "images", COUNT)
    path = tmp_path / "a.h5"
    process = multiprocessing.get_context("fork").Process(target=_only_appended, args=(images, path, 0.03))
    process.start()
    _wait_for_a_file(process, path)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    part = path.with_name("a.h5.part")
    assert verify(part) == []
    assert len(FeatureStore(part)) == writing.FIRST_RECORDS < COUNT
    _only_appended(images, path, 0)
    _only_appended(images, tmp_path / "b.h5", 0)
    assert path.read_bytes() == (tmp_path / "b.h5").read_bytes()


def test_the_first_segment_comes_early_and_the_others_as_usual(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(writing, "monotonic", lambda: now[0])
    writer = FeatureWriter(tmp_path / "a.h5", flush_every=40)
    held = []
    for number in range(100):
        writer.append(make_record(f"im{number}", number))
        if len(list(writer.part.glob("*.h5"))) > len(held):
            held.append(number + 1)
    assert held == [16, 56, 96]
    slow = FeatureWriter(tmp_path / "b.h5")
    for number, seconds in enumerate((2.0, 5.5, 20.0, 37.0)):
        now[0] = seconds
        slow.append(make_record(f"im{number}", number))
        assert len(list(slow.part.glob("*.h5"))) == (0, 1, 1, 2)[number]
