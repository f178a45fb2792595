"""Tables in the forms that people export: without a header, as a workbook, beside the pictures, with several labels."""

from __future__ import annotations

import datetime
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from vlcli import registry
from vlcli.data import Reader
from vlcli.errors import DataError


def build(root: Path, name: str, **options: Any) -> Reader:
    return registry.build("datasets", {"name": name, **options}, root)


def facts(reader: Reader) -> list[tuple[Any, ...]]:
    return [(one.key, one.text, one.images, one.targets) for one in reader.examples()]


def workbook(path: Path, rows: list[list[Any]], title: str = "Sheet1") -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.active.title = title
    for row in rows:
        book.active.append(row)
    book.create_sheet("notes").append(["nothing"])
    book.save(path)
    return path


# --- lists without a header


@pytest.mark.parametrize(("separator", "sign"), [("space", "  "), ("tab", "\t"), (",", ",")])
def test_a_list_without_a_header_is_read_by_the_names_of_its_columns(tmp_path: Path, separator: str, sign: str) -> None:
    (tmp_path / "train.txt").write_text(f"a/my cat.jpg{sign}1\nb/dog.jpg{sign}0\n")
    (tmp_path / "classes.txt").write_text("dog\ncat\n")
    options = {"file": "{split}.txt", "separator": separator, "header": ["image", "label"]}
    reader = build(tmp_path, "csv", **options)
    assert [(one.images, one.targets["label"]) for one in reader.examples()] == [(["my cat"], 1), (["dog"], 0)]
    assert reader.image_files()["my cat"] == tmp_path / "images/a/my cat.jpg"
    named = build(tmp_path, "csv", labels="classes.txt", **options)
    assert named.label_names() == ["dog", "cat"]
    assert [one.targets["label"] for one in named.examples()] == [1, 0]
    assert tmp_path / "classes.txt" in named.files()


def test_numbered_class_names_number_the_labels(tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("a.jpg 1\nb.jpg 2\n")
    (tmp_path / "classes.txt").write_text("1 n01 tench\n2 n02 hen\n")
    options = {"file": "{split}.txt", "separator": "space", "header": ["image", "label"], "labels": "classes.txt"}
    reader = build(tmp_path, "csv", **options)
    assert (reader.label_names(), [one.targets["label"] for one in reader.examples()]) == (
        ["n01 tench", "n02 hen"],
        [0, 1],
    )
    (tmp_path / "train.txt").write_text("a.jpg 1\nb.jpg 3\n")
    with pytest.raises(DataError, match="label is unknown") as caught:
        build(tmp_path, "csv", **options).examples()
    assert caught.value.where.endswith("train.txt:2")
    (tmp_path / "classes.txt").write_text("hen\nhen\n")
    with pytest.raises(DataError, match="no list of classes"):
        build(tmp_path, "csv", **options).examples()


# --- workbooks


ROWS = [
    ["image", "text", "label", "score"],
    ["a.jpg", "a cat", "cat", 1],
    ["b.jpg", "ein Hund, groß", "dog", 2.5],
    [None] * 4,
]


def test_a_workbook_is_read_as_its_csv_is(tmp_path: Path) -> None:
    workbook(tmp_path / "train.xlsx", [*ROWS, ["c.jpg", None, "dog", datetime.date(2024, 5, 1)]])
    rows = 'image,text,label,score\na.jpg,a cat,cat,1\nb.jpg,"ein Hund, groß",dog,2.5\nc.jpg,,dog,2024-05-01T00:00:00\n'
    (tmp_path / "train.csv").write_text(rows)
    wanted = build(tmp_path, "csv", extra=["score"])
    found = build(tmp_path, "xlsx", extra=["score"])
    assert facts(found) == facts(wanted)
    assert found.label_names() == ["cat", "dog"]
    assert facts(build(tmp_path, "xlsx", sheet="Sheet1", extra=["score"])) == facts(wanted)
    with pytest.raises(DataError, match="no such sheet") as caught:
        build(tmp_path, "xlsx", sheet="Sheet9").examples()
    assert caught.value.expected == "Sheet1, notes"


def test_damaged_and_foreign_workbooks_are_refused_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = workbook(tmp_path / "train.xlsx", ROWS)
    whole = path.read_bytes()
    for content in (whole[:900], b"", b"image,text\n", whole[:200] + bytes(300) + whole[500:]):
        path.write_bytes(content)
        with pytest.raises(DataError):
            build(tmp_path, "xlsx").examples()
    path.write_bytes(whole)
    with pytest.raises(DataError, match="spreadsheet") as caught:
        build(tmp_path, "csv", file="train.xlsx").examples()
    assert "name: xlsx" in caught.value.hint
    for name in ("train.xls", "train.ods"):
        (tmp_path / name).write_bytes(b"\xd0\xcf\x11\xe0")
        for reader in ("xlsx", "csv"):
            with pytest.raises(DataError, match="spreadsheet") as caught:
                build(tmp_path, reader, file=name).examples()
            assert ".xlsx" in caught.value.hint
    monkeypatch.setenv("VLCLI_UNPACKED_MB", "1")
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("xl/media/bomb.xml", b"0" * 2_000_000)
    with pytest.raises(DataError, match="unpacks to too much"):
        build(tmp_path, "xlsx").examples()


def test_a_row_that_does_not_fit_the_header_of_a_sheet_is_named(tmp_path: Path) -> None:
    workbook(tmp_path / "train.xlsx", [["image", "text"], ["a.jpg", "x"], ["b.jpg", "y", "z"]])
    with pytest.raises(DataError, match="does not fit the header") as caught:
        build(tmp_path, "xlsx").examples()
    assert caught.value.where.endswith("train.xlsx:3")


# --- Hugging Face's imagefolder


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_metadata_beside_the_pictures(tmp_path: Path, kind: str) -> None:
    for split, count in (("train", 2), ("test", 1)):
        (tmp_path / split / "in").mkdir(parents=True)
        rows = [{"file_name": f"in/{split}{n}.png", "text": f"{split} {n}"} for n in range(count)]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        if kind == "csv":
            text = "file_name,text\n" + "".join(",".join(row.values()) + "\n" for row in rows)
        (tmp_path / split / f"metadata.{kind}").write_text(text)
    reader = build(tmp_path, "imagefolder")
    assert [one.text for one in reader.examples()] == ["train 0", "train 1"]
    assert reader.image_files() == {f"train{n}": (tmp_path / f"train/in/train{n}.png").absolute() for n in range(2)}
    assert len(build(tmp_path, "imagefolder", split=["train", "test"]).examples()) == 3


def test_metadata_that_leaves_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train/metadata.jsonl").write_text('{"file_name": "../../secret.png", "text": "a"}\n')
    with pytest.raises(DataError, match="leaves"):
        build(tmp_path, "imagefolder").examples()
    (tmp_path / "train/metadata.jsonl").write_text('{"name": "a.png", "text": "a"}\n')
    with pytest.raises(DataError):
        build(tmp_path, "imagefolder", image="file").examples()


# --- several labels


FLAGS = "image,cat,dog,hen\na.jpg,1,0,0\nb.jpg,1,1,\nc.jpg,0,0,-1\n"


def test_columns_of_flags_are_several_labels(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(FLAGS)
    reader = build(tmp_path, "csv", label=["cat", "dog", "hen"])
    assert reader.label_names() == ["cat", "dog", "hen"]
    unknown = {"unknown_labels": ["hen"]}
    rows = [{"labels": ["cat"]}, {"labels": ["cat", "dog"], **unknown}, {"labels": [], **unknown}]
    assert [one.targets for one in reader.examples()] == rows
    (tmp_path / "train.jsonl").write_text('{"image": "a.jpg", "cat": true, "dog": false}\n')
    assert build(tmp_path, "jsonl", label=["dog", "cat"]).examples()[0].targets == {"labels": ["cat"]}


def test_a_column_of_names_is_several_labels(tmp_path: Path) -> None:
    rows = [
        {"image": "a.jpg", "tags": ["hen", "cat"]},
        {"image": "b.jpg", "tags": []},
        {"image": "c.jpg", "tags": "dog"},
    ]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "train.csv").write_text("image,tags\na.jpg,hen|cat\nb.jpg,\nc.jpg,dog\n")
    listed, joined = build(tmp_path, "jsonl", label=["tags"]), build(tmp_path, "csv", label=["tags"], several="|")
    assert facts(listed) == facts(joined)
    assert listed.label_names() == ["cat", "dog", "hen"]
    assert [one.targets["labels"] for one in listed.examples()] == [["cat", "hen"], [], ["dog"]]
    fixed = build(tmp_path, "jsonl", label=["tags"], labels=["hen", "dog", "cat", "cow"])
    assert (fixed.label_names(), fixed.examples()[0].targets["labels"]) == (
        ["hen", "dog", "cat", "cow"],
        ["hen", "cat"],
    )


@pytest.mark.parametrize(
    ("text", "options", "what", "line"),
    [
        (FLAGS.replace("1,1,", "1,maybe,"), {"label": ["cat", "dog"]}, "does not say yes or no", 3),
        (FLAGS, {"label": ["cat", "cow"]}, "lacks a column", 2),
        ("image,tags\na.jpg,cow\n", {"label": ["tags"], "labels": ["cat"]}, "label is unknown", 2),
    ],
)
def test_faults_of_several_labels(tmp_path: Path, text: str, options: dict[str, Any], what: str, line: int) -> None:
    (tmp_path / "train.csv").write_text(text)
    with pytest.raises(DataError, match=what) as caught:
        build(tmp_path, "csv", **options).examples()
    assert caught.value.where.endswith(f"train.csv:{line}")
