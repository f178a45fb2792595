"""Pictures inside tables become files, bounded and under names that stay in their folder."""

from __future__ import annotations

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.data.readers.generic import JsonLines
from vlcli.errors import DataError, UsageError
from vlcli.tools.unpacking import unpack


def picture(red=0, size=(8, 6), kind="PNG"):
    stream = io.BytesIO()
    Image.new("RGB", size, (red, 0, 0)).save(stream, kind)
    return stream.getvalue()


def table(file, cells, **more):
    file.parent.mkdir(parents=True, exist_ok=True)
    texts = [f"text {number}" for number in range(len(cells))]
    pq.write_table(pa.table({"image": cells, "text": texts, **more}), file)
    return file


def test_the_pictures_of_a_table_are_files_that_a_reader_finds(tmp_path):
    cells = [
        {"bytes": picture(1), "path": "a.png"},
        {"bytes": picture(2, kind="JPEG"), "path": "a.png"},
        {"bytes": picture(1), "path": "again.png"},
        {"bytes": picture(3), "path": None},
    ]
    found = unpack(table(tmp_path / "photos.parquet", cells), tmp_path / "out")
    assert (found.tables, found.pictures, found.bad) == ({"photos": 4}, 3, {})
    examples = JsonLines(tmp_path / "out", file="photos.jsonl").examples()
    assert [example.text for example in examples] == [f"text {number}" for number in range(4)]
    names = [json.loads(line)["image"] for line in (tmp_path / "out/photos.jsonl").read_text().splitlines()]
    assert names == ["a.png", "photos-000001.jpg", "a.png", "photos-000003.png"]
    assert (tmp_path / "out/images" / names[1]).read_bytes() == cells[1]["bytes"]


@pytest.mark.parametrize("path", ["../../out.png", "/etc/passwd.png", "..\\..\\x.png", "a/../b.png", "-rf.png", ".png"])
def test_no_name_leaves_the_folder(tmp_path, path):
    unpack(table(tmp_path / "t.parquet", [{"bytes": picture(), "path": path}]), tmp_path / "in/out")
    (file,) = (tmp_path / "in/out/images").iterdir()
    assert file.read_bytes() == picture()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in", "t.parquet"]


def test_splits_of_a_folder_and_lists_of_pictures(tmp_path):
    pair = [{"bytes": picture(4), "path": "l.png"}, {"bytes": picture(5), "path": "r.png"}]
    for split in ("train", "test"):
        table(tmp_path / f"hub/data/{split}-00000-of-00001.parquet", [pair])
    found = unpack(tmp_path / "hub", tmp_path / "out")
    assert found.tables == {"train": 1, "test": 1}
    row = json.loads((tmp_path / "out/test.jsonl").read_text())
    assert row == {"image": ["l.png", "r.png"], "text": "text 0"}


LAYOUTS = {
    "data/train-00000-of-00002.parquet": "train",
    "data/train-00001-of-00002-9f86d081884c7d65.parquet": "train",
    "data/testA-00000-of-00001.parquet": "testA",
    "en/validation/0000.parquet": "en-validation",
    "more/train.parquet": "more-train",
}


def test_shards_of_one_split_are_one_table_whatever_their_layout(tmp_path):
    for number, file in enumerate(LAYOUTS):
        table(tmp_path / "hub" / file, [{"bytes": picture(number), "path": None}])
    found = unpack(tmp_path / "hub", tmp_path / "out")
    assert found.tables == {name: list(LAYOUTS.values()).count(name) for name in LAYOUTS.values()}


@pytest.mark.parametrize("wrapped", [False, True], ids=["a label", "a list of labels"])
def test_numbered_classes_are_written_by_name(tmp_path, wrapped):
    feature = {"names": ["cat", "dog"], "_type": "ClassLabel"}
    info = {"info": {"features": {"label": {"feature": feature, "_type": "Sequence"} if wrapped else feature}}}
    labels = [[1, 0], [0], []] if wrapped else [1, 0, -1]
    cells = [{"bytes": picture(red), "path": None} for red in range(3)]
    rows = pa.table({"image": cells, "label": labels}).replace_schema_metadata({"huggingface": json.dumps(info)})
    pq.write_table(rows, tmp_path / "train.parquet")
    unpack(tmp_path / "train.parquet", tmp_path / "out")
    named = [json.loads(line)["label"] for line in (tmp_path / "out/train.jsonl").read_text().splitlines()]
    assert named == ([["dog", "cat"], ["cat"], []] if wrapped else ["dog", "cat", None])


def test_pictures_that_cannot_be_used_are_left_out_with_their_rows(tmp_path):
    cells = [{"bytes": data, "path": None} for data in (picture(), b"no picture", b"", picture(1, (50, 40)))]
    found = unpack(table(tmp_path / "t.parquet", cells), tmp_path / "out", max_pixels=1000)
    assert found.tables == {"t": 1}
    assert sorted(found.bad) == ["t[1]", "t[2]", "t[3]"]
    assert "pixels" in found.bad["t[3]"]


@pytest.mark.parametrize("what", ["no pictures", "all bad", "damaged", "absent", "there"])
def test_nothing_is_left_of_what_fails(tmp_path, what):
    source, out = tmp_path / "t.parquet", tmp_path / "out"
    cells = {"no pictures": ["a.png"], "all bad": [{"bytes": b"x", "path": None}]}
    if what in cells or what == "there":
        table(source, cells.get(what, [{"bytes": picture(), "path": None}]))
    if what == "damaged":
        source.write_bytes(b"PAR1 cut")
    if what == "there":
        out.mkdir()
        (out / "mine.txt").write_text("mine")
    with pytest.raises(UsageError if what == "there" else DataError):
        unpack(source, out)
    assert what == "there" or not out.exists()


def test_the_command_says_what_to_do_next(tmp_path):
    table(tmp_path / "t.parquet", [{"bytes": picture(), "path": None}, {"bytes": b"x", "path": None}])
    words = ["data", "unpack", str(tmp_path / "t.parquet"), "--out", str(tmp_path / "out")]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0, ended.stderr
    assert f"next: vlcli init {tmp_path / 'out'}" in ended.stdout
    assert "left out t[1]" in ended.stderr
    assert json.loads(CliRunner().invoke(app, [*words[:-1], str(tmp_path / "o2"), "--json"]).stdout)["pictures"] == 1
