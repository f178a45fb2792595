"""Several labels a picture: average precision by its definition, the loss, the task on pixels and on regions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from vlcli import registry
from vlcli.data.pipeline import Pipeline
from vlcli.engine.training_module import build_training_module
from vlcli.errors import DataError
from vlcli.metrics.ranking import average_precision
from vlcli.nn.model import DataSpec

DEIT = {
    "name": "deit",
    "size": "tiny",
    "hidden": 16,
    "layers": 2,
    "heads": 2,
    "image_size": 16,
    "patch": 8,
    "classes": None,
}


def by_definition(scores: list[float], positive: list[bool]) -> float:
    """Precision at each threshold from the highest down, times the recall that it adds, counted one by one."""
    total, before = 0.0, 0.0
    for threshold in sorted(set(scores), reverse=True):
        chosen = [yes for score, yes in zip(scores, positive, strict=True) if score >= threshold]
        recall = sum(chosen) / sum(positive)
        total += (recall - before) * sum(chosen) / len(chosen)
        before = recall
    return total


@given(
    st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30).filter(
        lambda x: any(y for _, y in x)
    )
)
def test_average_precision_is_its_definition(pairs: list[tuple[int, bool]]) -> None:
    scores, positive = [s / 5 for s, _ in pairs], [yes for _, yes in pairs]
    assert average_precision(scores, positive) == pytest.approx(by_definition(scores, positive))
    share = sum(positive) / len(positive)
    assert average_precision([0.3] * len(positive), positive) == pytest.approx(share)


def test_average_precision_needs_numbers() -> None:
    with pytest.raises(ValueError, match="numbers"):
        average_precision([float("nan"), 0.5], [True, False])


def test_average_precision_needs_something_positive() -> None:
    with pytest.raises(ValueError, match="positive"):
        average_precision([0.1], [False])


def table(root: Path) -> Path:
    """Red pictures have "red", bright ones "bright"; one cell is unknown."""
    rng, rows = np.random.default_rng(0), ["image,red,bright,never"]
    (root / "images").mkdir(parents=True)
    for number in range(16):
        red, bright = number % 2, number // 2 % 2
        pixels = rng.integers(0, 20, (16, 16, 3), np.uint8) + np.uint8(100 * bright)
        pixels[..., 0] += np.uint8(100 * red)
        Image.fromarray(pixels).save(root / f"images/{number}.png")
        rows.append(f"{number}.png,{red},{'' if number == 3 else bright},0")
    (root / "train.csv").write_text("\n".join(rows) + "\n")
    return root


def made(root: Path, **options: object) -> tuple:
    reader = registry.build("datasets", {"name": "csv", "label": ["red", "bright", "never"], **options}, root)
    task = registry.build("tasks", "multi-label")
    data_spec = DataSpec(answers=task.labels([reader]))
    module = build_training_module(DEIT, task.objectives(), data_spec)
    task.attach(data_spec)
    return task, module, Pipeline([reader], needs=module.model.input_spec(), data_spec=data_spec)


def test_the_loss_is_binary_cross_entropy_over_what_is_known(tmp_path: Path) -> None:
    _, module, data = made(table(tmp_path))
    batch = data.batch(range(4))
    logits = module.eval().predict(module.step(batch))["multi-label"]["logits"]
    truth = torch.tensor([[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 9, 0]]).float()
    known = truth < 9
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits[known], truth[known])
    assert module(batch).losses["multi-label"].value().item() == pytest.approx(wanted.item(), abs=1e-6)


def test_a_model_that_reads_pixels_learns_several_labels(tmp_path: Path) -> None:
    task, module, data = made(table(tmp_path))
    optimizer = torch.optim.AdamW(module.parameters(), 3e-3)
    batch = data.batch(range(16))
    for _ in range(80):
        optimizer.zero_grad()
        module.train()(batch).total.backward()
        optimizer.step()
    rows = task.decode(module.eval().predict(module.step(batch)), batch)
    scores = task.score(rows)
    assert scores["map"] == scores["ap/red"] == scores["ap/bright"] == 1.0
    assert "ap/never" not in scores  # nothing has it
    assert scores["chance/map"] == pytest.approx((8 / 16 + 7 / 15) / 2)
    assert rows[1]["prediction"] == ["red"]
    assert (rows[3]["labels"], rows[3]["unknown_labels"]) == (["red"], ["bright"])


def test_predictions_from_elsewhere_are_scored(tmp_path: Path) -> None:
    task, _, data = made(table(tmp_path))
    batch = data.batch(range(4))
    given = [{"prediction": []}, {"prediction": ["red"]}, {"prediction": ["bright"]}, {"prediction": "red"}]
    assert task.score(task.judge(given, batch))["map"] == 1.0
    given[1]["scores"] = {"red": 0.2, "bright": 2.0}
    assert task.score(task.judge(given, batch))["ap/bright"] == 0.5


def test_one_label_an_example_is_a_set_of_one(tmp_path: Path) -> None:
    table(tmp_path)
    (tmp_path / "train.csv").write_text("image,label\n0.png,cat\n1.png,dog\n2.png,\n")
    reader = registry.build("datasets", "csv", tmp_path)
    task = registry.build("tasks", "multi-label")
    spec = DataSpec(answers=task.labels([reader]))
    module = build_training_module(DEIT, task.objectives(), spec)
    data = Pipeline([reader], needs=module.model.input_spec(), data_spec=spec)
    targets = module.objectives["multi-label"].targets(module.step(data.batch(range(3))))
    assert targets.tolist() == [[1, 0], [0, 1], [-1, -1]]


def test_the_parts_must_have_the_same_classes(tmp_path: Path) -> None:
    table(tmp_path)
    readers = [
        registry.build("datasets", {"name": "csv", "label": some}, tmp_path)
        for some in (["red", "never"], ["red", "bright"])
    ]
    with pytest.raises(DataError, match="number their labels differently"):
        registry.build("tasks", "multi-label").labels(readers)


def test_regions_without_a_vector_of_the_picture_give_their_mean() -> None:
    model = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
    module = build_training_module(
        model, [{"name": "multi-label"}], DataSpec(answers=("a", "b"), region_dim=4, vocab_size=20)
    )
    hidden, mask = torch.arange(12.0).reshape(1, 3, 4), torch.tensor([[True, True, False]])
    states = SimpleNamespace(hidden=hidden, layout=SimpleNamespace(valid=mask), pooled=None)
    assert module.objectives["multi-label"].summary(None, states).tolist() == [[2.0, 3.0, 4.0, 5.0]]
