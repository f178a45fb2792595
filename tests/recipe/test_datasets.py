"""Named data sets: what a name stands for, and what is said of names that stand for nothing."""

from __future__ import annotations

import pytest

from vlcli.errors import RecipeError
from vlcli.recipe.load import from_mapping, load
from vlcli.recipe.validate import shallow

NAMED = {
    "mine": {"name": "csv", "file": "all.csv", "text": "question"},
    "dev": {"name": "mine", "take": "after:0.9", "weight": 0.5},
    "both": ["mine", {"name": "jsonl", "split": "extra"}],
}
MINE = NAMED["mine"]


def recipe(datasets, **stage):
    return {
        "model": "lxmert",
        "datasets": datasets,
        "stages": {"tune": {"kind": "pretrain", "objectives": "mlm", **stage}},
    }


def test_a_name_stands_for_its_entry_and_keys_beside_it_win():
    stage = from_mapping("r", recipe(NAMED, data="mine", validation={"name": "dev", "limit": 3})).stages["tune"]
    assert stage.data == [MINE]
    assert stage.validation == [{**MINE, "take": "after:0.9", "weight": 0.5, "limit": 3}]


def test_a_name_may_stand_for_several_and_every_one_gets_the_split():
    stage = from_mapping("r", recipe(NAMED, data=[{"name": "both", "split": "test"}, "vqa"])).stages["tune"]
    assert stage.data == [{**MINE, "split": "test"}, {"name": "jsonl", "split": "test"}, {"name": "vqa"}]


def test_vocabularies_read_named_data_sets_too():
    value = {**recipe(NAMED, data="mine"), "text": {"vocabulary": {"train": "both"}}}
    assert from_mapping("r", value).recipe.text.vocabulary.train == [MINE, {"name": "jsonl", "split": "extra"}]


def test_overrides_change_the_named_data_set_and_the_resolved_copy_reads_alike():
    found = from_mapping("r", recipe(NAMED, data="mine", validation="dev"), ["datasets.mine.file=b.csv"])
    stage = found.stages["tune"]
    assert [one["file"] for one in (*stage.data, *stage.validation)] == ["b.csv", "b.csv"]
    assert from_mapping("r", found.document.value).stages["tune"] == stage


def test_recipes_that_extend_others_change_named_data_sets(tmp_path):
    (tmp_path / "base.yaml").write_text(
        "model: lxmert\ndatasets: {mine: {name: csv, file: a.csv}}\nstages: {pretrain: {data: mine, objectives: mlm}}\n"
    )
    (tmp_path / "heir.yaml").write_text("extends: ./base.yaml\ndatasets: {mine: {file: b.csv}}\n")
    stage = load(str(tmp_path / "heir.yaml")).stages["pretrain"]
    assert stage.data == [{"name": "csv", "file": "b.csv"}]


@pytest.mark.parametrize(
    ("datasets", "says"),
    [
        ({"csv": {"name": "jsonl"}}, "a reader has this name"),
        ({"a": {"name": "b"}, "b": "a"}, "circle"),
        ({"": {"name": "csv"}}, "cannot be the name"),
        ({"mine": 3}, "does not fit"),
        ({"mine": {"file": "a.csv"}}, "does not fit"),
    ],
)
def test_names_that_cannot_stand_for_anything(datasets, says):
    with pytest.raises(RecipeError) as caught:
        from_mapping("r", recipe(datasets, data="jsonl"))
    assert says in str(caught.value)
    assert len(caught.value.problems) <= 2


def test_a_misspelt_name_is_told_with_the_one_that_was_meant(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text(
        "model: lxmert\ndatasets: {mine: {name: csv}}\nstages:\n  pretrain:\n    data: mien\n    objectives: mlm\n"
    )
    told = [fault for fault in shallow(load(str(file))) if fault.key.endswith("name")]
    assert [fault.hint for fault in told] == ["did you mean 'mine'?"]
    assert told[0].where.endswith(":5")


def test_a_fault_inside_a_named_data_set_is_told_with_its_line(tmp_path):
    file = tmp_path / "r.yaml"
    file.write_text(
        "model: lxmert\ndatasets:\n  mine: {name: csvv}\nstages: {pretrain: {data: mine, objectives: mlm}}\n"
    )
    told = [fault for fault in shallow(load(str(file))) if "csvv" in str(fault)]
    assert told[0].where.endswith(":3")
