"""Remote files: copied whole and once, tried several times, and one message where that does not help."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from vlcli.data.readers.generic import JsonLines
from vlcli.data.readers.tar_shards import expand
from vlcli.errors import DataError
from vlcli.images import remote


class Flaky(MemoryFileSystem):
    """Fails so many times before each success; ``cut`` gives files that end early."""

    protocol = "flaky"
    store: dict[str, Any] = {}  # noqa: RUF012
    failures = 0
    cut = 0
    opened = 0

    def _open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "r" in mode:
            type(self).opened += 1
            if type(self).failures:
                type(self).failures -= 1
                raise ConnectionResetError("the peer went away")
            if type(self).cut:
                type(self).cut -= 1
                whole = super()._open(path, mode, **options).read()
                found = fsspec.implementations.memory.MemoryFile(self, path, whole[:-5])
                found.seek(0)
                return found
        return super()._open(path, mode, **options)


@pytest.fixture(autouse=True)
def flaky(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Flaky]]:
    fsspec.register_implementation("flaky", Flaky, clobber=True)
    monkeypatch.setenv(remote.CACHE, str(tmp_path / "cache"))
    monkeypatch.setattr("vlcli.images.remote.WAIT", 0)
    remote._checked.clear()
    Flaky.failures = Flaky.cut = Flaky.opened = 0
    put("train.jsonl", "".join(json.dumps({"text": f"dog {n}"}) + "\n" for n in range(5)))
    yield Flaky
    Flaky.store.clear()


def put(name: str, text: str) -> None:
    with fsspec.open(f"flaky://data/{name}", "w") as file:
        file.write(text)


def test_a_remote_table_is_read_and_copied_once(tmp_path: Path) -> None:
    for _ in range(2):
        remote._checked.clear()  # as another process
        examples = JsonLines(tmp_path, file="flaky://data/{split}.jsonl").examples()
        assert [example.text for example in examples] == [f"dog {n}" for n in range(5)]
    assert Flaky.opened == 1


def test_a_changed_remote_file_is_fetched_again() -> None:
    first = remote.local_copy("flaky://data/train.jsonl").read_text()
    put("train.jsonl", "{}")
    assert remote.local_copy("flaky://data/train.jsonl").read_text() == first  # a process keeps what it began with
    remote._checked.clear()
    assert remote.local_copy("flaky://data/train.jsonl").read_text() == "{}"


@pytest.mark.parametrize("fault", ["failures", "cut"])
def test_what_fails_now_and_then_is_tried_again(fault: str) -> None:
    setattr(Flaky, fault, 3)
    assert remote.local_copy("flaky://data/train.jsonl").read_text().count("dog") == 5
    assert Flaky.opened == 4


def test_what_fails_always_is_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    Flaky.failures = 100
    with pytest.raises(DataError, match="cannot be fetched") as caught:
        JsonLines(tmp_path, file="flaky://data/train.jsonl").examples()
    assert "5 tries; the last: ConnectionResetError: the peer went away" in str(caught.value)
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [".lock"]


def test_absent_files_and_unknown_addresses_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such remote file"):
        remote.local_copy("flaky://data/none.jsonl")
    with pytest.raises(DataError, match="cannot be read here"):
        remote.local_copy("nowhere://data/x")
    assert not remote.is_remote("c:/data/x")
    assert not remote.is_remote("data/x://y")


def test_patterns_of_shards_name_copies(tmp_path: Path) -> None:
    for number in range(3):
        put(f"s/{number}.tar", f"{number}")
    found = [expand(tmp_path, text) for text in ("flaky://data/s/{0..2}.tar", "flaky://data/s/*.tar")]
    assert [[path.read_text() for path in paths] for paths in found] == [["0", "1", "2"]] * 2
