"""A column of labels or answers has one type for the whole data set, and each value one form."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.data.readers.cells import ColumnType, decide
from vlcli.data.readers.generic import JsonLines
from vlcli.data.recognition.values import as_number
from vlcli.errors import DataError

SIGNS = [
    "null",
    "None",
    "NA",
    "1e3",
    "007",
    "[1]",
    "stop",
    "nan",
    "1_000",
    "-",
    "+1",
    "0x10",
    "{",
    "12345678901234567890",
]


def table(root: Path, kind: str, split: str, column: str, values: list[Any]) -> None:
    rows = [{"text": f"no. {place}", column: value} for place, value in enumerate(values)]
    if kind == "csv":
        content = io.StringIO()
        writer = csv.DictWriter(content, ["text", column])
        writer.writeheader()
        writer.writerows(
            {**row, column: row[column] if isinstance(row[column], str) else json.dumps(row[column])} for row in rows
        )
        (root / f"{split}.csv").write_text(content.getvalue())
    elif kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.Table.from_pylist(rows), root / f"{split}.parquet")
    elif kind == "json":
        (root / f"{split}.json").write_text(json.dumps(rows))
    else:
        (root / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(root: Path, kind: str, split: str = "train", **options: Any) -> Any:
    return registry.build("datasets", {"name": kind, "split": split, **options}, root)


def classes(reader: Any) -> list[str]:
    names = reader.label_names() or None
    return [names[one.targets["label"]] if names else str(one.targets["label"]) for one in reader.examples()]


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl", "parquet"])
def test_answers_that_look_like_values_stay_the_strings_that_they_are(kind: str, tmp_path: Path) -> None:
    table(tmp_path, kind, "train", "answers", SIGNS)
    assert [one.targets["raw_answers"] for one in read(tmp_path, kind).examples()] == [[word] for word in SIGNS]


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl", "parquet"])
def test_labels_that_look_like_values_stay_the_strings_that_they_are(kind: str, tmp_path: Path) -> None:
    table(tmp_path, kind, "train", "label", SIGNS)
    assert classes(read(tmp_path, kind)) == SIGNS


@pytest.mark.parametrize("kind", ["csv", "json", "jsonl"])
@pytest.mark.parametrize("column", ["label", "answers"])
def test_numbers_have_one_form_in_all_splits(kind: str, column: str, tmp_path: Path) -> None:
    table(tmp_path, kind, "train", column, [1.0, 2.0, "3.50"])
    table(tmp_path, kind, "test", column, ["1", 2, 3.5])
    found = []
    for split in ("train", "test"):
        examples = read(tmp_path, kind, split).examples()
        found.append([str(one.targets.get("label", one.targets.get("raw_answers"))) for one in examples])
    assert found[0] == found[1]
    assert "1" in found[0][0]
    assert "1.0" not in found[0][0]


@pytest.mark.parametrize(
    "names", [("train", "test"), ("train", "val"), ("my_train_rows", "my_test_rows"), ("a-dev", "a-train")]
)
def test_one_split_with_words_makes_text_of_all(names: tuple[str, str], tmp_path: Path) -> None:
    table(tmp_path, "csv", names[0], "label", ["1.0", "1.10", "1.1"])
    table(tmp_path, "csv", names[1], "label", ["1.0", "beta"])
    first, second = (read(tmp_path, "csv", file=f"{name}.csv") for name in names)
    assert classes(first) == ["1.0", "1.10", "1.1"]
    assert classes(second) == ["1.0", "beta"]


def test_rows_that_only_leaves_out_count_for_the_type(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("text,label,part\na,1.0,train\nb,2.0,train\nc,none,test\n")
    assert classes(read(tmp_path, "csv", file="all.csv", only={"part": "train"})) == ["1.0", "2.0"]


def test_lists_are_lists_where_every_cell_is_one(tmp_path: Path) -> None:
    table(tmp_path, "csv", "train", "answers", ['["a", "b"]', '{"c": 0.6}', "[]"])
    found = [one.targets["answers"] for one in read(tmp_path, "csv").examples()]
    assert found == [{"a": 0.3, "b": 0.3}, {"c": 0.6}, {}]
    table(tmp_path, "csv", "train", "answers", ['["a", "b"]', "plain"])
    assert [one.targets["raw_answers"] for one in read(tmp_path, "csv").examples()] == [['["a", "b"]'], ["plain"]]


def test_a_recipe_sets_the_type(tmp_path: Path) -> None:
    table(tmp_path, "csv", "train", "label", ["1.10", "1.1"])
    assert classes(read(tmp_path, "csv")) == ["1.1", "1.1"]
    assert classes(read(tmp_path, "csv", types={"label": "text"})) == ["1.10", "1.1"]
    table(tmp_path, "csv", "train", "label", ["1", "many"])
    with pytest.raises(DataError, match="not of its column's type") as caught:
        read(tmp_path, "csv", types={"label": "number"}).examples()
    assert "train.csv:3" in str(caught.value.where)
    table(tmp_path, "csv", "train", "answers", ["[1, 2]", "x"])
    with pytest.raises(DataError, match="not of its column's type"):
        read(tmp_path, "csv", types={"answers": "list"}).examples()
    for wrong in ({"label": "int"}, {"text": "number"}):
        with pytest.raises(DataError, match="type is unknown"):
            read(tmp_path, "csv", types=wrong)


@pytest.mark.parametrize("words", [["data", "stats"], ["validate", "--deep"]])
def test_the_decision_is_printed(words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.csv").write_text("image,label\na.png,1.0\na.png,2\na.png,\na.png,2.0\n")
    (tmp_path / "images").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "images/a.png")
    recipe = """
root: .
stages:
  regions: {kind: extract, extractor: {name: backbone, arch: tiny-conv, boxes: grid}, data: {name: csv}}
"""
    Path("r.yaml").write_text(recipe)
    ended = CliRunner().invoke(app, [*words, "r.yaml"])
    assert "csv (train): 'label' (label) is read as numbers" in ended.output
    assert "left out 1 cells of 'label' that are empty" in ended.output


def test_types_of_columns() -> None:
    assert decide([], as_text=True) is None
    assert decide(["[1]", "2"], as_text=True) == ColumnType(number=False)
    assert decide(["2", "[1]"], as_text=True) == ColumnType(number=False)
    assert decide(["[1]", '["2.0"]'], as_text=True) == ColumnType(number=True, listed=True)
    assert decide([[1, 2], 3.0, "4"], as_text=False) == ColumnType(number=True)
    assert decide([[{"answer": "a"}], {"b": 1.0}], as_text=False) == ColumnType(number=False)
    assert ColumnType(number=False).value([1.0, True, "007", {"answer": 2.5}]) == [
        "1",
        "true",
        "007",
        {"answer": "2.5"},
    ]
    assert ColumnType(number=True).value({"1.0": 0.3, "2": 1}) == {"1": 0.3, "2": 1}


def test_numbers_of_hundreds_of_digits_are_no_values(tmp_path: Path) -> None:
    assert as_number(10**400) is None
    for column, value, what in (("label", 10**400, "no label"), ("box", [1, 2, 3, 10**400], "box is not understood")):
        (tmp_path / "train.jsonl").write_text(json.dumps({"image": "a.jpg", "text": "a", column: value}) + "\n")
        with pytest.raises(DataError, match=what):
            JsonLines(tmp_path, box="box" if column == "box" else None).examples()
