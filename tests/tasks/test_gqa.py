"""GQA and VQA from their files to their servers' submissions, and both learnt end to end on the world of shapes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_batches import SMALL, make_batch

from vlcli import registry
from vlcli.data.reader import Reader
from vlcli.errors import DataError
from vlcli.metrics.classification import consistency, group_of

ROW = {
    "question": "Is the pipe red?",
    "imageId": "2375429",
    "answer": "yes",
    "isBalanced": True,
    "types": {"structural": "verify", "semantic": "attr", "detailed": "verifyAttr"},
    "groups": {"global": None, "local": "x"},
    "entailed": ["02"],
}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def gqa(root: Path, **keys: Any) -> Reader:
    reader: Reader = registry.build("datasets", {"name": "gqa", **keys}, root)
    return reader


def test_official_questions(tmp_path: Path) -> None:
    write(tmp_path / "gqa/val_balanced_questions.json", {"01": ROW})
    (example,) = gqa(tmp_path, split="valid").examples()  # LXMERT's name of the split
    assert (example.key, example.text, example.images) == ("01", "Is the pipe red?", ["2375429"])
    assert example.targets == {
        "question_id": "01", "answers": {"yes": 1.0}, "answer": "yes", "structural": "verify", "semantic": "attr",
        "detailed": "verifyAttr", "balanced": True, "entailed": ["02"],
    }  # fmt: skip


def test_the_authors_list(tmp_path: Path) -> None:
    rows = [{"img_id": "9", "label": {"pipe": 1.0}, "question_id": "07333408", "sent": "What?"}]
    write(tmp_path / "gqa/valid.json", rows)
    write(tmp_path / "gqa/submit.json", [{key: value for key, value in rows[0].items() if key != "label"}])
    (example,) = gqa(tmp_path, split="val").examples()
    assert example.targets == {"question_id": "07333408", "answers": {"pipe": 1.0}, "answer": "pipe"}
    (asked,) = gqa(tmp_path, split="submit").examples()
    assert asked.targets == {"question_id": "07333408"}


def test_a_folder_of_chunks_is_one_file(tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / f"gqa/train_all_questions/train_all_questions_{number}.json", {f"0{number}": ROW})
    reader = gqa(tmp_path, questions="gqa/{split}_all_questions.json")
    assert [example.key for example in reader.examples()] == ["00", "01", "02"]
    assert len(reader.files()) == 3


@pytest.mark.parametrize(("row", "what"), [
    ({"question": "?"}, "'imageId' is missing"), ({"imageId": "1"}, "'question' is missing"),
    ({"question": "?", "imageId": ""}, "no image"), ({"question": "?", "imageId": "1", "answer": 3}, "wrong type"),
])  # fmt: skip
def test_faulty_questions_are_named(tmp_path: Path, row: dict, what: str) -> None:
    write(tmp_path / "gqa/train_balanced_questions.json", {"042": row})
    with pytest.raises(DataError, match=what) as caught:
        gqa(tmp_path).examples()
    assert "042" in caught.value.where


def answered(name: str, answers: tuple[str, ...], chosen: list[int], **targets: Any) -> tuple[Any, list[dict]]:
    task = registry.build("tasks", name)
    task.attach(replace(SMALL, answers=answers))
    batch = replace(make_batch(), targets=targets)
    logits = torch.zeros(3, len(answers))
    logits[torch.arange(3), torch.tensor(chosen)] = 2
    return task, task.decode({"answering": {"logits": logits}}, batch)


def test_gqa_decodes_scores_and_submits(tmp_path: Path) -> None:
    facts = {
        "question_id": ["a", "b", "c"],
        "answer": ["yes", "no", "red"],
        "structural": ["verify", "verify", "query"],
    }
    facts |= {"entailed": [["b", "a"], [], ["zzz"]]}
    task, rows = answered("gqa", ("no", "red", "yes"), [2, 2, 1], **facts)
    rows = [{**row, "key": number} for row, number in zip(rows, "abc", strict=True)]
    assert [row["correct"] for row in rows] == [True, False, True]
    wanted = {"accuracy": 2 / 3, "binary": 0.5, "open": 1.0, "accuracy/query": 1.0, "accuracy/verify": 0.5}
    wanted |= {f"most_frequent/{name}": share for name, share in {"binary": 0.5, "open": 1.0, "query": 1.0}.items()}
    wanted |= {"most_frequent": 1 / 3, "most_frequent/verify": 0.5}
    assert task.score(rows) == pytest.approx(wanted | {"consistency": 0.0})
    (file,) = task.submission(rows, tmp_path)
    assert json.loads(file.read_text())[2] == {"questionId": "c", "prediction": "red"}


def test_gqa_reads_the_file_of_choices(tmp_path: Path) -> None:
    write(tmp_path / "gqa/val_balanced_questions.json", {"01": ROW})
    write(tmp_path / "gqa/val_choices.json", {"01": {"valid": ["yes", "no"], "plausible": ["yes"]}})
    reader = gqa(tmp_path, split="val")
    assert reader.choices()["01"]["plausible"] == ["yes"]
    task, _ = answered("gqa", ("no", "yes"), [0, 0, 0])
    task.choices = reader.choices()
    found = task.score([{"key": "01", "prediction": "no", "answer": "yes"}])
    assert found == {"accuracy": 0.0, "most_frequent": 1.0, "validity": 1.0, "plausibility": 0.0}
    assert gqa(tmp_path, split="train").choices() == {}


def test_answer_tables_of_the_tasks(tmp_path: Path) -> None:
    def reader(*answers: dict) -> Any:
        return SimpleNamespace(root=tmp_path, examples=lambda: [SimpleNamespace(targets=row) for row in answers])

    counted = reader(*[{"answer": "The Cat", "answers": {"cat": 1.0, "dog": 1.0}}] * 9, *[{"answer": "rare"}] * 8, {})
    assert registry.build("tasks", "vqa").labels([counted]) == ("cat",)
    assert registry.build("tasks", "gqa").labels([reader({"answer": "The Cat"}, {"answer": "b"})]) == ("The Cat", "b")
    for name in ("vqa", "gqa"):  # the published order, that of published weights
        write(tmp_path / name / "trainval_label2ans.json", ["", "web", "net"])
        assert registry.build("tasks", name).labels([counted]) == ("", "web", "net")
    write(tmp_path / "own.json", {"b": 1, "a": 0})
    assert registry.build("tasks", {"name": "vqa", "answers": "own.json"}).labels([counted]) == ("a", "b")


def test_tasks_hand_their_options_to_the_objective() -> None:
    task = registry.build("tasks", {"name": "gqa", "loss": "ce", "only": "text", "source_answers": "all.json"})
    assert task.objectives() == [{"name": "answering", "loss": "ce", "only": "text", "source_answers": "all.json"}]
    assert registry.build("tasks", "vqa").objectives() == [{"name": "answering", "loss": "bce"}]
    assert (task.usual_answers, registry.build("tasks", "vqa").usual_answers) == (1842, 3129)


def test_real_nlvr2_groups_and_csv(shared: Path, tmp_path: Path) -> None:
    """The official grouping, with the pair's number blanked, and a CSV that the official script can read back."""
    spec = {"name": "nlvr2", "split": "dev", "file": "nlvr2/dev.json"}
    examples = registry.build("datasets", spec, shared / "data/annotations").examples()
    names = [example.key for example in examples]
    blanked = ["-".join(["" if place == 2 else part for place, part in enumerate(name.split("-"))]) for name in names]
    assert len(set(blanked)) == len({group_of(name) for name in names}) == 2018
    right = [place % 7 > 0 for place in range(len(names))]
    groups: dict[str, bool] = {}
    for group, fine in zip(blanked, right, strict=True):
        groups[group] = groups.get(group, True) and fine
    assert consistency(names, right) == sum(groups.values()) / 2018
    task = registry.build("tasks", "nlvr2")
    rows = [{"key": e.key, "prediction": bool(e.targets["label"])} for e in examples]
    (file,) = task.submission(rows, tmp_path)
    read = dict(line.strip().split(",") for line in file.read_text().splitlines())
    labels = {
        row["identifier"]: row["label"] for row in map(json.loads, (shared / "data/annotations/nlvr2/dev.json").open())
    }
    assert {key: value.lower() for key, value in read.items()} == {k: str(v).lower() for k, v in labels.items()}


RECIPE = """
root: world
model: {name: lxmert, hidden: 32, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1, dropout: 0.0}
text: {vocabulary: {train: [{name: vqa}, {name: gqa}], size: 120}, length: 18}
stages:
  world: {kind: make, world: {name: shapes, images: 40, captions: 1, parts: [coco, vqa, gqa], size: 64, questions: 2}}
  regions:
    kind: extract
    extractor: {name: backbone, arch: tiny-conv, short: 0, boxes: given-or-grid}
    data: [{name: coco-captions, split: [train, val, test]}, {name: coco-instances, split: [train, val, test]}]
  pretrain:
    data: {name: lxmert-sources}
    validation: {name: lxmert-sources, split: mscoco_minival}
    objectives: [mlm, masked-object, matching, {name: image-qa, from_epoch: 1, weight: 2}]
    epochs: 2
    batch_size: 64
  vqa:
    {kind: finetune, from: pretrain, task: {name: vqa, min_count: 4}, validation: {name: vqa, split: val}, epochs: 1}
  vqa-test: {kind: evaluate, from: vqa, split: test}
  gqa: {kind: finetune, from: pretrain, task: gqa, validation: {name: gqa, split: val}, batch_size: 64}
  gqa-test: {kind: evaluate, from: gqa, split: testdev}
"""


@pytest.mark.slow
def test_vqa_and_gqa_end_to_end(tmp_path: Path) -> None:
    (tmp_path / "qa.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "vlcli", "run", "qa.yaml", "--json"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stderr
    runs = tmp_path / "runs/qa"
    stages = {
        name: json.loads((runs / name / "stage.json").read_text()) for name in ("pretrain", "vqa", "gqa", "gqa-test")
    }
    assert {"eval/loss/image-qa", "eval/loss/matching"} <= set((runs / "pretrain/log.jsonl").read_text().split('"'))
    for name in ("vqa", "gqa"):
        load = stages[name]["facts"]["load"]
        assert not load["new"]
        assert not load["mismatched"]
        assert 0 <= stages[name]["metrics"]["accuracy"] <= 1
    assert any("moved by string" in line for line in stages["vqa"]["facts"]["load"]["reshaped"])
    assert {"accuracy", "binary", "open"} <= set(stages["gqa-test"]["metrics"])
    asked = json.loads((tmp_path / "runs/qa/world/world/vqa/v2_OpenEnded_mscoco_test_questions.json").read_text())
    submitted = json.loads((runs / "vqa-test/vqa.json").read_text())
    assert [row["question_id"] for row in submitted] == [row["question_id"] for row in asked["questions"]]
    assert not json.loads((runs / "vqa-test/metrics.json").read_text())
    assert {"questionId", "prediction"} == set(json.loads((runs / "gqa-test/gqa.json").read_text())[0])
