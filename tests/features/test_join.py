"""Shards and box sets as one store."""

from __future__ import annotations

import shutil

import h5py
import numpy as np
import pytest

from tests.features._world import full_record, make_record, same
from tests.spawned import as_in_a_worker
from vlcli.errors import DataError
from vlcli.features import FeatureStore, FeatureWriter, info, join, merge, verify


def _fill(path, records, **options):
    with FeatureWriter(path, options.pop("provenance", {"extractor": "test"}), **options) as writer:
        for record in records:
            writer.append(record)
    return path


@pytest.fixture
def shards(tmp_path):
    records = [full_record(f"im{i}", i, rows=i) for i in range(7)]
    paths = [tmp_path / "shards" / f"{k}.h5" for k in range(3)]
    for path, part in zip(paths, (records[:3], records[3:4], records[4:]), strict=True):
        _fill(path, part)
        _fill(path, [make_record(r.id, 50, rows=2) for r in part], set="truth")
    return paths


def test_index_opens_its_shards(tmp_path, shards):
    index = join(shards, tmp_path / "all.h5")
    store, apart = FeatureStore(index, "boxes"), FeatureStore(shards, "boxes")
    assert store.ids == apart.ids == [f"im{i}" for i in range(7)]
    assert all(same(store.read(name), apart.read(name)) for name in store.ids)
    assert all(part.rows["features"] is not None for part in store.parts())
    assert FeatureStore(index, "truth").count("im6") == 2
    assert as_in_a_worker(store).count("im6") == 6
    facts = info(index)
    assert (facts["files"], facts["joined"], facts["sets"]["boxes"]["images"]) == (3, True, 7)
    assert verify(index) == []


def test_index_is_one_file_to_any_reader(tmp_path, shards):
    index = join(shards, tmp_path / "all.h5")
    store = FeatureStore(index, "boxes")
    with h5py.File(index) as file:
        group = file["sets/boxes"]
        start, stop = group["offsets"][5:7]
        assert np.array_equal(group["features"][start:stop], store.read("im5").features)
        assert [name.decode() for name in group["box_ids"][start:stop]] == store.read("im5").box_ids.tolist()
        assert group["features"].is_virtual


def test_index_moves_with_its_shards(tmp_path, shards):
    join(shards, tmp_path / "shards" / "all.h5")
    shutil.move(tmp_path / "shards", tmp_path / "elsewhere")
    assert FeatureStore(tmp_path / "elsewhere" / "all.h5", "boxes").count("im4") == 4
    assert len(FeatureStore(tmp_path / "elsewhere", "boxes")) == 7  # the folder: shards and their index
    merged = merge([tmp_path / "elsewhere" / "all.h5"], tmp_path / "one.h5")
    assert len(FeatureStore(merged, "truth")) == 7


def test_what_cannot_be_joined(tmp_path, shards):
    with pytest.raises(DataError, match="outside the folder"):
        join(shards, tmp_path / "below" / "all.h5")
    extra = _fill(tmp_path / "shards" / "9.h5", [full_record("im9", 9)])
    with pytest.raises(DataError, match="lacks the box set"):
        join([*shards, extra], tmp_path / "all.h5")
    other = _fill(tmp_path / "other" / "9.h5", [full_record("im9", 9)], provenance={"extractor": "other"})
    mine = _fill(tmp_path / "other" / "8.h5", [full_record("im8", 8)])
    with pytest.raises(DataError, match="different extractions"):
        join([mine, other], tmp_path / "all.h5")
    assert not (tmp_path / "all.h5").exists()


def test_an_index_does_not_replace_a_shard(shards):
    before = shards[1].read_bytes()
    with pytest.raises(DataError, match="would replace a shard"):
        join(shards, shards[1])
    assert shards[1].read_bytes() == before


def test_a_shard_without_images_fits_any_other(tmp_path):
    paths = [_fill(tmp_path / "0.h5", []), _fill(tmp_path / "1.h5", [full_record("a", 1)])]
    for file in (join(paths, tmp_path / "all.h5"), merge(paths, tmp_path / "one.h5")):
        assert (FeatureStore(file).ids, FeatureStore(file).dim) == (["a"], 8)
        assert verify(file) == []


@pytest.mark.parametrize("bad", [{"names": "a/b"}, {"names": "."}, {"compression": "zip"}])
def test_words_of_a_merge_are_checked(tmp_path, bad):
    path = _fill(tmp_path / "0.h5", [full_record("a", 1)])
    words = {"names": {path: bad["names"]}} if "names" in bad else bad
    with pytest.raises(DataError, match=r"un(usable|known)"):
        merge([path], tmp_path / "one.h5", **words)
    assert not (tmp_path / "one.h5").exists()


def test_changed_or_absent_shards_are_told(tmp_path, shards):
    index = join(shards, tmp_path / "all.h5")
    _fill(shards[1], [full_record("im3", 99, rows=3)], resume=False)
    assert any("changed since" in str(fault) for fault in verify(index))
    shards[1].unlink()
    with pytest.raises(DataError, match="missing") as caught:
        FeatureStore(index, "boxes").read("im0")
    assert str(shards[1]) in str(caught.value)


def test_an_index_must_not_lead_out_of_its_folder(tmp_path, shards):
    index = join(shards, tmp_path / "shards" / "all.h5")
    _fill(tmp_path / "x.h5", [full_record("x", 1)])
    with h5py.File(index, "r+") as file:
        del file["shards"]
        file["shards"] = np.array([b"../x.h5"])
    with pytest.raises(DataError, match="missing"):
        len(FeatureStore(index))


def test_box_sets_of_several_files_become_one_file(tmp_path):
    seen = _fill(tmp_path / "seen.h5", [make_record("a", 0), make_record("b", 1)])
    truth = _fill(tmp_path / "truth.h5", [make_record("a", 2, rows=1, dim=3)], provenance={"extractor": "other"})
    with pytest.raises(DataError, match="do not fit together"):
        merge([seen, truth], tmp_path / "no.h5")
    made = merge([seen, truth], tmp_path / "both.h5", names={seen: "detected", truth: "ground-truth"})
    assert set(info(made)["sets"]) == {"detected", "ground-truth"}
    assert FeatureStore(made, "ground-truth").dim == 3
    assert FeatureStore(made, "detected").ids == ["a", "b"]
    assert info(made)["sets"]["ground-truth"]["provenance"]["extractor"] == "other"
    assert verify(made) == []
    with pytest.raises(DataError, match="one box set can be renamed"):
        merge([made], tmp_path / "no.h5", names={made: "x"})
    with pytest.raises(DataError, match="different box sets would become one"):
        merge(
            [_fill(tmp_path / "t.h5", [make_record("c", 1)], set="t"), seen],
            tmp_path / "no.h5",
            names={tmp_path / "t.h5": "x", seen: "x"},
        )


def test_files_that_a_store_was_imported_from_add_up(tmp_path):
    paths = []
    for name in "ab":
        source = {"extractor": "test", "sources": [f"{name}.tsv"]}
        paths.append(_fill(tmp_path / f"{name}.h5", [make_record(name, 0)], provenance=source))
    assert FeatureStore(merge(paths, tmp_path / "all.h5")).provenance["sources"] == ["a.tsv", "b.tsv"]
    grown = {"extractor": "test", "sources": ["c.tsv"]}
    _fill(tmp_path / "all.h5", [make_record("c", 0)], provenance=grown)
    assert FeatureStore(tmp_path / "all.h5").provenance["sources"] == ["a.tsv", "b.tsv", "c.tsv"]
