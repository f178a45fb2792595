"""Predictions of any origin score what the task's own evaluation scores; damaged files are one message."""

from __future__ import annotations

import csv
import json

import pytest
import torch
from small_run import NLVR2_OBJECTIVES, context, make_bundle, make_nlvr2, make_store
from typer.testing import CliRunner

from vlcli import registry
from vlcli.builders.readers import open_readers
from vlcli.cli import app
from vlcli.data.pipeline import Pipeline
from vlcli.errors import DataError
from vlcli.nn.model import DataSpec, InputSpec
from vlcli.progress import Silent
from vlcli.recipe import stage_record
from vlcli.recipe.stage_record import StageRecord
from vlcli.stages import evaluate
from vlcli.tasks.base import Result
from vlcli.tasks.outputs import said
from vlcli.tools.scoring import Examples, Predictions, read_predictions, score, source_of_task

ANSWERS = ("red", "yes", "no", "two", "circle", "green")
TASKS = {
    "vqa": ({"name": "vqa"}, "val", "answering", ANSWERS),
    "gqa": ({"name": "gqa"}, "testdev", "answering", ANSWERS),
    "snli-ve": ({"name": "snli-ve"}, "dev", "classification", ()),
    "nlvr2": ({"name": "nlvr2"}, "dev", "classification", ()),
}
WIDTH = {"snli-ve": 3, "nlvr2": 2}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world")
    words = ["data", "make", "shapes", str(folder / "w"), "--images", "20"]
    made = CliRunner().invoke(app, [*words, "parts=[coco, vqa, gqa, nlvr2, snli-ve]", "nlvr2_train=8", "nlvr2_dev=8"])
    assert made.exit_code == 0, made.stderr
    return folder / "w"


def own(task, source, objective, width):
    """What the task's evaluation makes of random logits."""
    readers = task.arrange(open_readers(source.data, source.root, Silent()))
    data = Pipeline(readers, needs=InputSpec(text=False))
    if hasattr(task, "_read_choices"):
        task._read_choices(Examples(data, Silent()))
    torch.manual_seed(0)
    rows = []
    for batch in Examples(data, Silent()).batches():
        rows += task.decode({objective: {"logits": torch.randn(len(batch), width)}}, batch)
    return Result(task.score(rows), rows)


@pytest.mark.parametrize("name", TASKS)
def test_a_file_scores_what_the_evaluation_scored(world, tmp_path, name):
    spec, split, objective, answers = TASKS[name]
    source = source_of_task(spec, world, split)
    source.task.attach(DataSpec(answers=answers))
    wanted = own(source.task, source, objective, WIDTH.get(name, len(answers)))
    assert wanted.metrics
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in reversed(wanted.predictions)))
    found = score(source_of_task(spec, world, split), tmp_path / "rows.jsonl")
    assert json.dumps(found.metrics) == json.dumps(wanted.metrics)
    for path in registry.build("tasks", spec).submission(wanted.predictions, tmp_path):
        official = score(source_of_task(spec, world, split), path)
        assert json.dumps(official.metrics) == json.dumps(wanted.metrics)


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    """A finished evaluate stage of NLVR2."""
    root = tmp_path_factory.mktemp("run")
    make_store(root / "runs/small/regions", make_nlvr2(root / "data"))
    model = make_bundle(root / "runs/small/nlvr2", {"name": "nlvr2"}, NLVR2_OBJECTIVES)
    folder = root / "runs/small/test"
    inputs = {"nlvr2": model, "regions": root / "runs/small/regions"}
    there = context(folder, root / "data", inputs, kind="evaluate", **{"from": "nlvr2"})
    result = evaluate.run(there)
    config = there.config.model_dump(mode="json", by_alias=True)
    record = StageRecord("test", "evaluate", "done", "k", config, root=str(root / "data"), metrics=result.metrics)
    stage_record.write(folder, record)
    return folder


def run(*words):
    return CliRunner().invoke(app, ["eval", *map(str, words)])


def test_a_stages_own_predictions_give_its_metrics(stage, monkeypatch):
    wanted = (stage / "metrics.json").read_text()
    for words in (("--stage", stage), ("--stage", "small/test"), ("--recipe", "small", "--only", "test")):
        monkeypatch.chdir(stage.parents[2])
        ended = run("--predictions", stage / "predictions.jsonl", *words, "--json")
        assert ended.exit_code == 0, ended.stderr
        assert json.dumps(json.loads(ended.stdout)["metrics"]) == json.dumps(json.loads(wanted))
    official = run("nlvr2", "--predictions", stage / "nlvr2.csv", "--root", stage.parents[2] / "data", "--json")
    assert json.loads(official.stdout)["metrics"] == json.loads(wanted)
    assert "accuracy" in run("--predictions", stage / "predictions.jsonl", "--stage", stage).stdout


def changed(kind, lines):
    """The lines of a file that is damaged in one way."""
    other = {
        "missing": lines[1:],
        "unknown": [*lines, json.dumps({"key": "dev-99-0-0", "prediction": True})],
        "duplicate": [*lines, lines[0]],
        "broken": [lines[0], "{"],
        "no prediction": [json.dumps({"key": "dev-0-0-0"})],
        "null": [json.dumps({**json.loads(lines[0]), "prediction": None}), *lines[1:]],
        "list": ["7"],
        "verdict": [json.dumps({**json.loads(lines[0]), "prediction": "maybe"}), *lines[1:]],
        "space": [json.dumps({**json.loads(lines[0]), "prediction": " True"}), *lines[1:]],
        "empty": [],
    }
    return other[kind]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("missing", "1 of 16 examples have no prediction"),
        ("unknown", "1 predictions belong to no example"),
        ("duplicate", "Two predictions have one key"),
        ("broken", "mine.jsonl:2"),
        ("no prediction", "A row is no prediction"),
        ("null", "A row is no prediction"),
        ("list", "something else"),
        ("verdict", "A prediction is no verdict"),
        ("space", "A prediction is no verdict"),
        ("empty", "There is no prediction in the file"),
    ],
)
def test_damaged_predictions_are_one_message(stage, tmp_path, kind, says):
    lines = (stage / "predictions.jsonl").read_text().splitlines()
    (tmp_path / "mine.jsonl").write_text("\n".join(changed(kind, lines)) + "\n")
    ended = run("--predictions", tmp_path / "mine.jsonl", "--stage", stage)
    assert ended.exit_code == 5, ended.stdout
    assert says in ended.stderr
    assert "Traceback" not in ended.stderr


def test_lines_end_where_json_lines_end_and_empty_ones_are_passed_over(tmp_path):
    file = tmp_path / "mine.jsonl"
    file.write_bytes('{"key": "a", "prediction": "a\u2028dog\x85"}\r\n\r\n'.encode())
    assert read_predictions(file)["a"]["prediction"] == "a\u2028dog\x85"
    file = tmp_path / "mine.csv"
    file.write_text("a,yes\n\nb,no\n\n")
    assert list(read_predictions(file)) == ["a", "b"]
    file.write_text(",question_id,answer\n0,7,yes\n1,8,no\n")  # as pandas writes
    assert {key: row["prediction"] for key, row in read_predictions(file).items()} == {"7": "yes", "8": "no"}


def test_what_cannot_be_scored_is_said(stage, tmp_path):
    assert "Say what the predictions are scored against" in run("--predictions", stage / "nlvr2.csv").stderr
    ranked = run("retrieval", "--predictions", stage / "predictions.jsonl", "--root", tmp_path)
    assert "cannot be scored from a file" in ranked.stderr
    assert run("--predictions", tmp_path / "absent.jsonl", "--stage", stage).exit_code == 5
    assert run("--predictions", stage / "nlvr2.csv", "--stage", tmp_path / "absent").exit_code == 2


def test_boxes_of_coco_are_a_row_a_picture(tmp_path):
    rows = [
        {"image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5},
        {"image_id": 3, "category_id": 2, "bbox": [0, 0, 5, 5], "score": 0.25},
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(rows))
    found = read_predictions(tmp_path / "boxes.json", boxes=True)
    assert found["3"]["boxes"] == [[1, 2, 4, 6], [0, 0, 5, 5]]
    assert found["3"]["categories"] == [1, 2]
    (tmp_path / "boxes.json").write_text(json.dumps([{**rows[0], "bbox": 7}]))
    with pytest.raises(DataError, match="no detection"):
        read_predictions(tmp_path / "boxes.json", boxes=True)


def test_a_file_of_boxes_scores_as_pycocotools_scores_it(tmp_path):
    """By COCOeval of pycocotools 2.0.11: AP .504950 and AP50 .504950, 51 of 101 steps of recall at precision 1.

    The third picture has no box in the file, and the second one's overlaps by .4996, which is no half.
    """
    pytest.importorskip("pycocotools")
    numbers, folder = range(1, 4), tmp_path / "coco/annotations"
    folder.mkdir(parents=True)
    truth = {
        "images": [{"id": n, "file_name": f"{n:012}.jpg", "width": 50, "height": 50} for n in numbers],
        "categories": [{"id": 1, "name": "cat"}],
        "annotations": [
            {"id": n, "image_id": n, "category_id": 1, "bbox": [0.123, 0, 10, 10], "area": 100, "iscrowd": 0}
            for n in (1, 2)
        ],
    }
    (folder / "instances_val.json").write_text(json.dumps(truth))
    boxes = [[0.123, 0, 10, 10], [0.123, 0, 10, 4.996]]
    rows = [
        {"image_id": n, "category_id": 1, "bbox": box, "score": 1 / n} for n, box in zip(numbers, boxes, strict=False)
    ]
    (tmp_path / "boxes.json").write_text(json.dumps(rows))
    found = score(source_of_task({"name": "detection"}, tmp_path, "val"), tmp_path / "boxes.json").metrics
    assert (found["AP"], found["AP50"]) == pytest.approx((0.5049505, 0.5049505), abs=1e-6)
    (tmp_path / "boxes.json").write_text(json.dumps([*rows, {**rows[0], "image_id": 9}]))
    with pytest.raises(DataError, match="belong to no example"):
        score(source_of_task({"name": "detection"}, tmp_path, "val"), tmp_path / "boxes.json")


@pytest.mark.parametrize("more", ["data={name: csv}", "gqa"])
def test_words_that_would_be_passed_over_are_refused(more, tmp_path):
    (tmp_path / "p.json").write_text('[{"question_id": 1, "answer": "yes"}]')
    words = ["eval", "vqa", more, "--predictions", str(tmp_path / "p.json"), "--root", str(tmp_path)]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 2
    assert more.split("=")[0] in ended.stderr
    assert "--stage" in ended.stderr


def test_a_table_of_predictions_may_have_a_header(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text(",question_id,answer\n0,a,yes\n1,b,no\n")
    assert {key: row["prediction"] for key, row in read_predictions(file).items()} == {"a": "yes", "b": "no"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("map.json", '{"7": "yes", "8": "no"}'),
        ("map.json", '{\n "7": "yes",\n "8": "no"\n}'),
        ("scored.json", '{"7": {"answer": "yes", "score": 0.5}, "8": {"answer": "no", "score": 0.25}}'),
        ("wrapped.json", '{"info": {}, "results": [{"qid": 7, "answer": "yes"}, {"qid": 8, "answer": "no"}]}'),
        ("llava.jsonl", '{"question_id": 7, "text": "yes"}\n{"question_id": 8, "text": "no"}\n'),
        ("truth.jsonl", '{"id": 7, "answer": "red", "pred_answer": "yes"}\n{"id": 8, "pred_answer": "no"}\n'),
        ("mine.csv", "question_id;answer\n7;yes\n8;no\n"),
        ("mine.tsv", "question_id\tanswer\r\n7\tyes\r\n8\tno\r\n"),
    ],
)
def test_predictions_as_other_tools_write_them(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    assert {key: row["prediction"] for key, row in read_predictions(file).items()} == {"7": "yes", "8": "no"}


def test_ids_that_became_floats_are_those_of_the_examples(tmp_path):
    file = tmp_path / "mine.csv"
    file.write_text("question_id,answer\n7.0,yes\n8.0,no\n")
    predictions = Predictions(file, read_predictions(file))
    predictions.check([("7", {}), ("8", {})])
    with pytest.raises(DataError) as caught:
        predictions.check([("7", {}), ("9", {})])
    assert caught.value.got == "no prediction for 9; no example for 8.0"


@pytest.mark.parametrize("text", ['{"7": "yes", "7": "no"}', "key,answer,answer\n7,yes,no\n", '{"7": ["yes"]}', "{}"])
def test_predictions_of_two_meanings_are_refused(tmp_path, text):
    file = tmp_path / ("mine.csv" if text.startswith("key") else "mine.json")
    file.write_text(text)
    with pytest.raises(DataError):
        read_predictions(file)


@pytest.mark.parametrize("text", ["a,yes, indeed\n", "a,yes\nb\n", f"a,{'y' * 200_000}\n"])
def test_a_row_of_other_cells_is_refused(tmp_path, text):
    csv.field_size_limit(131_072)  # Python's own, which other packages raise
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DataError):
        read_predictions(tmp_path / "mine.csv")


@pytest.mark.parametrize("value", [None, ["a", "b"], {"a": 1}, float("nan")])
def test_an_answer_that_is_no_text_is_refused(value):
    with pytest.raises(DataError, match="no text"):
        said({"key": "a", "prediction": value})
    assert said({"key": "a", "prediction": 3}) == "3"
