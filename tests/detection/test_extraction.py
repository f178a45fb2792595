from __future__ import annotations

import json
import multiprocessing
import os
import signal
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image

from tests.features._world import MeanColour, make_images, one_box, same
from vlcli.detection import extraction
from vlcli.detection.extraction import extract_images
from vlcli.detection.extractor import Preparation, grid_boxes
from vlcli.detection.processes import Processes
from vlcli.errors import DataError, UsageError, VlcliError
from vlcli.features import FeatureStore, verify
from vlcli.progress import Silent


def test_features_are_those_of_the_boxes(tmp_path):
    image = np.zeros((32, 64, 3), dtype=np.uint8)
    image[:, 32:] = [255, 0, 51]
    Image.fromarray(image).save(tmp_path / "a.png")
    boxes = {"a": one_box([32, 0, 64, 32], size=(32, 64))}
    report = extract_images([("a", tmp_path / "a.png")], MeanColour(short=32), tmp_path / "f.h5", boxes=boxes)
    record = FeatureStore(tmp_path / "f.h5").read("a")
    assert record.features.tolist() == [[255, 0, 51]]
    assert (record.size, record.boxes.tolist()) == ((32, 64), [[32, 0, 64, 32]])
    assert report.counts == {"images": 1, "regions": 1, "written": 1, "resumed": 0, "errors": 0}


def _engine(workers):
    return Processes(workers, 1, "cpu", Silent())


def test_workers_and_batches_do_not_change_the_file(tmp_path):
    images = make_images(tmp_path / "images", 14)
    files, engines = [], [{"cluster": _engine(1), "batch_size": 3}, {"cluster": _engine(3), "batch_size": 2}]
    ways = [{}, {"batch_size": 1}, {"batch_size": 5, "workers": 2}, {"batch_size": 3}, *engines]
    for number, options in enumerate(ways):
        extract_images(images, MeanColour(), tmp_path / f"{number}.h5", **options)
        files.append((tmp_path / f"{number}.h5").read_bytes())
    assert len(set(files)) == 1
    assert FeatureStore(tmp_path / "0.h5").ids == [name for name, _ in images]


def _spoil(images):
    reasons = {3: b"", 5: b"no image", 7: images[7][1].read_bytes()[:-200]}
    for number, content in reasons.items():
        images[number][1].write_bytes(content)
    return {images[number][0] for number in reasons}


@pytest.mark.parametrize("options", [{}, {"workers": 1}, {"cluster": _engine(2)}], ids=["thread", "worker", "engine"])
def test_bad_images_are_listed(tmp_path, options):
    images = make_images(tmp_path / "images", 9)
    bad = _spoil(images)
    report = extract_images(images, MeanColour(), tmp_path / "f.h5", batch_size=2, **options)
    assert {error.id for error in report.errors} == bad
    lines = [json.loads(line) for line in (tmp_path / "errors.jsonl").read_text().splitlines()]
    assert {line["id"] for line in lines} == bad
    assert all(line["reason"] and line["path"] for line in lines)
    assert (report.images, verify(tmp_path / "f.h5")) == (6, [])
    make_images(tmp_path / "images", 9)  # repaired: only they are done, and the list goes
    again = extract_images(images, MeanColour(), tmp_path / "f.h5", **options)
    assert (again.written, again.resumed, again.errors) == (3, 6, [])
    assert not (tmp_path / "errors.jsonl").exists()
    extract_images(images, MeanColour(), tmp_path / "whole.h5")
    assert (tmp_path / "f.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_strict_and_none_usable(tmp_path):
    images = make_images(tmp_path / "images", 4)
    images[3][1].write_bytes(b"")
    with pytest.raises(DataError, match="cannot be used") as caught:
        extract_images(images, MeanColour(), tmp_path / "f.h5", strict=True)
    assert "empty" in str(caught.value)
    assert not (tmp_path / "f.h5").exists()
    with pytest.raises(DataError, match="none of the images"):
        extract_images(images, MeanColour(boxes="given"), tmp_path / "g.h5")
    with pytest.raises(DataError, match="no images"):
        extract_images([], MeanColour(), tmp_path / "f.h5")
    with pytest.raises(DataError, match="two images are called"):
        extract_images(images[:1] * 2, MeanColour(), tmp_path / "f.h5")


def test_boxes_of_another_size_are_an_error(tmp_path):
    images = make_images(tmp_path / "images", 2)
    boxes = {"im000": one_box([0, 0, 5, 5], size=(200, 300)), "im001": one_box([0, 0, 5, 5], size=(30, 20))}
    report = extract_images(images, MeanColour(), tmp_path / "f.h5", boxes=boxes)
    assert [error.id for error in report.errors] == ["im000"]
    assert "300 x 200" in report.errors[0].reason


def test_interrupted_extraction_keeps_what_it_has(tmp_path):
    images = make_images(tmp_path / "images", 12)

    class Dies(MeanColour):
        left: ClassVar[int] = 2

        def extract(self, batch):
            type(self).left -= 1
            if type(self).left < 0:
                raise KeyboardInterrupt
            return super().extract(batch)

    Dies.__name__ = "MeanColour"
    with pytest.raises(KeyboardInterrupt):
        extract_images(images, Dies(), tmp_path / "f.h5", batch_size=2)
    report = extract_images(images, MeanColour(), tmp_path / "f.h5", batch_size=2)
    assert (report.resumed, report.written) == (4, 8)
    extract_images(images, MeanColour(), tmp_path / "whole.h5", batch_size=2)
    assert (tmp_path / "f.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


class _Stubborn(MeanColour):
    """Fails or dies at one picture, in whichever process it is."""

    how: ClassVar[str] = ""

    def extract(self, batch):
        if any(item.id == "im009" for item in batch):
            if self.how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise {"refused": DataError("No such region.", got="im009"), "broken": RuntimeError("no kernel")}[self.how]
        return super().extract(batch)

    def provenance(self):
        return MeanColour().provenance()


@pytest.mark.parametrize(("how", "said"), [("refused", "No such region."), ("broken", "no kernel"), ("killed", "died")])
def test_a_fault_in_a_process_of_the_engine_is_told_and_the_next_run_goes_on(tmp_path, monkeypatch, how, said):
    images, others = make_images(tmp_path / "images", 12), set(multiprocessing.active_children())
    monkeypatch.setattr(_Stubborn, "how", how)
    with pytest.raises((VlcliError, RuntimeError), match=said) as caught:
        extract_images(images, _Stubborn(), tmp_path / "f.h5", batch_size=2, cluster=_engine(2))
    assert "Traceback" not in str(caught.value)
    for left in set(multiprocessing.active_children()) - others:
        left.join(5)
        assert left.exitcode is not None  # `caught` keeps the loader
    report = extract_images(images, MeanColour(), tmp_path / "f.h5", batch_size=2, cluster=_engine(2))
    assert report.resumed + report.written == 12
    extract_images(images, MeanColour(), tmp_path / "whole.h5", batch_size=2)
    assert (tmp_path / "f.h5").read_bytes() == (tmp_path / "whole.h5").read_bytes()


def test_processes_of_the_engine_have_one_thread():
    with pytest.raises(UsageError, match="one thread"):
        Processes(2, 2, "cpu", Silent())


def test_values_that_do_not_fit_are_errors_not_crashes(tmp_path):
    images = make_images(tmp_path / "images", 3)

    class Overflows(MeanColour):
        def extract(self, batch):
            records = super().extract(batch)
            for record in records:
                if record.id == "im001":
                    record.features[:] = np.nan
            return records

    report = extract_images(images, Overflows(), tmp_path / "f.h5")
    assert [(error.id, "not finite" in error.reason) for error in report.errors] == [("im001", True)]
    assert report.images == 2


def test_progress_counts_every_image(tmp_path):
    images = make_images(tmp_path / "images", 6)
    _spoil_one = images[2][1].write_bytes(b"")
    counts = []

    class Counting(Silent):
        def task(self, label, total, unit="it", done=0):
            counter = {"label": label, "total": total, "done": done}
            counts.append(counter)

            class Context:
                def __enter__(self):
                    return self

                def __exit__(self, *error):
                    return None

                def advance(self, count=1, **facts):
                    counter["done"] += count

            return Context()

    report = extract_images(images, MeanColour(), tmp_path / "f.h5", progress=Counting(), max_images=5)
    assert report.images == 4
    assert [(c["total"], c["done"]) for c in counts] == [(5, 5), (4, 4)]


def test_preparation_sizes():
    rule = Preparation(short=600, long=1000)
    assert rule.input_size((480, 640)) == (600, 800)
    assert rule.input_size((300, 900)) == (333, 1000)
    assert Preparation(short=0, long=0).input_size((7, 9)) == (7, 9)
    assert Preparation(short=100, long=0, multiple=16).input_size((50, 60)) == (112, 128)
    assert Preparation(short=224, square=True).input_size((50, 60)) == (224, 224)


def test_grid_tiles_the_image():
    grid = grid_boxes((30, 50), (3, 5)).boxes
    assert grid.shape == (15, 4)
    areas = (grid[:, 2] - grid[:, 0]) * (grid[:, 3] - grid[:, 1])
    assert areas.sum() == pytest.approx(1500)
    assert grid[0].tolist() == [0, 0, 10, 10]
    assert grid[-1].tolist() == [40, 20, 50, 30]


def test_prepared_boxes_are_scaled_and_limited():
    image = Image.new("RGB", (100, 50))
    boxes = one_box([10, 10, 120, 20])
    prepared = Preparation(short=100, long=0, limit=1)(image, boxes)
    assert prepared.pixels.shape == (3, 100, 200)
    assert prepared.pixels.dtype == torch.uint8
    assert prepared.scaled_boxes().tolist() == [[20, 20, 200, 40]]
    assert prepared.boxes.boxes.tolist() == [[10, 10, 100, 20]]


def test_given_sets_share_a_file(tmp_path):
    images = make_images(tmp_path / "images", 4)
    extract_images(images, MeanColour(boxes="grid"), tmp_path / "f.h5", set="grid")
    given = {name: one_box([0, 0, 9, 9]) for name, _ in images}
    extract_images(images, MeanColour(boxes="given"), tmp_path / "f.h5", set="given", boxes=given)
    grids, ones = FeatureStore(tmp_path / "f.h5", "grid"), FeatureStore(tmp_path / "f.h5", "given")
    assert (grids.count("im000"), ones.count("im000")) == (4, 1)
    assert not same(grids.read("im000"), ones.read("im000"))


@pytest.mark.parametrize("resumed", [0, 4])
def test_a_store_that_does_not_fit_on_the_disk_is_told_of_after_the_first_pictures(tmp_path, monkeypatch, resumed):
    class Heard(Silent):
        def __init__(self):
            self.warned = []

        def warn(self, message):
            self.warned.append(message)

    images = make_images(tmp_path / "images", 12)
    extract_images(images[:1], MeanColour(), tmp_path / "one.h5")
    each = sum(array.nbytes for array in FeatureStore(tmp_path / "one.h5").read(images[0][0]).arrays().values())
    needed = each * (12 - resumed - 2 + 12)  # the parts that are still to come, and the store
    for free in (needed, needed - 1):
        path, heard = tmp_path / f"{free}.h5", Heard()
        if resumed:
            extract_images(images[:resumed], MeanColour(), path)
        with monkeypatch.context() as patch:
            patch.setattr(extraction, "free_bytes", lambda _, free=free: free)
            extract_images(images, MeanColour(), path, batch_size=2, progress=heard)
        assert [line for line in heard.warned if "twice as much" in line] == heard.warned
        assert len(heard.warned) == (free < needed)
