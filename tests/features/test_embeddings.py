"""The store of embeddings: kept through kills, filled by several, refused or made anew where its maker has changed."""

from __future__ import annotations

import tracemalloc

import h5py
import numpy as np
import pytest

from vlcli.errors import DataError
from vlcli.features.embeddings import EmbeddingStore, EmbeddingWriter

KEY = {"weights": "abc", "size": (2, 3)}


def rows(*values: float) -> np.ndarray:
    return np.array([[value, value + 0.5] for value in values], np.float32)


def test_parts_of_a_killed_writer_are_kept_and_later_vectors_win(tmp_path):
    path = tmp_path / "sub" / "v.h5"
    killed = EmbeddingWriter(path, KEY, flush_every=2)
    killed.append(["a", "b"], rows(1, 2), ["x", "x"])
    killed.append(["lost"], rows(9))
    other = EmbeddingWriter(path, KEY, rank=1)
    other.append(["c"], rows(3))
    other.flush()
    (path.with_name("v.h5.part") / "0000-00000007.h5.tmp").write_bytes(b"half written")
    again = EmbeddingWriter(path, KEY)
    assert "lost" not in again
    assert again.lacks({"a": "x", "b": "changed", "lost": ""}) == ["b", "lost"]
    again.append(["b"], rows(7), ["changed"])
    store = again.finish(["c", "b", "a"])
    assert (store.ids, store.marks) == (["c", "b", "a"], ["", "changed", "x"])
    np.testing.assert_array_equal(store.vectors, rows(3, 7, 1))
    assert not path.with_name("v.h5.part").exists()
    assert EmbeddingStore(path, KEY).rows()["a"] == 2
    fewer = EmbeddingWriter(path, KEY)
    assert fewer.finish(["a"]).ids == ["a"]
    assert len(EmbeddingStore(path)) == 1


def test_names_of_files_that_are_no_utf8_come_back(tmp_path):
    writer = EmbeddingWriter(tmp_path / "v.h5", KEY)
    writer.append(["\udcfcx.jpg", "b"], rows(1, 2))
    assert writer.finish(["b", "\udcfcx.jpg"]).ids == ["b", "\udcfcx.jpg"]


def test_what_something_else_made_is_refused_or_replaced(tmp_path):
    path = tmp_path / "v.h5"
    writer = EmbeddingWriter(path, KEY, dtype="float16")
    writer.append(["a"], rows(1))
    assert writer.finish(["a"]).vectors.dtype == np.float16
    other = {**KEY, "weights": "new"}
    for refused in (lambda: EmbeddingStore(path, other), lambda: EmbeddingWriter(path, other)):
        with pytest.raises(DataError, match="something else") as met:
            refused()
        assert "weights: abc" in str(met.value)
    writer = EmbeddingWriter(path, other, stale="replace")
    assert writer.replaced
    assert "a" not in writer
    assert EmbeddingStore(path, KEY).ids == ["a"], "the old one stays until the new one is whole"
    writer.append(["b"], rows(2))
    assert writer.finish(["b"]).key["weights"] == "new"


def test_faults_are_named(tmp_path):
    path = tmp_path / "v.h5"
    with pytest.raises(DataError, match="does not exist"):
        EmbeddingStore(path)
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="damaged"):
        EmbeddingStore(path)
    with h5py.File(path, "w") as file:
        file.attrs["format"] = "other"
    with pytest.raises(DataError, match="no store of embeddings"):
        EmbeddingStore(path)
    path.unlink()
    writer = EmbeddingWriter(path, KEY)
    writer.append(["a"], rows(1))
    with pytest.raises(DataError, match="do not fit"):
        writer.append(["b"], np.zeros((1, 3)))
    with pytest.raises(DataError, match="not finite"):
        writer.append(["b", "c"], np.array([[0, 1], [np.nan, 0]]))
    with pytest.raises(DataError, match="missing"):
        writer.finish(["a", "z"])
    with pytest.raises(DataError, match="unknown type"):
        EmbeddingWriter(path, KEY, dtype="int8")
    assert EmbeddingWriter(tmp_path / "empty.h5", KEY).finish([]).vectors.shape == (0, 0)


def test_vectors_are_mapped_not_allocated(tmp_path):
    writer = EmbeddingWriter(tmp_path / "v.h5", KEY)
    writer.append([f"n{number}" for number in range(64)], np.ones((64, 1 << 14), np.float32))  # 4 MB
    path = writer.finish([f"n{number}" for number in range(64)]).path
    tracemalloc.start()
    try:
        store = EmbeddingStore(path)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert store.vectors.shape == (64, 1 << 14)


def test_lists_that_the_caller_uses_again_are_copied(tmp_path):
    writer, names, marks = EmbeddingWriter(tmp_path / "v.h5", KEY), ["a"], ["x"]
    writer.append(names, rows(1), marks)
    names[0], marks[0] = "b", "y"
    writer.append(names, rows(2), marks)
    assert writer.finish(["a", "b"]).marks == ["x", "y"]


def test_a_file_of_something_else_is_not_replaced(tmp_path):
    (tmp_path / "photo.png").write_bytes(b"a picture")
    with h5py.File(tmp_path / "features.h5", "w") as file:
        file.attrs["format"] = "another"
    for name in ("photo.png", "features.h5"):
        kept = (tmp_path / name).read_bytes()
        with pytest.raises(DataError):
            EmbeddingWriter(tmp_path / name, {"weights": "a"}, stale="replace")
        assert (tmp_path / name).read_bytes() == kept
