"""The same rows in every shape of JSON document that the reader ``json`` reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from vlcli.data.readers.generic import Json
from vlcli.errors import DataError

WORDS = st.text("abcd ", min_size=1, max_size=8).filter(str.strip)


def texts(folder: Path, document: Any, **options: Any) -> list[tuple[str | None, list[str]]]:
    (folder / "train.json").write_text(json.dumps(document), encoding="utf-8")
    return [(one.text, one.images) for one in Json(folder, id="", image="file", **options).examples()]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(captions=st.lists(WORDS, min_size=2, max_size=6), cut=st.integers(1, 5))
def test_every_shape_gives_the_same_examples(tmp_path, captions, cut):
    rows = [{"file": f"{number}.jpg", "text": text.strip()} for number, text in enumerate(captions)]
    plain = texts(tmp_path, rows)
    assert len(plain) == len(rows)
    cut = min(cut, len(rows) - 1)
    assert texts(tmp_path, {"version": "1", "rows": rows}) == plain
    assert texts(tmp_path, {"first": rows[:cut], "second": rows[cut:]}) == plain
    assert texts(tmp_path, {str(number): row for number, row in enumerate(rows)}) == plain
    nested = [{"file": row["file"], "qas": [{"text": row["text"]}]} for row in rows]
    assert texts(tmp_path, nested, each="qas") == plain


def test_lists_of_other_fields_are_no_rows(tmp_path):
    document = {"images": [{"file": "1.jpg", "text": "one"}], "licenses": [{"url": "http://x"}]}
    assert texts(tmp_path, document) == [("one", ["1"])]


def test_a_row_has_the_name_of_its_list_as_a_column(tmp_path):
    document = {"cat": [{"file": "1.jpg"}], "dog": [{"file": "2.jpg"}, {"file": "3.jpg", "key": "own"}]}
    (tmp_path / "train.json").write_text(json.dumps(document))
    reader = Json(tmp_path, id="", image="file", label="key")
    assert [reader.label_names()[one.targets["label"]] for one in reader.examples()] == ["cat", "dog", "own"]


@pytest.mark.parametrize("cell", ["a question", {"text": "one"}, ["one"], 3])
def test_a_cell_that_holds_no_list_of_objects_is_refused_with_its_place(tmp_path, cell):
    with pytest.raises(DataError) as error:
        texts(tmp_path, [{"file": "1.jpg", "qas": [{"text": "one"}]}, {"file": "2.jpg", "qas": cell}], each="qas")
    assert error.value.where.endswith("train.json[1]")
    assert "qas" in error.value.what


def test_an_entry_without_questions_gives_no_row_and_is_counted(tmp_path):
    document = [{"file": "1.jpg", "qas": []}, {"file": "2.jpg"}, {"file": "3.jpg", "qas": [{"text": "one"}]}]
    (tmp_path / "train.json").write_text(json.dumps(document))
    reader = Json(tmp_path, id="", image="file", each="qas")
    assert [(one.text, one.images) for one in reader.examples()] == [("one", ["3"])]
    assert reader.left_out == {"entries without qas": 2}


def test_questions_among_annotations_have_the_fields_of_their_images(tmp_path):
    asked = [{"image_id": 7, "question": "what?"}, {"image_id": 8, "question": "who?"}]
    listed = {"images": [{"id": 7, "file": "1.jpg"}, {"id": 8, "file": "2.jpg"}], "annotations": asked}
    expected = [("what?", ["1"]), ("who?", ["2"])]
    assert texts(tmp_path, listed, text="question") == expected
    by_id = {"images": {"7": {"file": "1.jpg"}, "8": {"file": "2.jpg"}}, "annotations": dict(enumerate(asked))}
    assert texts(tmp_path, by_id, text="question") == expected


def test_objects_without_a_common_field_are_no_rows(tmp_path):
    with pytest.raises(DataError, match="holds no table"):
        texts(tmp_path, {"names": {"1": "1.jpg"}, "said": {"2": {"text": "one"}}})
