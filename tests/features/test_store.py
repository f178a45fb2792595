from __future__ import annotations

import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.features._world import full_record, make_record, same
from tests.spawned import as_in_a_worker
from vlcli.errors import DataError, VlcliError
from vlcli.features import FeatureStore, FeatureWriter, Record, info, merge, verify
from vlcli.features.schema import normalise


def fill(path, records, **options):
    with FeatureWriter(path, {"extractor": "test"}, **options) as writer:
        for record in records:
            writer.append(record)
    return FeatureStore(path, options.get("set"))


@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_every_field_comes_back(tmp_path, dtype, compression):
    records = [full_record(f"im{i}", i, rows=i) for i in range(7)]
    store = fill(tmp_path / "f.h5", records, dtype=dtype, compression=compression, flush_every=3)
    assert store.ids == [r.id for r in records]
    assert (store.dim, store.classes_count, store.attributes_count, store.max_regions) == (8, 9, 4, 6)
    for record in records:
        expected = normalise(record, dtype)
        expected.box_ids = np.array([str(s) for s in record.box_ids], dtype=np.str_)
        assert same(store.read(record.id), expected)
    assert info(tmp_path / "f.h5")["sets"]["boxes"]["mapped"] is (compression is None)
    assert verify(tmp_path / "f.h5") == []


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    counts=st.lists(st.integers(0, 6), min_size=1, max_size=12),
    flush=st.integers(1, 5),
    cut=st.integers(0, 12),
    seed=st.integers(0, 99),
)
def test_any_split_into_runs_gives_the_same_file(tmp_path, counts, flush, cut, seed):
    """Interrupted anywhere, flushed in any rhythm, appended in any order: the bytes are the same."""
    records = [make_record(f"im{i}", i, rows) for i, rows in enumerate(counts)]
    names = [record.id for record in records]
    for old in tmp_path.iterdir():
        shutil.rmtree(old) if old.is_dir() else old.unlink()
    shuffled = np.random.default_rng(seed).permutation(len(records))
    first = FeatureWriter(tmp_path / "a.h5", flush_every=flush)
    for i in shuffled[:cut]:
        first.append(records[i])
    first.flush()
    second = FeatureWriter(tmp_path / "a.h5", flush_every=flush)
    for i in shuffled:
        if records[i].id not in second:
            second.append(records[i])
    second.finish(names)
    whole = FeatureWriter(tmp_path / "b.h5")
    for record in records:
        whole.append(record)
    whole.finish()
    assert (tmp_path / "a.h5").read_bytes() == (tmp_path / "b.h5").read_bytes()
    assert not (tmp_path / "a.h5.part").exists()


def test_unfinished_store_is_readable(tmp_path):
    writer = FeatureWriter(tmp_path / "f.h5", flush_every=2)
    for i in range(5):
        writer.append(make_record(f"im{i}", i))
    assert not (tmp_path / "f.h5").exists()
    assert FeatureStore(writer.part).ids == ["im0", "im1", "im2", "im3"]
    assert verify(writer.part) == []
    with pytest.raises(DataError, match="does not exist") as caught:
        FeatureStore(tmp_path / "f.h5")
    assert "unfinished" in caught.value.hint


def test_finished_store_grows(tmp_path):
    fill(tmp_path / "f.h5", [make_record("a", 0)])
    writer = FeatureWriter(tmp_path / "f.h5", {"extractor": "test"})
    assert "a" in writer
    writer.append(make_record("b", 1))
    writer.finish(["b", "a"])
    assert FeatureStore(tmp_path / "f.h5").ids == ["b", "a"]


def test_several_box_sets_in_one_file(tmp_path):
    fill(tmp_path / "f.h5", [make_record("a", 0)], set="detected")
    fill(tmp_path / "f.h5", [make_record("a", 1, 3, dim=4)], set="ground-truth")
    assert FeatureStore(tmp_path / "f.h5", "detected").dim == 8
    assert len(FeatureStore(tmp_path / "f.h5", "ground-truth").read("a")) == 3
    with pytest.raises(DataError, match="no such box set"):
        len(FeatureStore(tmp_path / "f.h5"))
    assert set(info(tmp_path / "f.h5")["sets"]) == {"detected", "ground-truth"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": np.full((5, 8), np.nan)}, "not finite"),
        ({"features": np.full((5, 8), 1e6)}, "65504"),
        ({"boxes": np.array([[0, 0, 61, 40]] * 5)}, "leaves the image"),
        ({"boxes": np.array([[30, 0, 20, 40]] * 5)}, "corners crossed"),
        ({"boxes": np.zeros((5, 5))}, "shape"),
        ({"classes": np.zeros(4)}, "shape"),
        ({"size": (0, 3)}, "not positive"),
        ({"size": (40, 1 << 40)}, "more than 32 bits"),
        ({"id": ""}, "no id"),
        ({"id": "a\0b"}, "no Unicode text"),
        ({"id": "\udcfca"}, "no Unicode text"),
        ({"classes": np.array([0, 1, 2, 3, 1 << 40])}, "no whole numbers of 32 bits"),
        ({"classes": np.array([0, 1, 2, 3, np.nan])}, "no whole numbers of 32 bits"),
    ],
)
def test_bad_records_are_refused(tmp_path, change, message):
    writer = FeatureWriter(tmp_path / "f.h5")
    record = make_record("im", 0)
    for name, value in change.items():
        setattr(record, name, value)
    with pytest.raises(DataError) as caught:
        writer.append(record)
    assert message in str(caught.value)
    assert len(writer) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": 42}, "an id of type int"),
        ({"id": None}, "an id of type NoneType"),
        ({"features": torch.ones(5, 8).bfloat16()}, "BFloat16"),
        ({"features": torch.ones(5, 8, requires_grad=True)}, "requires grad"),
        ({"features": np.full((5, 8), "red")}, "could not convert string"),
        ({"boxes": None}, "'boxes'"),
        ({"size": None}, "NoneType"),
        ({"size": (3, 40, 60)}, "too many values"),
        ({"size": (float("nan"), 60)}, "NaN"),
    ],
)
def test_records_of_other_types_are_refused(tmp_path, change, message):
    with pytest.raises(DataError, match=message), FeatureWriter(tmp_path / "f.h5") as writer:
        writer.append(replace(make_record("a", 1), **change))


def test_a_provenance_is_compared_as_it_is_stored(tmp_path):
    for name in "ab":
        with FeatureWriter(tmp_path / "f.h5", {"grid": (6, 6), "layers": {4: "c4"}}) as writer:
            writer.append(make_record(name, 1))
    assert FeatureStore(tmp_path / "f.h5").ids == ["a", "b"]


@pytest.mark.parametrize("value", [np.float32(0.5), Path("x"), float("nan"), "\ud800"])
def test_a_provenance_that_is_no_json_is_refused_before_any_record(tmp_path, value):
    with pytest.raises(DataError, match="provenance"):
        FeatureWriter(tmp_path / "f.h5", {"extractor": value})


def test_two_writers_of_one_store_keep_the_records_of_both(tmp_path):
    first, second = FeatureWriter(tmp_path / "f.h5"), FeatureWriter(tmp_path / "f.h5")
    for writer, name in ((first, "a"), (second, "b")):
        writer.append(make_record(name, 1))
        writer.flush()
    first.finish()
    second.append(make_record("c", 2))
    second.finish()
    assert FeatureStore(tmp_path / "f.h5").ids == ["a", "b", "c"]


def test_records_must_agree_and_be_new(tmp_path):
    writer = FeatureWriter(tmp_path / "f.h5")
    writer.append(make_record("a", 0))
    with pytest.raises(DataError, match="already"):
        writer.append(make_record("a", 0))
    with pytest.raises(DataError, match="other fields or widths"):
        writer.append(make_record("b", 0, dim=9))
    with pytest.raises(DataError, match="other fields or widths"):
        writer.append(make_record("b", 0, classes=np.zeros(5)))


def test_other_extraction_is_not_continued(tmp_path):
    fill(tmp_path / "f.h5", [make_record("a", 0)])
    with pytest.raises(DataError, match="another extraction") as caught:
        FeatureWriter(tmp_path / "f.h5", {"extractor": "other"})
    assert "--force" in caught.value.hint
    with pytest.raises(DataError, match="another extraction"):
        FeatureWriter(tmp_path / "f.h5", {"extractor": "test"}, dtype="float32")
    FeatureWriter(tmp_path / "f.h5", {"extractor": "test", "versions": {"torch": "9"}})
    anew = FeatureWriter(tmp_path / "f.h5", {"extractor": "other"}, resume=False)
    assert FeatureStore(tmp_path / "f.h5").ids == ["a"]  # the old one stays until the new one is whole
    anew.append(make_record("b", 0))
    anew.finish()
    assert FeatureStore(tmp_path / "f.h5").ids == ["b"]


def test_batches_are_padded_and_buffers_reused(tmp_path):
    records = [make_record(f"im{i}", i, rows=i) for i in range(5)]
    store = fill(tmp_path / "f.h5", records, dtype="float32")
    first = store.read_batch(["im4", "im0", "im2"])
    assert first["features"].shape == (3, 4, 8)
    assert first["mask"].sum(1).tolist() == [4, 0, 2]
    assert np.array_equal(first["features"][2, :2], records[2].features.astype(np.float32))
    assert not first["features"][2, 2:].any()
    again = store.read_batch(["im1", "im1", "im3"], out=first, rows=4)
    assert again["features"] is first["features"]
    assert np.array_equal(again["boxes"][2, :3], records[3].boxes.astype(np.float32))
    assert not again["boxes"][2, 3:].any()
    assert store.read_batch(["im4"], rows=2)["mask"].tolist() == [[True, True]]
    with pytest.raises(DataError, match="lacks a field"):
        store.read_batch(["im1"], fields=["classes"])
    with pytest.raises(DataError, match="does not fit"):
        store.read_batch(["im1"], out=first)


def test_missing_image_names_everything(tmp_path):
    store = fill(tmp_path / "f.h5", [make_record("a", 0)])
    with pytest.raises(DataError) as caught:
        store.read("zebra")
    for part in ("zebra", str(tmp_path), "vlcli extract", "'a'"):
        assert part in str(caught.value)
    assert store.missing(["a", "x", "y", "x"]) == ["x", "y"]
    with pytest.raises(DataError, match="2 images"):
        store.require(["x", "a", "y"])


def _ids_and_sum(store, name):
    return store.ids, float(store.read(name).features.astype(np.float64).sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_workers_read_alike(tmp_path, method, compression):
    store = fill(tmp_path / "f.h5", [make_record(f"im{i}", i) for i in range(4)], compression=compression)
    expected = _ids_and_sum(store, "im2")
    assert _ids_and_sum(as_in_a_worker(store), "im2") == expected
    with multiprocessing.get_context(method).Pool(2 if method == "fork" else 1) as pool:
        assert pool.starmap(_ids_and_sum, [(store, "im2")] * 4) == [expected] * 4


def test_shards_act_as_one_and_merge(tmp_path):
    records = [make_record(f"im{i}", i, rows=i) for i in range(6)]
    paths = [tmp_path / "s" / f"{k}.h5" for k in range(3)]
    for k, path in enumerate(paths):
        fill(path, records[2 * k : 2 * k + 2])
    store = FeatureStore(paths)
    assert len(store) == 6
    assert same(store.read("im5"), normalise(records[5], "float16"))
    assert FeatureStore(tmp_path / "s").ids == store.ids
    merged = FeatureStore(merge(paths, tmp_path / "all.h5", order=["im5"]))
    assert merged.ids == ["im5", "im0", "im1", "im2", "im3", "im4"]
    assert all(same(merged.read(name), store.read(name)) for name in store.ids)
    assert verify(tmp_path / "all.h5") == []
    fill(tmp_path / "s" / "3.h5", [records[0]])
    with pytest.raises(DataError, match="twice") as caught:
        len(FeatureStore(tmp_path / "s"))
    assert "'im0' in " in caught.value.got
    assert caught.value.expected
    assert "vlcli features verify" in caught.value.hint
    assert any("twice" in str(fault) for fault in verify(tmp_path / "s"))
    fill(tmp_path / "s" / "3.h5", [make_record("im9", 0, dim=3)], resume=False)
    with pytest.raises(DataError, match="do not fit together"):
        merge([*paths, tmp_path / "s" / "3.h5"], tmp_path / "no.h5")
    assert not (tmp_path / "no.h5").exists()


def test_merge_refuses_different_extractions(tmp_path):
    fill(tmp_path / "a.h5", [make_record("a", 0)])
    with FeatureWriter(tmp_path / "b.h5", {"extractor": "other"}) as writer:
        writer.append(make_record("b", 0))
    with pytest.raises(DataError, match="different extractions"):
        merge([tmp_path / "a.h5", tmp_path / "b.h5"], tmp_path / "c.h5")


@pytest.mark.parametrize("field", ["features", "boxes", "offsets", "sizes"])
def test_verify_finds_changed_values(tmp_path, field):
    fill(tmp_path / "f.h5", [make_record(f"im{i}", i) for i in range(4)])
    with h5py.File(tmp_path / "f.h5", "r+") as file:
        data = file["sets/boxes"][field]
        data[1] = data[1] + (3 if field == "offsets" else 1)
    faults = verify(tmp_path / "f.h5")
    assert faults
    assert all("im" in str(fault) or "offsets" in str(fault) for fault in faults)


def test_damaged_files_are_named(tmp_path):
    store = tmp_path / "f.h5"
    fill(store, [make_record(f"im{i}", i) for i in range(40)])
    whole = store.read_bytes()
    cases = {"truncated": whole[: len(whole) // 2], "not a readable": b"x" * 1000, "not a readable ": b""}
    for message, content in cases.items():
        store.write_bytes(content)
        with pytest.raises(DataError, match=message.strip()) as caught:
            FeatureStore(store).read("im0")
        assert str(store) in str(caught.value)
    with h5py.File(store, "w") as file:
        file["x"] = 1
    with pytest.raises(DataError, match="not a feature store"):
        info(store)
    with pytest.raises(DataError, match="does not exist"):
        FeatureStore(tmp_path / "no.h5")


@pytest.mark.parametrize("bad", [{"dtype": "int8"}, {"compression": "zip"}, {"set": "a/b"}, {"flush_every": 0}])
def test_options_are_checked(tmp_path, bad):
    with pytest.raises(DataError):
        FeatureWriter(tmp_path / "f.h5", **bad)


def test_foreign_files_beside_segments_and_shards_are_passed_over(tmp_path):
    (tmp_path / "f.h5.part").mkdir()
    for name in ("._0000-00000000.h5", "notes.h5"):
        (tmp_path / "f.h5.part" / name).write_bytes(b"x")
    fill(tmp_path / "f.h5", [full_record("a", 1)])
    (tmp_path / "._f.h5").write_bytes(b"x")
    assert FeatureStore(tmp_path).ids == ["a"]


def test_a_file_in_place_of_a_folder_is_told(tmp_path):
    (tmp_path / "file").write_bytes(b"x")
    with pytest.raises(VlcliError, match="cannot be written") as caught:
        fill(tmp_path / "file" / "f.h5", [full_record("a", 1)])
    assert "free some space" not in str(caught.value.hint)


def test_empty_records_and_empty_store(tmp_path):
    empty = Record("a", np.zeros((0, 8)), np.zeros((0, 4)), (4, 4))
    store = fill(tmp_path / "f.h5", [empty])
    assert store.read("a").features.shape == (0, 8)
    assert store.read_batch(["a"])["features"].shape == (1, 0, 8)
    assert len(fill(tmp_path / "none.h5", [])) == 0
    assert verify(tmp_path / "none.h5") == []


def test_a_store_that_ended_empty_is_filled_later(tmp_path):
    fill(tmp_path / "f.h5", [])
    fill(tmp_path / "f.h5", [])
    store = fill(tmp_path / "f.h5", [full_record("a", 1)])
    assert (store.ids, store.dim) == (["a"], 8)
    assert verify(tmp_path / "f.h5") == []
