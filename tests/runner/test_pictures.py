"""Pictures that a stage read and that change: the stage runs again, with a line; nothing else does."""

from __future__ import annotations

import importlib
import os
import sys

import pytest

from tests.runner.fakes import Told, _importer, go, planned
from vlcli.recipe import pictures, stage_record
from vlcli.recipe.pictures import note_pictures


@pytest.fixture
def album(world, monkeypatch):
    """The extract stage of the world reads three files."""
    folder = world / "album"
    folder.mkdir()
    for name in "abc":
        (folder / f"{name}.png").write_bytes(name.encode() * 100)
    stage = sys.modules["vlcli.stages.extract"]
    plain = stage.run

    def run(context):
        note_pictures([*sorted(folder.iterdir()), "s3://somewhere/d.png"])
        return plain(context)

    monkeypatch.setattr(stage, "run", run)
    monkeypatch.setattr(importlib, "import_module", _importer({k: m for k, m in sys.modules.items() if "stages" in k}))
    go(until="regions")
    return folder


def why(**options):
    told = Told()
    outcome = go(until="regions", progress=told, **options)["regions"]
    return outcome, "\n".join(told.lines)


def test_replaced_pictures_are_told_and_make_the_stage_and_what_builds_on_it_run(album):
    assert planned(until="pretrain")[1]["regions"] == "skip"
    before = stage_record.read(album.parent / "runs/mine/regions").fingerprint
    (album / "b.png").write_bytes(b"B" * 100)  # of the same size
    assert planned(until="pretrain")[1] == {"regions": "run", "pretrain": "run"}
    outcome, _ = why()
    assert outcome.action == "run"
    assert outcome.folder.parent.name != "mine"  # nothing finished is overwritten
    assert "b.png has changed" in outcome.why
    assert stage_record.read(outcome.folder).fingerprint != before
    assert planned(until="regions")[1] == {"regions": "skip"}


def test_other_times_with_the_same_content_change_nothing(album):
    for path in album.iterdir():
        os.utime(path, (1, 1))
    assert planned(until="regions")[1] == {"regions": "skip"}


def test_the_same_size_and_time_do_not_hide_another_content(album):
    facts = (album / "a.png").stat()
    (album / "a.png").write_bytes(b"A" * 100)
    os.utime(album / "a.png", ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert planned(until="regions")[1] == {"regions": "run"}


def test_of_many_bytes_the_times_decide(album, monkeypatch):
    monkeypatch.setattr(pictures, "HASHED", 10)
    go(until="regions", force=True)
    assert planned(until="regions")[1] == {"regions": "skip"}
    os.utime(album / "a.png", (1, 1))
    assert "a.png has changed" in why()[0].why


def test_a_picture_that_is_gone_is_named_with_the_number_of_others(album):
    (album / "a.png").unlink()
    (album / "c.png").write_bytes(b"")
    assert "a.png is gone, and 1 more of 3 pictures" in why()[0].why


def test_a_run_that_failed_does_not_go_on_with_other_pictures(album, monkeypatch):
    record = stage_record.read(album.parent / "runs/mine/regions")
    record.status = "failed"
    stage_record.write(album.parent / "runs/mine/regions", record)
    assert planned(until="regions")[1] == {"regions": "resume"}
    (album / "b.png").write_bytes(b"other")
    outcome, _ = why()
    assert outcome.action == "run"
    assert "starts anew" in outcome.why
    assert (album.parent / "runs/mine/regions.old-1").is_dir()


def test_a_picture_that_changes_while_the_stage_runs_is_told(album, monkeypatch):
    stage = sys.modules["vlcli.stages.extract"]
    plain = stage.run

    def run(context):
        result = plain(context)
        (album / "c.png").write_bytes(b"meanwhile")
        return result

    monkeypatch.setattr(stage, "run", run)
    outcome, lines = why(force=True)
    assert "while this stage ran, data changed" in lines
    assert "c.png has changed" in outcome.notes[-1]
    assert planned(until="regions")[1] == {"regions": "run"}
