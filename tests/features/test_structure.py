"""Stores that are not built as stores are: refused when they are opened; changed records: when they are read."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

from tests.features._world import full_record, make_record
from vlcli.errors import DataError
from vlcli.features import FeatureStore, FeatureWriter, verify
from vlcli.features.join import join
from vlcli.features.structure import index_problems


@pytest.fixture
def store(tmp_path):
    """Six images with every field."""
    return _fill(tmp_path / "f.h5", range(6))


def _fill(path, numbers, **options):
    with FeatureWriter(path, {"extractor": "made"}, **options) as writer:
        for number in numbers:
            writer.append(full_record(f"im{number}", number))
    return path


def _replace(group, name, value):
    del group[name]
    group[name] = value


def _value(name, place, value):
    def change(file):
        file[f"sets/boxes/{name}"][place] = value

    return change


def _whole(name, make):
    def change(file):
        group = file["sets/boxes"]
        _replace(group, name, make(group[name][()]))

    return change


def _external(file):
    _replace(file["sets/boxes"], "features", h5py.ExternalLink("other.h5", "/sets/boxes/features"))


def _external_set(file):
    _replace(file["sets"], "boxes", h5py.ExternalLink("other.h5", "/sets/boxes"))


def _external_storage(file):
    group = file["sets/boxes"]
    shape = group["features"].shape
    del group["features"]
    group.create_dataset("features", shape, "float16", external=[("raw.bin", 0, h5py.h5f.UNLIMITED)])


def _virtual(file):
    group = file["sets/boxes"]
    shape, dtype = group["features"].shape, group["features"].dtype
    layout = h5py.VirtualLayout(shape, dtype)
    layout[:] = h5py.VirtualSource("other.h5", "sets/boxes/features", shape, dtype=dtype)
    del group["features"]
    group.create_virtual_dataset("features", layout)


def _loop(file):
    file["sets/boxes/a"] = h5py.SoftLink("/sets/boxes/features")
    _replace(file["sets/boxes"], "features", h5py.SoftLink("/sets/boxes/a"))


def _loop_of_sets(file):
    _replace(file, "sets", h5py.SoftLink("/sets"))


def _without(name):
    def change(file):
        del file[name]

    return change


CASES = {
    "offsets-negative": (_value("offsets", 1, -5), "the offsets do not rise from 0 (at image 0)"),
    "offsets-from-one": (_value("offsets", 0, 1), "the offsets do not rise from 0"),
    "offsets-fall": (_value("offsets", 3, 2), "the offsets do not rise from 0 (at image 2)"),
    "offsets-beyond": (_value("offsets", 6, 99), "features has 30 rows, the offsets end at 99"),
    "offsets-few": (_whole("offsets", lambda a: a[:-1]), "offsets has shape (6,) for 6 images"),
    "offsets-real": (_whole("offsets", lambda a: a.astype(float)), "offsets holds values of type float64"),
    "sizes-zero": (_value("sizes", (2, 0), 0), "the size of image 'im2' is [0, 60]"),
    "sizes-flat": (_whole("sizes", lambda a: a[:, 0]), "sizes has shape (6,)"),
    "checksums-few": (_whole("checksums", lambda a: a[:2]), "checksums has shape (2,)"),
    "boxes-infinite": (_value("boxes", (7, 2), np.inf), "a box of image 'im1' is not finite"),
    "boxes-nan": (_value("boxes", (29, 0), np.nan), "a box of image 'im5' is not finite"),
    "boxes-wide": (_whole("boxes", lambda a: a[:, :3]), "boxes has shape (30, 3), expected (30, 4)"),
    "scores-few": (_whole("scores", lambda a: a[:-3]), "scores has 27 rows"),
    "scores-text": (_whole("scores", lambda a: a.astype("S4")), "scores holds values of type |S4"),
    "ids-numeric": (_whole("ids", lambda a: np.arange(len(a))), "ids holds values of type int64"),
    "ids-latin": (_value("ids", 1, b"\xff\xfe"), "'utf-8' codec can't decode"),
    "provenance-list": (_whole("provenance", lambda a: "[1]"), "the provenance is no JSON object"),
    "provenance-cut": (_whole("provenance", lambda a: '{"a"'), "Expecting"),
    "external-link": (_external, "/sets/boxes/features is a link (ExternalLink)"),
    "external-set": (_external_set, "/sets/boxes is a link (ExternalLink)"),
    "external-storage": (_external_storage, "the values of features lie in another file"),
    "virtual": (_virtual, "the values of features lie in another file"),
    "loop": (_loop, "/sets/boxes/features is a link (SoftLink)"),
    "loop-of-sets": (_loop_of_sets, "/sets is a link (SoftLink)"),
    "no-sets": (_without("sets"), "/sets is missing"),
    "no-features": (_without("sets/boxes/features"), "lacks features"),
    "no-boxes": (_without("sets/boxes/boxes"), "lacks boxes"),
    "no-ids": (_without("sets/boxes/ids"), "lacks ids"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_store_of_another_structure_is_refused_on_opening(store, case):
    change, message = CASES[case]
    _fill(store.with_name("other.h5"), range(6))
    with h5py.File(store, "r+") as file:
        change(file)
    before = store.read_bytes()
    with pytest.raises(DataError) as caught:
        len(FeatureStore(store))
    assert message in caught.value.got
    assert caught.value.where == str(store)
    assert caught.value.exit_code == 5
    assert store.read_bytes() == before


@pytest.mark.parametrize("value", ["text", 2.5, -1])
def test_a_schema_that_is_no_number_is_refused(store, value):
    with h5py.File(store, "r+") as file:
        file.attrs["schema"] = value
    with pytest.raises(DataError, match="not a feature store that this version reads"):
        len(FeatureStore(store))


def _flip(store, field, image, tmp_path):
    """Flip one byte of a field's bytes in the file, as a disk does."""
    with h5py.File(store) as file:
        group = file["sets/boxes"]
        data, row = group[field], int(group["offsets"][image])
        place = data.id.get_offset() + row * data.dtype.itemsize * int(np.prod(data.shape[1:]))
    with store.open("r+b") as raw:
        raw.seek(place)
        byte = raw.read(1)[0]
        raw.seek(place)
        raw.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("field", ["features", "boxes", "classes", "class_probs", "box_ids"])
def test_a_flipped_byte_is_refused_when_its_record_is_read(store, field, tmp_path):
    _flip(store, field, 2, tmp_path)
    opened = FeatureStore(store)
    opened.read("im1")
    opened.read_batch(["im0", "im5"])
    for read in (lambda: opened.read("im2"), lambda: opened.read_batch(["im1", "im2"])):
        with pytest.raises(DataError, match="does not match its checksum") as caught:
            read()
        assert "'im2'" in caught.value.got
        assert str(store) in caught.value.hint
    assert [fault.image for fault in verify(store)] == ["im2"]


def test_shards_and_compressed_stores_are_checked_too(tmp_path):
    one, two = _fill(tmp_path / "a.h5", range(3)), _fill(tmp_path / "b.h5", range(3, 6))
    index = join([one, two], tmp_path / "all.h5")
    assert verify(index) == []
    _flip(two, "features", 1, tmp_path)
    with pytest.raises(DataError, match="checksum"):
        FeatureStore(index).read_batch(["im0", "im4"])
    packed = _fill(tmp_path / "c.h5", range(4), compression="gzip")
    with h5py.File(packed, "r+") as file:
        file["sets/boxes/features"][1] += 1
    with pytest.raises(DataError, match="checksum"):
        FeatureStore(packed).read_batch(["im0"])


def test_a_record_is_checked_once_a_process(store, monkeypatch):
    from vlcli.features import file

    counted = []
    real = file.checksum
    monkeypatch.setattr(file, "checksum", lambda record: counted.append(record.id) or real(record))
    opened = FeatureStore(store)
    for _ in range(3):
        opened.read_batch(["im0", "im3"])
        opened.read("im3")
    assert counted == ["im0", "im3"]
    FeatureStore(store, check=False).read_batch(["im0", "im3"])
    assert counted == ["im0", "im3"]


def test_a_shard_cannot_pass_off_virtual_rows_as_an_index(store):
    _fill(store.with_name("other.h5"), range(6))
    with h5py.File(store, "r+") as file:
        _virtual(file)
        file["shards"] = np.array([b"f.h5"])
    with pytest.raises(DataError, match="damaged"):
        len(FeatureStore(store))


def test_empty_stores_open(tmp_path):
    with FeatureWriter(tmp_path / "none.h5", {"extractor": "made"}):
        pass
    assert len(FeatureStore(tmp_path / "none.h5")) == 0
    with FeatureWriter(tmp_path / "bare.h5", {"extractor": "made"}) as writer:
        writer.append(make_record("bare", 1, rows=0))
    assert len(FeatureStore(tmp_path / "bare.h5").read("bare")) == 0


def test_no_handle_is_left_open(store):
    with h5py.File(store, "r+") as file:
        _loop(file)
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(DataError):
            len(FeatureStore(store))
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _references(file):
    group = file["sets/boxes"]
    rows = len(group["ids"])
    del group["ids"]
    group.create_dataset("ids", data=[file["sets"].ref] * rows, dtype=h5py.ref_dtype)


@pytest.mark.parametrize("change", [_references, _whole("features", lambda a: a.astype(np.longdouble))])
def test_values_that_no_extraction_writes_are_refused(store, change):
    with h5py.File(store, "r+") as file:
        change(file)
    assert any("holds values of type" in str(fault) for fault in verify(store))


def test_a_crowd_of_regions_in_one_picture_is_a_fault():
    sizes, checksums = np.ones((2, 2), int), np.zeros(2, int)
    assert index_problems(["a", "b"], sizes, np.array([0, 3, 100_003]), checksums) == []
    (problem,) = index_problems(["a", "b"], sizes, np.array([0, 3, 1_000_003]), checksums)
    assert "'b' has 1,000,000 regions" in problem
