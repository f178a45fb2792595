"""Data entries of a stage: mixing weights, and those that may be absent."""

import json

import pytest

from vlcli.builders.readers import build_reader, open_readers
from vlcli.data.readers.generic import JsonLines
from vlcli.errors import DataError


@pytest.fixture
def root(tmp_path):
    rows = [{"image": "a.jpg", "text": "a wall"}, {"image": "b.jpg", "text": "a door"}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path


def test_a_set_that_may_be_absent_is_left_out_with_a_word(root):
    said = []

    class Listener:
        def warn(self, message):
            said.append(message)

    there = {"name": "jsonl", "split": "train", "weight": 2}
    readers = open_readers([there, {"name": "jsonl", "split": "test", "if_missing": "skip"}], root, Listener())
    assert [reader.weight for reader in readers] == [2.0]
    assert len(readers[0].examples()) == 2
    assert len(said) == 1
    assert "test.jsonl" in said[0]


def test_a_set_that_must_be_there_is_an_error(root):
    with pytest.raises(DataError, match="missing"):
        open_readers([{"name": "jsonl", "split": "test"}], root)


def test_files_of_a_set_that_must_be_there_are_listed_once(root, monkeypatch):
    """A listing may walk a folder of a million files."""
    listed, files = [], JsonLines.files
    monkeypatch.setattr(JsonLines, "files", lambda self: listed.append(self.split) or files(self))
    open_readers([{"name": "jsonl", "split": "train"}], root)
    assert listed == ["train"]


def test_some_set_must_remain(root):
    with pytest.raises(DataError, match="None of the stage's data"):
        open_readers([{"name": "jsonl", "split": "test", "if_missing": "skip"}], root)


def test_the_toolkits_own_keys_are_not_the_readers(root):
    reader = build_reader({"name": "jsonl", "weight": 3, "if_missing": "skip", "split": "x", "ids": "path"}, root)
    assert (reader.weight, reader.split, reader.ids) == (3.0, "x", "path")
