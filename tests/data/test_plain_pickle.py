"""Pickled files of plain data are read; whatever could run is refused before it does."""

from __future__ import annotations

import collections
import contextlib
import datetime
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vlcli.data.plain_pickle import load_plain
from vlcli.errors import DataError

LEAVES = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8) | st.binary(max_size=6)
)
WORDS = st.text(max_size=5)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4) | st.tuples(inner, inner),
    max_leaves=12,
)
RAN: list[str] = []


class Runs:
    """Unpickling it would leave a trace."""

    def __reduce__(self) -> tuple[object, ...]:
        return RAN.append, ("ran",)


class Writes:
    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {self.path}",)


REFUSED = [
    *(Runs(), [Runs()], {"a": (1, Runs())}, Runs, len),
    *(datetime.date(2020, 1, 1), collections.OrderedDict(a=1), np.ones(2)),
]


@settings(max_examples=60, deadline=None)
@given(PLAIN, st.integers(2, pickle.HIGHEST_PROTOCOL))
def test_plain_data_come_back(tmp_path_factory: pytest.TempPathFactory, value: object, protocol: int) -> None:
    path = tmp_path_factory.mktemp("p") / "x.p"
    path.write_bytes(pickle.dumps(value, protocol))
    if protocol < 3 and "__reduce__" in repr(pickle.dumps(value, protocol)):
        return
    try:
        found = load_plain(path)
    except DataError:
        assert protocol < 3  # bytes are a call there
        assert _has_bytes(value)
        return
    assert found == value


def _has_bytes(value: object) -> bool:
    if isinstance(value, dict):
        return any(map(_has_bytes, value.values()))
    return isinstance(value, bytes) or (isinstance(value, list | tuple) and any(map(_has_bytes, value)))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_the_layout_of_refs_is_read_in_any_protocol(tmp_path: Path, protocol: int) -> None:
    sentence = {"sent_id": 0, "sent": "the red one", "raw": "the red one", "tokens": ["the", "red", "one"]}
    refs = [{"ref_id": 1, "ann_id": 2, "split": "val", "image_id": 3, "sent_ids": [0], "sentences": [sentence] * 2}]
    path = tmp_path / "refs(unc).p"
    path.write_bytes(pickle.dumps(refs, protocol))
    assert load_plain(path) == refs


def test_strings_of_python_2(tmp_path: Path) -> None:
    path = tmp_path / "old.p"
    path.write_bytes(b"(lp0\n(dp1\nS'split'\np2\nS'testA'\np3\nsS'ref_id'\np4\nI7\nsa.")
    assert load_plain(path) == [{"split": "testA", "ref_id": 7}]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("value", REFUSED)
def test_anything_else_is_refused_and_does_not_run(tmp_path: Path, value: object, protocol: int) -> None:
    path = tmp_path / "x.p"
    path.write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(DataError, match="not plain data"):
        load_plain(path)
    assert not RAN


def test_a_command_is_not_carried_out(tmp_path: Path) -> None:
    target, path = tmp_path / "made", tmp_path / "x.p"
    path.write_bytes(pickle.dumps([Writes(target)]))
    with pytest.raises(DataError):
        load_plain(path)
    path.write_bytes(b"cos\nsystem\n(S'touch " + str(target).encode() + b"'\ntR.")
    with pytest.raises(DataError):
        load_plain(path)
    assert not target.exists()


PLAIN = (type(None), bool, int, float, str, bytes, bytearray, list, tuple, dict, set, frozenset)


@settings(max_examples=80, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_data_or_one_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("p") / "x.p"
    path.write_bytes(content)
    try:
        found = load_plain(path)
    except DataError:
        return
    assert isinstance(found, PLAIN)


@pytest.mark.parametrize("protocol", range(5))
def test_arrays_of_numbers_where_they_are_asked_for(tmp_path: Path, protocol: int) -> None:
    rows = np.arange(24, dtype=np.uint8).reshape(4, 6)
    value = {"data": rows, "again": rows, "labels": [1, 2], "f": np.asfortranarray(rows / 3), "big": rows.astype(">i4")}
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(value, protocol))
    read = load_plain(path, arrays=True)
    assert read.pop("labels") == value.pop("labels")
    assert all(np.array_equal(read[name], array) and read[name].dtype == array.dtype for name, array in value.items())


@pytest.mark.parametrize("value", [*REFUSED[:-1], np.array([{}, len], object), [np.ones(2), Runs()]])
@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_with_arrays_too_anything_else_is_refused(tmp_path: Path, value: object, protocol: int) -> None:
    path = tmp_path / "x.p"
    path.write_bytes(pickle.dumps(value, protocol))
    with pytest.raises(DataError, match="not plain data"):
        load_plain(path, arrays=True)
    assert not RAN


@settings(max_examples=80, deadline=None)
@given(st.integers(0, 400), st.binary(min_size=1, max_size=3))
def test_a_damaged_array_is_one_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, place: int, content: bytes
) -> None:
    whole = pickle.dumps({"data": np.arange(12, dtype=np.int16).reshape(3, 4)}, 2)
    path = tmp_path_factory.mktemp("p") / "x.p"
    path.write_bytes(whole[:place] + content + whole[place + len(content) :])
    with contextlib.suppress(DataError):
        load_plain(path, arrays=True)
    assert not RAN


def test_text_that_is_no_text_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"\x80\x02c_codecs\nencode\nK\x01X\x06\x00\x00\x00latin1\x86R.")
    with pytest.raises(DataError, match="not plain data"):
        load_plain(tmp_path / "data", arrays=True)


def test_cut_short_and_missing(tmp_path: Path) -> None:
    whole = pickle.dumps([{"a": [1, 2, "three"]}] * 5)
    path = tmp_path / "x.p"
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        with pytest.raises(DataError):
            load_plain(path)
    with pytest.raises(DataError):
        load_plain(tmp_path / "none.p")
