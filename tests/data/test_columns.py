"""Examples as columns: the same examples, pictures and batches as in memory; bad input; many processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import resource
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.spawned import as_in_a_worker
from vlcli.data import Example, Reader
from vlcli.data.columns import ColumnExamples, index, picture_paths
from vlcli.data.columns.cells import UnwritableError, dumps, loads
from vlcli.data.columns.strings import Strings
from vlcli.data.pipeline import Pipeline
from vlcli.data.readers.generic import Csv, Json, JsonLines
from vlcli.data.readers.tar_shards import WebDataset
from vlcli.data.vocabulary import Tokenizer
from vlcli.errors import DataError, VlcliError
from vlcli.images.boxes import BoxList
from vlcli.images.shards import members
from vlcli.nn.model import InputSpec

WORDS = ["red", "green", "dog", "café", "street"]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns for files of any size."""
    monkeypatch.setenv(index.SMALLEST, "0")


def write(root: Path, count: int = 60, name: str = "train.jsonl", **more: object) -> Path:
    rng = np.random.default_rng(count)
    rows = [
        {"id": f"e{n}", "image": f"{n // 2 % 7}/{n // 2:04d}.jpg", "text": " ".join(rng.choice(WORDS, 6)), **more}
        for n in range(count)
    ]
    (root / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root


def both(root: Path, kind: type[Reader] = JsonLines, **options: object) -> tuple[Reader, Reader]:
    """A reader in memory, and one whose examples come from columns that another has written."""
    readers = [kind(root, **options) for _ in range(3)]
    for reader in readers[1:]:
        reader.cache = root / "cache"
        assert isinstance(reader.examples(), ColumnExamples)
    assert readers[1].examples() == readers[2].examples()
    return readers[0], readers[2]


class Counted(JsonLines):
    """Notes, in a file, that its files are read."""

    def rows(self, file: Path) -> Iterator[tuple[str, dict[str, object]]]:
        with (self.root / "reads").open("a") as notes:
            notes.write("x")
        return super().rows(file)


class Strangers(Reader):
    """Defines what a reader must, and keeps what it likes."""

    def files(self) -> list[Path]:
        return [self.root / "train.jsonl"]

    def read(self) -> list[Example]:
        rows = [json.loads(line) for line in self.files()[0].read_text().splitlines()]
        self.kinds = {row["id"]: (row["text"].split()[0], 1.5) for row in rows}
        self.found = {name: BoxList(np.ones((2, 4), np.float32), classes=np.arange(2)) for name in self.kinds}
        self.left_out["without a reason"] += 3
        return [
            Example(row["id"], row["text"], [self.picture(row["image"])], targets={"pair": (1, "x"), "at": 0.1 * n})
            for n, row in enumerate(rows)
        ]


cells = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
    max_leaves=8,
)


@given(cells)
def test_values_come_back_equal_and_of_their_types(value: object) -> None:
    found = loads(dumps(value))
    assert repr(found) == repr(value)


def test_arrays_paths_and_boxes_come_back_and_others_are_refused() -> None:
    given = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "p": Path("x/y"), "c": Counter("aab"), "s": np.int64(3)}
    found = loads(dumps(given))
    assert found["a"].dtype == np.float32
    assert np.array_equal(found["a"], given["a"])
    assert (found["p"], found["c"], found["s"], type(found["s"])) == (Path("x/y"), Counter("aab"), 3, np.int64)
    for value in (object(), lambda: 1, np.array([object()]), {"x": range(3)}):
        with pytest.raises(UnwritableError):
            dumps(value)


def test_columns_give_the_examples_and_pictures_that_memory_gives(tmp_path: Path) -> None:
    memory, columns = both(write(tmp_path, answers={"yes": 1.0, "no": 0.3}))
    assert columns.examples() == memory.examples()
    assert columns.examples()[-1] == memory.examples()[-1]
    assert columns.examples()[3:9:2] == memory.examples()[3:9:2]
    assert columns.image_files() == memory.image_files()
    with pytest.raises(IndexError):
        columns.examples()[60]
    again = as_in_a_worker(columns)
    assert again.examples() == memory.examples()
    assert again.locate("0003") == memory.locate("0003")


@pytest.mark.parametrize(
    "options",
    [{"limit": 7}, {"take": "first:0.5"}, {"take": "after:9", "limit": 4}, {"only": {"text": "no"}, "text": "text"}],
)
def test_choices_are_those_of_memory(tmp_path: Path, options: dict[str, object]) -> None:
    write(tmp_path)
    if "only" in options:
        reader = JsonLines(tmp_path, **options)
        reader.cache = tmp_path / "cache"
        with pytest.raises(DataError, match="is empty"):
            reader.examples()
        assert not list((tmp_path / "cache").glob("[!.]*-*"))
        return
    memory, columns = both(tmp_path, **options)
    assert columns.examples() == memory.examples()


def test_words_of_labels_are_numbered_and_kept(tmp_path: Path) -> None:
    rows = [{"text": "a", "label": word, "image": "p.jpg"} for word in ("cat", "ant", "bee", "ant")]
    (tmp_path / "train.json").write_text(json.dumps(rows))
    (tmp_path / "train.csv").write_text("text,label\na,cat\nb,ant\n")
    for kind in (Json, Csv):
        memory, columns = both(tmp_path, kind)
        assert columns.examples() == memory.examples()
        assert columns.label_names() == memory.label_names()


def test_a_strangers_reader_is_left_as_its_reading_leaves_it(tmp_path: Path) -> None:
    memory, columns = both(write(tmp_path), Strangers)
    assert columns.examples() == memory.examples()
    assert columns.kinds == memory.kinds  # type: ignore[attr-defined]
    assert columns.notes() == memory.notes()
    assert columns.found["e1"].classes.tolist() == [0, 1]  # type: ignore[attr-defined]


def test_what_cannot_be_written_stays_in_memory(tmp_path: Path) -> None:
    class Odd(Strangers):
        def read(self) -> list[Example]:
            return [Example("a", "b", targets={"what": object()})]

    reader = Odd(write(tmp_path))
    reader.cache = tmp_path / "cache"
    assert isinstance(reader.examples(), list)


def test_shards_are_read_in_place_and_one_cut_between_members_is_told(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for number in range(6):
            for ending in ("jpg", "txt"):
                file = tmp_path / f"{number:03d}.{ending}"
                file.write_bytes(b"caption" * 100)
                tar.add(file, file.name)
    last = list(members(tmp_path / "a.tar"))[5]
    content = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(content[: last.start + 1024])  # three whole pairs, and no end
    memory, columns = both(tmp_path, WebDataset, shards="a.tar")
    assert len(columns.examples()) == 3
    assert columns.examples() == memory.examples()
    assert columns.notes() == memory.notes()
    assert "its end is missing: it may be cut off between two files" in columns.notes()[0]
    assert columns.locate("001") == tmp_path / "a.tar" / "001.jpg"


def test_one_id_of_two_files_makes_paths_of_ids_and_columns_remember_it(tmp_path: Path) -> None:
    rows = [{"text": "a", "image": f"{n % 50}/{n}.jpg"} for n in range(5000)] + [{"text": "a", "image": "x/3.jpg"}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    memory, columns = both(tmp_path, JsonLines)
    assert columns.examples() == memory.examples()
    assert [columns.examples()[row].images for row in (3, 53, 5000)] == [
        ["images/3/3"],
        ["images/3/53"],
        ["images/x/3"],
    ]
    assert columns.locate("images/x/3") == tmp_path / "images/x/3.jpg"
    again = JsonLines(tmp_path)
    again.cache = columns.cache
    assert (again.examples(), again.ids) == (memory.examples(), "path")
    assert len(list(columns.cache.glob("[!.]*-*"))) == 1


def test_a_picture_that_is_named_again_and_again_is_compared_once_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picture_paths, "_RECENT", 1)
    reads: list[int] = []
    read = Strings.__getitem__
    monkeypatch.setattr(Strings, "__getitem__", lambda self, row: reads.append(row) or read(self, row))
    with picture_paths.PicturePathsWriter(tmp_path, tmp_path, lambda name, *_: ValueError(name)) as writer:
        for number in range(40):
            writer.note("ab"[number % 2], str(tmp_path / f"{'ab'[number % 2]}.jpg"))
    assert len(reads) == 2 * 38
    assert len(picture_paths.PicturePaths(tmp_path, tmp_path)) == 2


def test_columns_are_written_anew_when_the_source_changes(tmp_path: Path) -> None:
    def read() -> Reader:
        reader = Counted(tmp_path)
        reader.cache = tmp_path / "cache"
        reader.examples()
        return reader

    write(tmp_path)
    read()
    read()
    assert (tmp_path / "reads").read_text() == "x"
    os.utime(tmp_path / "train.jsonl")  # the same content
    read()
    assert (tmp_path / "reads").read_text() == "x"
    write(tmp_path, 40)
    assert len(read().examples()) == 40
    assert (tmp_path / "reads").read_text() == "xx"
    assert len([path for path in (tmp_path / "cache").iterdir() if path.is_dir()]) == 1  # the former are gone


def test_a_source_that_changes_while_it_is_read_is_refused(tmp_path: Path) -> None:
    class Growing(Strangers):
        def read(self) -> list[Example]:
            found = super().read()
            with self.files()[0].open("a") as file:
                file.write("\n")
            return found

    reader = Growing(write(tmp_path))
    reader.cache = tmp_path / "cache"
    with pytest.raises(DataError, match="changed while it was read"):
        reader.examples()


@pytest.mark.parametrize("file", ["examples.bytes", "columns.json", "examples.ends", "places.rows"])
def test_columns_that_lost_a_part_are_written_anew(tmp_path: Path, file: str) -> None:
    memory, columns = both(write(tmp_path))
    folder = columns.examples().folder  # type: ignore[attr-defined]
    content = (folder / file).read_bytes()
    (folder / file).write_bytes(content[: len(content) // 2])
    (folder.parent / f".{folder.name}.tmp-1-1").mkdir()  # what a killed process leaves
    again = JsonLines(tmp_path)
    again.cache = tmp_path / "cache"
    assert again.examples() == memory.examples()
    assert not list((tmp_path / "cache").glob(".*.tmp-*"))


def _read(root: Path) -> int:
    reader = Counted(root)
    reader.cache = root / "cache"
    return len(reader.examples())


def test_two_jobs_write_one_index_once(tmp_path: Path) -> None:
    write(tmp_path, 3000)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        assert pool.map(_read, [tmp_path] * 3) == [3000] * 3
    assert (tmp_path / "reads").read_text() == "x"


def test_a_full_disk_is_one_message_and_leaves_nothing(tmp_path: Path) -> None:
    write(tmp_path, 3000)
    size = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, size[1]))
    try:
        reader = JsonLines(tmp_path)
        reader.cache = tmp_path / "cache"
        with pytest.raises(VlcliError, match="grew beyond the limit on its size"):
            reader.examples()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, size)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [".lock", "digests.json"]


def pipelines(root: Path, **options: object) -> list[Pipeline]:
    tokenizer = Tokenizer.train(WORDS * 2, 60)
    return [
        Pipeline([reader], tokenizer=tokenizer, needs=InputSpec(text=True), length=12, seed=5, **options)
        for reader in both(root)
    ]


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_memory(tmp_path: Path, workers: int) -> None:
    memory, columns = pipelines(write(tmp_path))
    for epoch in (0, 1):
        ours = list(columns.loader(8, shuffle=True, epoch=epoch, workers=workers))
        theirs = list(memory.loader(8, shuffle=True, epoch=epoch))
        assert len(ours) == len(theirs)
        for one, two in zip(ours, theirs, strict=True):
            assert one.keys == two.keys
            mine, other = one.views["clean"].text, two.views["clean"].text
            assert (mine.keys, mine.raw) == (other.keys, other.raw)
            for name in ("ids", "mask", "special", "words"):
                assert getattr(mine, name).equal(getattr(other, name)), name


def test_missing_pictures_are_found_once_and_again_when_folders_change(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    text = "".join(json.dumps({"image": f"{n}.jpg", "text": "dog"}) + "\n" for n in range(10))
    (tmp_path / "train.jsonl").write_text(text)
    for n in range(10):
        (tmp_path / "images" / f"{n}.jpg").touch()
    needs = InputSpec(pixels=True, size=(8, 8))
    (tmp_path / "images" / "4.jpg").unlink()
    memory, columns = both(tmp_path)
    for _ in range(2):
        with pytest.raises(DataError) as ours:
            Pipeline([columns], needs=needs)
        with pytest.raises(DataError) as theirs:
            Pipeline([memory], needs=needs)
        assert str(ours.value) == str(theirs.value)
    kept = Pipeline([columns], needs=needs, missing="drop")
    assert [example.key for example in kept.examples] == [str(n) for n in range(10) if n != 4]
    (tmp_path / "images" / "4.jpg").touch()
    assert Pipeline([columns], needs=needs).total == 10


def test_several_data_sets_with_weights_in_one_order(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    first, second = both(write(tmp_path)), both(write(tmp_path / "other", 11))
    keys = []
    for pair in zip(first, second, strict=True):
        pair[1].weight = 2.5
        data = Pipeline(pair, needs=InputSpec(), seed=2)
        keys.append([batch.keys for batch in data.loader(16, shuffle=True, epoch=3)])
        assert data.examples[65] == pair[1].examples()[5]
    assert keys[0] == keys[1]


@pytest.mark.slow
def test_the_bench_prints_one_order_for_all(tmp_path: Path) -> None:
    script = Path(__file__).parents[2] / "benchmarks" / "columns.py"
    command = [sys.executable, str(script), "--examples", "40000", "--batches", "20", "--folder", str(tmp_path)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    digests = {line.split("|")[2].strip() for line in out.split("| order of vlcli")[1].splitlines()[2:]}
    assert len(digests) == 1
