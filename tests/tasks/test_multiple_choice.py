"""Multiple choice: A-OKVQA's questions, choices by the scores of the answer table."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_batches import SMALL, make_batch

from vlcli import registry
from vlcli.errors import DataError

ROW = {
    "split": "train",
    "image_id": 299207,
    "question_id": "22MexNkBPpdZGX6sxbxVBH",
    "question": "What is the man by the bags awaiting?",
    "choices": ["skateboarder", "train", "delivery", "cab"],
    "correct_choice_idx": 3,
    "direct_answers": ["ride"] * 6 + ["cab"] * 4,
    "difficult_direct_answer": False,
    "rationales": ["He is waiting."],
}


def test_the_official_file_is_read_by_the_usual_data_set_of_the_task(tmp_path: Path) -> None:
    (tmp_path / "aokvqa_v1p0_train.json").write_text(json.dumps([ROW]))
    reader = registry.build("datasets", registry.build("tasks", "multiple-choice").dataset(), tmp_path)
    example = reader.examples()[0]
    assert (example.key, example.images, example.text) == (ROW["question_id"], ["000000299207"], ROW["question"])
    assert (example.targets["choices"], example.targets["choice"]) == (ROW["choices"], "cab")
    assert example.targets["answers"]["ride"] == 1.0


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"correct_choice_idx": 4}, "not a choice"),
        ({"choices": ["cab"]}, "no choices"),
        ({"choices": 3}, "no choices"),
    ],
)
def test_faults_are_named_by_their_row(tmp_path: Path, change: dict, what: str) -> None:
    (tmp_path / "train.json").write_text(json.dumps([ROW, {**ROW, "question_id": "b", **change}]))
    spec = {"name": "json", "image": "{image_id}.jpg", "text": "question", "choices": "choices"}
    with pytest.raises(DataError, match=what) as caught:
        registry.build("datasets", spec, tmp_path).examples()
    assert caught.value.where.endswith("train.json[1]")


def test_choices_may_be_words_in_a_cell_and_the_right_one_a_word(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("image,text,options,right\na.jpg,what?,a cup;a hat,a hat\nb.jpg,what?,x;y,\n")
    spec = {"name": "csv", "choices": "options", "correct": "right"}
    first, second = registry.build("datasets", spec, tmp_path).examples()
    assert first.targets == {"choices": ["a cup", "a hat"], "choice": "a hat", "answers": {"hat": 1.0}}
    assert second.targets == {"choices": ["x", "y"]}


def test_the_choice_that_the_table_scores_highest_is_chosen(tmp_path: Path) -> None:
    task = registry.build("tasks", "multiple-choice")
    task.attach(replace(SMALL, answers=("cab", "ride", "train")))
    choices = [["skateboarder", "train", "cab"], ["a train", "boat"], ["ship", "boat", "car"]]
    batch = replace(make_batch(), targets={"choices": choices, "choice": ["cab", "a train", None]})
    logits = torch.tensor([[1.0, 9.0, 0.0], [0.0, 9.0, -5.0], [0.0, 1.0, 2.0]])
    rows = task.decode({"answering": {"logits": logits}}, batch)
    assert [row["prediction"] for row in rows] == ["cab", "a train", "ship"]
    assert task.score(rows) == pytest.approx({"accuracy": 1.0, "chance/accuracy": (1 / 3 + 1 / 2) / 2})
    assert [row["correct"] for row in task.judge([{"prediction": "train"}] * 3, batch)[:2]] == [False, True]
    files = task.submission(rows, tmp_path)
    assert json.loads(files[0].read_text())[batch.keys[2]] == {"multiple_choice": "ship"}
