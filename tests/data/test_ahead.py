"""Batches made ahead: the same ones in the same order, faults where they belong, no thread left behind."""

from __future__ import annotations

import threading
import time

import pytest
from test_golden_batches import build, store  # noqa: F401 (a fixture)

from vlcli.ahead import Ahead


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "vlcli-batches"]


def gone():
    """Whether no such thread is left within a second."""
    for _ in range(100):
        if not threads():
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_all_items_in_order(count):
    ahead = Ahead(iter(range(count)))
    assert list(ahead) == list(range(count))
    assert next(ahead, None) is None
    ahead.close()
    assert gone()


def test_one_is_made_ahead_and_no_more():
    made = []

    def source():
        for number in range(10):
            made.append(number)
            yield number

    ahead = Ahead(source())
    assert next(ahead) == 0
    assert made == [0]
    assert threads() == []
    assert next(ahead) == 1
    for _ in range(100):
        if len(made) == 3:
            break
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2]
    ahead.close()
    assert gone()
    assert made == [0, 1, 2]


def test_a_fault_is_raised_where_its_item_is_asked_for():
    def source():
        yield from (0, 1, 2)
        raise KeyError("no such picture")

    ahead = Ahead(source())
    assert [next(ahead) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyError, match="no such picture"):
        next(ahead)
    with pytest.raises(StopIteration):
        next(ahead)
    ahead.close()
    assert gone()


def test_left_in_the_middle_the_loader_leaves_no_thread(store, tmp_path):  # noqa: F811
    data = build(store, tmp_path, "lxmert")
    loader = data.loader(8, shuffle=True)
    source = iter(loader)
    for _ in range(3):
        next(source)
    assert len(threads()) == 1
    source.close()
    assert gone()
    assert not loader.busy
    assert [batch.keys for batch in data.loader(8, shuffle=True)] == [batch.keys for batch in loader]
