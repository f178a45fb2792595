"""What computes in float64 stays in float64: logits, losses, predictions and resampled tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tiny_batches import SMALL, make_batch

from tests.tasks.test_image_classification import folder_of_classes, make
from vlcli.engine.evaluation import NotANumberError, TaskRunner, score_task
from vlcli.engine.training_module import build_training_module
from vlcli.errors import VlcliError
from vlcli.nn.attention import AttentionShape
from vlcli.nn.positions import LearnedPosition
from vlcli.tasks.classification import ImageClassification

DATA_SPEC = replace(SMALL, answers=("cat", "dog", "no", "yes"))
LXMERT = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 1}
ANSWERS = [{"cat": 1.0}, {"dog": 0.3, "no": 0.9}, {"yes": 0.6}]


@pytest.mark.parametrize("objective", [
    {"name": "answering"}, {"name": "answering", "loss": "ce"}, {"name": "answering", "loss": "ce", "sample": True},
    {"name": "hard-matching", "negatives": 1, "candidates": 2}, {"name": "classification", "classes": 2},
], ids=str)  # fmt: skip
def test_logits_and_losses_keep_float64(objective: dict[str, Any]) -> None:
    module = build_training_module(LXMERT, [objective], DATA_SPEC, seed=1).double().eval()
    given = make_batch()
    given.clean.images.regions.features = given.clean.images.regions.features.double()
    given.clean.images.regions.boxes = given.clean.images.regions.boxes.double()
    given = replace(given, targets={"answers": ANSWERS, "label": torch.tensor([0, 1, 1])})
    (mean,) = module(given).losses.values()
    assert mean.total.dtype == torch.float64
    assert mean.total.item() != float(mean.total.float())
    predicted = TaskRunner(module, None).predict(module.step(given))
    assert {value.dtype for found in predicted.values() for value in found.values()} <= {torch.float64}


@pytest.mark.parametrize("objective", [{"name": "answering"}, {"name": "classification", "classes": 2}], ids=str)
def test_weights_with_nan_have_no_metrics(objective: dict[str, Any]) -> None:
    module = build_training_module(LXMERT, [objective], DATA_SPEC, seed=1).eval()
    runner, given = TaskRunner(module, None), make_batch()
    runner.predict(runner.step(given))
    next(module.model.parameters()).data.fill_(float("nan"))
    with pytest.raises(VlcliError, match=r"predicts NaN[\s\S]*of \d+ values[\s\S]*fp32"):
        runner.predict(runner.step(given))


def test_a_validation_of_nan_has_the_metric_nan(tmp_path: Path) -> None:
    folder_of_classes(tmp_path)
    module, data = make(tmp_path)
    runner, task = TaskRunner(module.eval(), data), ImageClassification()
    assert 0 <= score_task(task, runner)["top1"] <= 1
    next(module.model.parameters()).data.fill_(float("nan"))
    assert str(score_task(task, runner)) == "{'top1': nan}"
    with pytest.raises(NotANumberError):
        task.evaluate(runner)


def test_image_classification_keeps_float64(tmp_path: Path) -> None:
    folder_of_classes(tmp_path)
    module, data = make(tmp_path)
    batch = data.batch(range(12))
    batch.clean.images.pixels.images = batch.clean.images.pixels.images.double()
    (mean,) = module.double().eval()(batch).losses.values()
    assert mean.total.dtype == torch.float64
    assert mean.total.item() != float(mean.total.float())


def test_a_table_is_resampled_in_its_own_precision() -> None:
    position = LearnedPosition(AttentionShape(8, 2), grid=(4, 4)).double()
    torch.nn.init.normal_(position.table.weight)
    state = position.state_dict()
    found = position.resize_state(state, (4, 4), (6, 5))["table.weight"]
    image = state["table.weight"][1:].T.reshape(1, 8, 4, 4)
    wanted = F.interpolate(image, size=(6, 5), mode="bicubic", align_corners=False).flatten(2)[0].T
    assert found.dtype == torch.float64
    torch.testing.assert_close(found[1:], wanted, rtol=0, atol=1e-15)
    half = {name: value.bfloat16() for name, value in state.items()}
    assert position.resize_state(half, (4, 4), (6, 5))["table.weight"].dtype == torch.bfloat16
