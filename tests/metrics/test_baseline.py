"""Accuracy of one answer, one normalisation on both sides, and the most frequent answer's accuracy beside it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from vlcli import registry
from vlcli.cli.words import main_metrics
from vlcli.data.answers import read_answers
from vlcli.metrics import vqa
from vlcli.metrics.baseline import baselines, beside, most_frequent, suspicious, without_baselines
from vlcli.objectives.answers import AnswerTable
from vlcli.recipe.schema import TableOptions
from vlcli.tools.table import recipe_table, seeds_table


@pytest.mark.parametrize(("answer", "given", "wanted"), [
    ("table", ["table"], 1.0), ("garbage bin", ["garbage_bin"], 1.0), ("two", ["2"], 1.0), ("a", ["the"], 0.0),
    ("a", ["A"], 1.0), ("table", ["chair"], 0.0), ("table", [], 0.0), ("garbage bin", ["garbage_bin"] * 4, 1.0),
    ("The Cat", ["cat"] * 3, 2 / 3), ("dog", ["Dog", "cat"], 1 / 6), ("cat", ["The Cat"] * 10, 0.0),
])  # fmt: skip
def test_one_answer_is_exact_match_and_both_sides_are_normalised(answer: str, given: list[str], wanted: float) -> None:
    assert vqa.accuracy(answer, given) == pytest.approx(wanted)


def test_every_given_answer_has_its_accuracy() -> None:
    people = ["yes"] * 7 + ["Yes", "no", "no"]
    assert vqa.accuracies(people) == pytest.approx({"yes": 1.0, "no": vqa.accuracy("no", people)})
    assert vqa.accuracies(["The Cat"]) == {"cat": 1.0}
    assert vqa.accuracies([]) == {}


def test_the_most_frequent_answer_over_one_answer_labels_and_people() -> None:
    labels = [{"label": name} for name in ("yes", "no", "yes", True)]
    assert most_frequent(labels) == {"most_frequent": 0.5}
    people = [{"answers": {"red": 1.0, "blue": 0.3}}, {"answers": {"red": 0.9}}, {"answers": {"blue": 1.0}}]
    assert most_frequent(people) == pytest.approx({"most_frequent": 1.9 / 3})
    assert most_frequent([{"key": "1"}]) == {}
    assert most_frequent([{"answers": {}}]) == {"most_frequent": 0.0}
    kinds = [{"answer": "a", "kind": "x"}, {"answer": "b", "kind": "y"}, {"answer": "b", "kind": ""}]
    assert most_frequent(kinds, "kind") == {"most_frequent/x": 1.0, "most_frequent/y": 1.0}


def test_what_is_printed_beside_what() -> None:
    metrics = {"accuracy": 0.5, "most_frequent": 0.4, "consistency": 0.1, "accuracy/red": 1.0, "most_frequent/red": 0.9}
    assert beside("accuracy/red", metrics) == "most_frequent/red"
    assert [beside(name, metrics) for name in ("consistency", "most_frequent")] == [None, None]
    assert baselines(metrics, metrics) == {"accuracy": 0.4, "accuracy/red": 0.9}
    assert main_metrics(metrics) == "accuracy 0.500 (most frequent 0.400)  consistency 0.100"
    assert main_metrics({"accuracy": None, "best": "b.jpg"}) == "accuracy None  best b.jpg"


def test_main_metrics_are_those_of_the_recipes_table_where_it_has_any():
    metrics = {"bleu/1": 0.5, "words/distinct": 40.0, "top1": 0.25, "mean/top1": 0.2}
    assert main_metrics(metrics, patterns=["mean/*", "bleu/1"]) == "mean/top1 0.200  bleu/1 0.500"
    assert main_metrics(metrics, patterns=["cider"]) == main_metrics(metrics) == "top1 0.250"


def test_a_score_of_nothing_and_the_most_frequent_answers_score_are_doubted() -> None:
    assert "exactly 0" in suspicious({"accuracy": 0.0, "most_frequent": 0.4})[0]
    assert "most frequent answer" in suspicious({"top1": 0.4, "most_frequent": 0.4})[0]
    assert suspicious({"accuracy": 0.5, "most_frequent": 0.4, "accuracy/x": 0.0, "most_frequent/x": 1.0}) == []
    assert suspicious({"recall": 0.0}) == []
    assert "exactly 0" in suspicious({"accuracy": 0.0, "chance": 0.2})[0], "also where no answer is the most frequent"


def test_tables_hold_it_in_brackets_and_apart_in_json() -> None:
    metrics = {"accuracy": 0.5, "most_frequent": 0.4, "accuracy/x": 0.25, "most_frequent/x": 0.125}
    outcome = SimpleNamespace(name="test", metrics=metrics)
    layout = TableOptions(title="mine", rows={"with": "test", "none": "other"}, metrics=["accuracy", "accuracy/*"])
    table = recipe_table(layout, [outcome])  # type: ignore[list-item]
    assert table.columns == ["", "accuracy", "accuracy/x"]
    assert table.text_rows() == [["with", "0.500 (0.400)", "0.250 (0.125)"], ["none", "-", "-"]]
    assert "most frequent" in table.text_title()
    first = table.as_dict()["rows"][0]
    assert first["metrics"] == {"accuracy": 0.5, "accuracy/x": 0.25}
    assert first["most_frequent"] == {"accuracy": 0.4, "accuracy/x": 0.125}
    seeds = seeds_table({"with": [metrics, {**metrics, "accuracy": 0.7}]}, None, "t")
    assert seeds.columns == ["", "accuracy", "accuracy/x"]
    assert "(0.400" in seeds.text_rows()[0][1]


@pytest.mark.parametrize(("cell", "answers"), [
    ("garbage_bin", {"garbage bin": 1.0}), (["Two"], {"2": 1.0}), ("A", {"a": 1.0}),
    (["Two", "2", "a red car"], {"2": 0.6, "red car": 0.3}), ({"T-shirt": 0.6, "t shirt": 0.3}, {"t shirt": 0.6}),
])  # fmt: skip
def test_answers_of_own_data_are_spelt_as_tables_are(tmp_path: Path, cell: object, answers: dict[str, float]) -> None:
    (tmp_path / "own.jsonl").write_text(json.dumps({"image": "a.jpg", "text": "what?", "answers": cell}) + "\n")
    reader = registry.build("datasets", {"name": "jsonl", "file": "own.jsonl"}, tmp_path)
    assert reader.examples()[0].targets["answers"] == answers


def test_rows_of_a_published_table_are_found_by_their_normalised_form() -> None:
    table = AnswerTable(("dry-erase board", "t-shirt", "yes"))
    assert [table.find(name) for name in ("t shirt", "t-shirt", "dry erase board")] == [1, 1, 0]
    assert [table.find(name) for name in ("no", "T-shirt")] == [None, None]


def test_published_tables_give_the_same_rows_as_before(shared: Path) -> None:
    """What VQA's people said, as it was written, finds no further rows: training targets are what they were."""
    strings = read_answers(shared / "data/annotations/lxmert/vqa/trainval_label2ans.json").strings
    table, plain = AnswerTable(strings), set(strings)
    file = shared / "data/annotations/vqa/nlp1_subset/v2_annotations_valid.json.gz"
    with gzip.open(file, "rt") as content:
        said = {a["answer"] for row in json.load(content)["annotations"] for a in row["answers"]}
    assert len(said) > 1000
    assert {answer for answer in said if table.find(answer) is not None} == said & plain


def test_chance_stands_beside_rankings() -> None:
    metrics = {"r_mean": 0.1, "image/r@1": 0.3, "chance/r_mean": 0.1, "chance/image/r@1": 0.005}
    assert baselines(metrics, metrics) == {"r_mean": 0.1, "image/r@1": 0.005}
    assert without_baselines(metrics) == ["r_mean", "image/r@1"]
    assert suspicious(metrics) == ["r_mean is exactly what chance scores (0.100): no more was learned"]
