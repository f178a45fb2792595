"""Baselines beside trained models: tiny sets by hand, what each can learn, and how they meet bad data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from small_run import context

from vlcli import registry
from vlcli.data.sample import Example
from vlcli.errors import ComponentError, DataError
from vlcli.features.schema import Record
from vlcli.features.writer import FeatureWriter
from vlcli.stages import evaluate
from vlcli.tasks import baseline
from vlcli.tasks.pooled import Pooled

COLOURS = {"red": (220, 20, 20), "blue": (20, 20, 220), "green": (20, 200, 20)}
Line = dict[str, Any]


def write(root: Path, part: str, lines: Sequence[Line]) -> None:
    root.mkdir(parents=True, exist_ok=True)
    (root / f"{part}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def run(
    root: Path, by: str, task: Any, columns: Line | None = None, **config: Any
) -> tuple[dict[str, float], list[Line]]:
    """Metrics and predictions of one baseline on ``train.jsonl`` and ``test.jsonl``."""
    reader = {"name": "jsonl", "text": "question", "answers": "answer", **(columns or {})}
    reader = {key: value for key, value in reader.items() if value is not None}
    given = {
        "kind": "evaluate",
        "task": {"name": "baseline", "by": by, "task": task},
        "fit": {**reader, "split": "train"},
    }
    folder = root / "stages" / by.replace("*", "x")
    stage = context(folder, root, {}, **{**given, "data": {**reader, "split": "test"}, **config})
    metrics = evaluate.run(stage).metrics
    return metrics, [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]


def asked(image: str, question: str, answer: str) -> Line:
    return {"image": image, "question": question, "answer": answer}


VQA = {"name": "vqa", "min_count": 1, "loss": "ce"}
KNOWN = [
    asked("a.png", "what colour is it?", "red"),
    asked("b.png", "What colour is it", "blue"),
    asked("c.png", "what colour is it?", "blue"),
    asked("a.png", "how many are there?", "2"),
    asked("b.png", "how many are there?", "2"),
    asked("c.png", "is it big?", "no"),
]
TESTED = [
    asked("d.png", "what colour is it?", "blue"),
    asked("d.png", "how many are there ?", "2"),
    asked("e.png", "what colour is it?", "red"),
    asked("e.png", "where is it?", "left"),
]


@pytest.fixture
def vqa(tmp_path: Path) -> Path:
    write(tmp_path, "train", KNOWN)
    write(tmp_path, "test", TESTED)
    (tmp_path / "images").mkdir()
    shown = {"a": "red", "b": "blue", "c": "green", "d": "green", "e": "red"}
    for name, colour in shown.items():
        Image.new("RGB", (40, 30), COLOURS[colour]).save(tmp_path / "images" / f"{name}.png")
    return tmp_path


def test_the_most_frequent_answer_is_said_of_everything(vqa: Path) -> None:
    """Of two that occur twice each, the first by the alphabet."""
    metrics, rows = run(vqa, "frequent", VQA)
    assert [row["prediction"] for row in rows] == ["2"] * 4
    assert metrics["accuracy"] == 0.25


def test_a_question_gets_its_own_most_frequent_answer(vqa: Path) -> None:
    metrics, rows = run(vqa, "question", VQA)
    assert [row["prediction"] for row in rows] == ["blue", "2", "blue", "2"]
    assert metrics["accuracy"] == 0.5


def test_the_nearest_picture_answers_where_its_question_was_asked(vqa: Path) -> None:
    """The green picture d is like c, the red one e like a; where nobody asked, the picture's own answers count."""
    metrics, rows = run(vqa, "nearest", VQA)
    assert [row["prediction"] for row in rows[:3]] == ["blue", "2", "red"]
    assert rows[3]["prediction"] in ("2", "red")  # what is known of a
    assert metrics["accuracy"] == 0.75


def test_scores_are_those_of_the_task(tmp_path: Path) -> None:
    """Ten people answered: the soft score of what most said, as the official metric has it."""
    people = ["red"] * 2 + ["blue"] * 8
    write(tmp_path, "train", [asked("a.png", "what?", "red"), asked("b.png", "what?", "red")])
    write(tmp_path, "test", [{"image": "c.png", "question": "what?", "answer": people}])
    metrics, rows = run(tmp_path, "frequent", VQA)
    (truth,) = rows
    assert metrics["accuracy"] == pytest.approx(truth["answers"]["red"])
    assert 0 < metrics["accuracy"] < 1


def world(root: Path, count: int, part: str, draw: np.random.Generator) -> None:
    """Questions about the colour or the size of a picture: colour is seen in the picture, size is in the words."""
    lines = []
    (root / "images").mkdir(parents=True, exist_ok=True)
    for number in range(count):
        name, colour = f"{part}{number}.png", str(draw.choice(list(COLOURS)))
        shade = np.clip(np.array(COLOURS[colour]) + draw.integers(-15, 16, 3), 0, 255).astype(np.uint8)
        Image.fromarray(np.broadcast_to(shade, (24, 24, 3)).copy()).save(root / "images" / name)
        lines.append(asked(name, "what colour is this", colour))
        size = str(draw.choice(["mouse", "whale"]))
        lines.append(asked(name, f"how big is a {size}", "small" if size == "mouse" else "large"))
    write(root, part, lines)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> dict[str, float]:
    root, draw = tmp_path_factory.mktemp("baseline-world"), np.random.default_rng(4)
    world(root, 120, "train", draw)
    world(root, 40, "test", draw)
    return {by: run(root, by, VQA)[0]["accuracy"] for by in ("words", "words+image", "words*image")}


def test_words_learn_what_is_in_the_words_and_pictures_the_rest(learnt: dict[str, float]) -> None:
    assert 0.5 <= learnt["words"] < 0.8
    assert learnt["words+image"] > 0.95
    assert learnt["words*image"] > 0.95


def test_the_same_seed_gives_the_same_answers_whatever_was_drawn_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baseline, "ROUNDS", 3)
    world(tmp_path, 30, "train", np.random.default_rng(5))
    world(tmp_path, 10, "test", np.random.default_rng(6))
    first = run(tmp_path, "words*image", VQA)[1]
    torch.rand(7)
    before = torch.random.get_rng_state()
    assert run(tmp_path, "words*image", VQA)[1] == first
    assert torch.equal(torch.random.get_rng_state(), before)


def _classes(root: Path, draw: np.random.Generator) -> Path:
    """Regions whose mean tells the class of a picture; a store beside the tables."""
    with FeatureWriter(root / "features.h5", provenance={"extractor": "drawn"}, dtype="float32") as writer:
        for part, count in (("train", 90), ("test", 30)):
            lines = []
            for number in range(count):
                label = ("cat", "cow", "dog")[number % 3]
                features = draw.standard_normal((4, 12)) + 2.5 * np.eye(12)[number % 3]
                boxes = np.array([[0, 0, 9, 9]] * 4, np.float32)
                writer.append(Record(f"{part}{number}", features.astype(np.float32), boxes, (10, 10)))
                lines.append({"image": f"{part}{number}.png", "label": label})
            write(root, part, lines)
        writer.finish()
    return root / "features.h5"


BY = ("frequent", "nearest", "probe")
LABELS = {"text": None, "answers": None, "label": "label", "labels": ["cat", "cow", "dog"]}


def test_classes_of_pictures_are_probed_from_pooled_features(tmp_path: Path) -> None:
    store = _classes(tmp_path, np.random.default_rng(7))
    for by in ("probe", "nearest"):
        metrics, rows = run(tmp_path, by, "image-classification", LABELS, features=[str(store)])
        assert metrics["top1"] > 0.9, by
        assert set(metrics) >= {"top1", "top5", "most_frequent"}
        assert rows[0]["prediction"] in ("cat", "cow", "dog")
    assert run(tmp_path, "frequent", "image-classification", LABELS)[0]["top1"] == pytest.approx(1 / 3)


def test_several_labels_a_picture_are_ranked_by_mean_average_precision(tmp_path: Path) -> None:
    draw = np.random.default_rng(9)
    names = ("cat", "cow", "dog")
    with FeatureWriter(tmp_path / "features.h5", provenance={"extractor": "drawn"}, dtype="float32") as writer:
        for part, count in (("train", 120), ("test", 40)):
            lines = ["image,labels"]
            for number in range(count):
                has = draw.random(3) < (0.6, 0.4, 0.3)
                features = draw.standard_normal((4, 12)) + 3 * np.eye(12)[:3][has].sum(0)
                boxes = np.array([[0, 0, 9, 9]] * 4, np.float32)
                writer.append(Record(f"{part}{number}", features.astype(np.float32), boxes, (10, 10)))
                lines.append(f"{part}{number}.png,{'|'.join(n for n, h in zip(names, has, strict=True) if h)}")
            (tmp_path / f"{part}.csv").write_text("\n".join(lines) + "\n")
        writer.finish()
    columns = {"name": "csv", "text": None, "answers": None, "label": ["labels"]}
    scores = {by: run(tmp_path, by, "multi-label", columns, features=[str(tmp_path / "features.h5")])[0] for by in BY}
    assert scores["frequent"]["map"] == pytest.approx(scores["frequent"]["chance/map"])
    assert min(scores["probe"]["map"], scores["nearest"]["map"]) > scores["frequent"]["map"] + 0.2


def test_pairs_of_pictures_are_read_in_their_order(tmp_path: Path) -> None:
    """Whether the left picture is brighter is in the order of the two alone."""
    draw = np.random.default_rng(8)
    (tmp_path / "images").mkdir()
    for part, count in (("train", 160), ("test", 40)):
        lines = []
        for number in range(count):
            bright = draw.permutation([60, 190])
            names = [f"{part}{number}-{side}.png" for side in "lr"]
            for name, value in zip(names, bright, strict=True):
                Image.new("L", (16, 16), int(value + draw.integers(-20, 20))).save(tmp_path / "images" / name)
            lines.append({"image": names, "question": "left is brighter", "label": str(bright[0] > bright[1])})
        write(tmp_path, part, lines)
    columns = {"answers": None, "label": "label", "labels": ["False", "True"]}
    metrics, _ = run(tmp_path, "words+image", {"name": "classification", "images": 2}, columns)
    assert metrics["accuracy"] > 0.95


def test_pictures_that_an_example_lacks_are_zeros_in_every_set(tmp_path: Path) -> None:
    files = {str(number): tmp_path / f"{number}.png" for number in range(4)}
    for number, path in enumerate(files.values()):
        Image.new("L", (16, 16), 40 * number).save(path)
    known = [Example("a", images=["0", "1"]), Example("b", images=["2"])]
    asked = [Example("c", images=["3"])]
    pooled = Pooled(known, asked, None, files)
    assert pooled.rows(known).shape[1] == pooled.rows(asked).shape[1]


def test_words_that_are_not_known_and_no_examples_have_one_column() -> None:
    known = {"red": 1, "ball": 2}
    assert baseline.numbers([Example("a", "red red ball"), Example("b", "?")], known).tolist() == [[1, 2], [0, 0]]
    assert baseline.numbers([Example("b", None)], known).tolist() == [[0]]
    assert baseline.numbers([], known).shape == (0, 1)


def test_a_damaged_picture_is_told_or_left_out_as_the_stage_says(vqa: Path) -> None:
    (vqa / "images" / "c.png").unlink()
    with pytest.raises(DataError, match="picture"):
        run(vqa, "nearest", VQA)
    metrics, rows = run(vqa, "nearest", VQA, missing="drop")
    assert len(rows) == 4
    assert run(vqa, "question", VQA)[0]["accuracy"] == 0.5  # words alone need no picture
    assert metrics


def test_data_without_answers_are_refused(vqa: Path) -> None:
    write(vqa, "train", [{"image": "a.png", "question": "what?"}])
    with pytest.raises(DataError, match="No example has an answer"):
        run(vqa, "frequent", VQA, {"answers": None})


def test_tasks_that_give_no_answer_an_example_have_no_baseline() -> None:
    for spec in ({"task": "retrieval"}, {"task": "baseline"}):
        with pytest.raises(ComponentError, match="no baseline of this task"):
            registry.build("tasks", {"name": "baseline", **spec})
    with pytest.raises(ComponentError, match="by"):
        registry.build("tasks", {"name": "baseline", "by": "guess"})
