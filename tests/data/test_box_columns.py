"""Boxes whose numbers stand in four columns equal boxes that stand in one."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlcli.data.readers.box_columns import corners
from vlcli.data.readers.generic import Csv, JsonLines
from vlcli.errors import DataError

SIDES = st.integers(0, 40).flatmap(lambda start: st.tuples(st.just(start), st.integers(start + 1, 60)))
BOXES = st.lists(st.tuples(st.integers(0, 4), SIDES, SIDES, st.sampled_from(["cat", "dog"])), min_size=1, max_size=9)
FORMS: dict[str, Any] = {
    "xyxy": lambda x, y: (x[0], y[0], x[1], y[1]),
    "xywh": lambda x, y: (x[0], y[0], x[1] - x[0], y[1] - y[0]),
    "cxcywh": lambda x, y: ((x[0] + x[1]) / 2, (y[0] + y[1]) / 2, x[1] - x[0], y[1] - y[0]),
}
FOUR = ["a", "b", "c", "d"]


def table(folder: Path, rows: list[list[Any]]) -> None:
    with (folder / "train.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["image", *FOUR, "class"], *rows])


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(boxes=BOXES, form=st.sampled_from(sorted(FORMS)))
def test_rows_of_one_box_are_the_lists_of_a_picture(tmp_path, boxes, form):
    table(tmp_path, [[f"{n}.jpg", *FORMS[form](x, y), name] for n, x, y, name in boxes])
    pictures: dict[int, dict[str, Any]] = {}
    for n, x, y, name in boxes:
        row = pictures.setdefault(n, {"image": f"{n}.jpg", "boxes": [], "class": []})
        row["boxes"].append([x[0], y[0], x[1], y[1]])
        row["class"].append(name)
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, pictures.values())))
    columns = Csv(tmp_path, id="", boxes=FOUR, box_format=form, box_labels="class")
    lists = JsonLines(tmp_path, id="", box_labels="class")
    assert [one.images for one in columns.examples()] == [one.images for one in lists.examples()]
    assert columns.class_names() == lists.class_names()
    first, second = columns.boxes(), lists.boxes()
    assert list(first) == list(second)
    for name, expected in second.items():
        np.testing.assert_allclose(first[name].boxes, expected.boxes, atol=1e-4)
        np.testing.assert_array_equal(first[name].classes, expected.classes)


def test_a_row_without_a_box_is_a_picture_without_boxes(tmp_path):
    table(tmp_path, [["1.jpg", 1, 2, 9, 9, "cat"], ["2.jpg", "", "", "", "", ""]])
    reader = Csv(tmp_path, id="", boxes=FOUR, box_labels="class")
    assert [one.images for one in reader.examples()] == [["1"], ["2"]]
    assert {name: len(boxes) for name, boxes in reader.boxes().items()} == {"1": 1, "2": 0}


def test_an_expression_has_the_box_of_its_row(tmp_path):
    table(tmp_path, [["1.jpg", 1, 2, 8, 7, "the left dog"], ["1.jpg", 3, 2, 6, 7, "the right dog"]])
    reader = Csv(tmp_path, id="", box=FOUR, box_format="xywh", text="class")
    assert [(one.text, one.targets["pixel_box"]) for one in reader.examples()] == [
        ("the left dog", [1, 2, 9, 9]),
        ("the right dog", [3, 2, 9, 9]),
    ]


@pytest.mark.parametrize("cells", [("1", "2", "", "9"), ("1", "2", "x", "9"), ("1", "nan", "8", "9")])
def test_a_cell_that_is_no_number_is_refused_with_its_line(tmp_path, cells):
    table(tmp_path, [["1.jpg", 1, 2, 9, 9, "cat"], ["2.jpg", *cells, "dog"]])
    with pytest.raises(DataError) as error:
        Csv(tmp_path, id="", boxes=FOUR, box_labels="class").examples()
    assert error.value.where.endswith("train.csv:3")


def test_a_column_that_is_absent_is_named(tmp_path):
    table(tmp_path, [["1.jpg", 1, 2, 9, 9, "cat"]])
    with pytest.raises(DataError) as error:
        Csv(tmp_path, id="", boxes=["a", "b", "c", "width"], box_labels="class").examples()
    assert "width" in error.value.expected


@pytest.mark.parametrize("cell", ["[2, 3, 4, 5]", [2, 3, 4, 5], None])
def test_a_box_may_be_a_list_in_one_column(cell):
    box = None if cell is None else [2, 3, 6, 8]
    assert corners({"bbox": cell}, ["bbox"], "xywh", "here") == box


@pytest.mark.parametrize("cell", ["[2, 3, 4]", "2 3 4 5", "{}", "[1, 2, 3, null]", 7])
def test_a_list_that_is_no_box_is_refused(cell):
    with pytest.raises(DataError, match="The box is not understood"):
        corners({"bbox": cell}, ["bbox"], "xywh", "here")
