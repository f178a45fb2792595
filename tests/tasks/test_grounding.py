"""Grounding by Grad-CAM: the maps, the boxes' heat beside a loop over pixels, points, chance, detections' files."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from vlcli.engine.evaluation import TaskRunner, evaluating
from vlcli.engine.training_module import TrainingModule, build_training_module
from vlcli.errors import ComponentError, DataError, UsageError
from vlcli.images.boxes import BoxList
from vlcli.nn import Batch, DataSpec, Images, Layout, Pixels, Recorder, Regions, Text, View
from vlcli.nn.saliency import choose_layer, word_layers, word_maps
from vlcli.tasks.grounding import Grounding, read_detections
from vlcli.tasks.heat import box_heat, heat_map, hottest, overlaps

DATA_SPEC = DataSpec(vocab_size=20, unk_id=1, cls_id=2, sep_id=3, mask_id=4, text_length=6, regions=3, region_dim=6)
ALBEF = {"name": "albef", "hidden": 16, "heads": 2, "image_layers": 1, "text_layers": 1, "cross_layers": 3}
PIXELS = {**ALBEF, "image_size": 24, "patch": 8, "dropout": 0.0, "init_std": 0.3, "cross_position": "ace-rpe"}
LXMERT = {"name": "lxmert", "hidden": 16, "heads": 2, "text_layers": 1, "image_layers": 1, "cross_layers": 2}


def batch(pixels: bool) -> Batch:
    """Two expressions of one picture and one of another."""
    torch.manual_seed(1)
    ids = torch.tensor([[2, 5, 6, 7, 3, 0], [2, 8, 9, 3, 0, 0], [2, 5, 9, 10, 11, 3]])
    special = (ids == 2) | (ids == 3)
    text = Text(ids, ids > 0, special, ids * 0, keys=list("abc"), raw=["red", "blue", "green one"])
    sizes = torch.tensor([[40, 80], [60, 50]])
    boxes = torch.tensor([[[0, 0, 0.5, 0.5], [0.5, 0.5, 1, 1], [0, 0, 1, 1]]] * 2)
    regions = Regions(torch.randn(2, 3, 6), boxes, torch.tensor([[True] * 3, [True, True, False]]), sizes)
    pictures = Images(["p", "q"], pixels=Pixels(torch.randn(2, 3, 24, 24), sizes))
    images = pictures if pixels else Images(["p", "q"], regions=regions)
    rows = torch.arange(3)
    targets = {"box": torch.tensor([[0.5, 0.5, 1, 1], [0, 0, 0.5, 0.5], [0.1, 0.1, 0.9, 0.9]]), "kind": ["a", "a", "b"]}
    view = View(text, images, rows, torch.tensor([[0], [0], [1]]))
    return Batch({"clean": view}, targets, list("xyz"), rows)


class Given:
    """Readers and one batch, as an evaluation is given them."""

    def __init__(self, readers: list[Any], batch: Batch) -> None:
        self.readers, self.batch = readers, batch

    def __len__(self) -> int:
        return len(self.batch)

    def loader(self, size: int, **options: Any) -> list[Batch]:
        """The batch."""
        return [self.batch]


def runner(spec: dict[str, Any], given: Batch) -> TaskRunner:
    module: TrainingModule = build_training_module(spec, [{"name": "matching"}], DATA_SPEC, seed=2)
    boxes = {
        "p": BoxList(np.array([[40, 20, 80, 40], [0, 0, 40, 20], [3.7, 4.2, 70.9, 39.9]], np.float32)),
        "q": BoxList(np.array([[0, 0, 10, 10]], np.float32)),
    }
    reader = SimpleNamespace(boxes=lambda: boxes, root=Path())
    return TaskRunner(module, Given([reader], given))


def by_hand(module: TrainingModule, given: Batch, layer: int) -> torch.Tensor:
    """ALBEF's way: keep the gradient of one layer's probabilities, multiply, average heads, then all tokens."""
    record = Recorder(gradients=True)
    step = TaskRunner(module, SimpleNamespace()).step(given, record)
    with torch.enable_grad():
        module.zero_grad()
        module.predict(step)["matching"]["logits"][:, 1].sum().backward()
    weights = record.attention[f"cross.{layer}.text_to_image"]
    mask = given.clean.text.mask[:, None, :, None]
    maps = weights.detach() * mask * weights.grad.clamp(min=0) * mask
    return maps.mean(1).mean(1)[:, 1:]  # without the class token's column


def test_maps_are_those_of_a_backward_pass() -> None:
    given, task = batch(True), Grounding(by="point")
    run = runner(PIXELS, given)
    with evaluating(run.module), torch.no_grad():
        found, layout = task.maps(run, given)
        wanted = by_hand(run.module, given, 1)  # the middle one of three
    tokens = given.clean.text.mask.sum(1)
    torch.testing.assert_close(found[:, 1:], wanted * 6 / tokens[:, None], rtol=1e-5, atol=1e-9)
    assert float(found.abs().sum()) > 0
    assert layout.grid == (3, 3)


def test_maps_of_the_class_token_by_the_contrast() -> None:
    """ALBEF's ``itc``: every example as if it were alone, though two share a picture."""
    given = batch(True)
    module = build_training_module({**PIXELS, "image_layers": 5}, [{"name": "contrast"}], DATA_SPEC, seed=2)
    run = TaskRunner(module, Given([], given))
    with evaluating(module), torch.no_grad():
        found, layout = Grounding(objective="contrast", of="image").maps(run, given)
        last, _ = Grounding(objective="contrast", of="image", layer="image.4", head=1).maps(run, given)
    for example in range(3):
        record = Recorder(gradients=True)
        step = run.step(given, record)
        vectors = module.predict(step)["contrast"]
        (vectors["text_embedding"] * vectors["image_embedding"])[example].sum().backward()
        picture = int(given.clean.image_rows[example, 0])
        for values, number, heads in ((found, 3, slice(None)), (last, 4, slice(1, 2))):  # 3: three quarters of five
            weights = record.attention[f"image.{number}"]
            maps = (weights * weights.grad.clamp(min=0)).detach()[picture, heads, 0].mean(0)
            torch.testing.assert_close(values[example], maps, rtol=1e-5, atol=1e-9)
    assert not torch.allclose(found[0], found[1])
    assert float(found[:, 1:].abs().sum()) > 0
    assert layout.grid == (3, 3)
    assert len(Grounding(objective="contrast", of="image", by="point").evaluate(run).predictions) == 3
    with evaluating(module), pytest.raises(UsageError, match="No such attention"):
        Grounding(objective="contrast", of="image", layer="cross.*").maps(run, given)


def test_layers_heads_and_words_by_option() -> None:
    given = batch(True)
    run = runner(PIXELS, given)
    with evaluating(run.module):
        every = [Grounding(head=head, layer="cross.2.*").maps(run, given)[0] for head in (None, 0, 1)]
        torch.testing.assert_close(every[0], (every[1] + every[2]) / 2)
        fewer = Grounding(specials=False, layer="cross.2.*").maps(run, given)[0]
        assert not torch.allclose(fewer, every[0])
        with pytest.raises(UsageError, match="No such head"):
            Grounding(head=2).maps(run, given)
        with pytest.raises(UsageError, match="No such attention"):
            Grounding(layer="cross.7.*").maps(run, given)
    assert choose_layer([f"cross.{n}.text_to_image" for n in range(6)], None, "") == "cross.2.text_to_image"


def test_words_look_at_regions_of_a_model_with_two_streams() -> None:
    given, task = batch(False), Grounding(by="point")
    run = runner(LXMERT, given)
    with evaluating(run.module), torch.no_grad():
        result = task.evaluate(run)
    assert len(result.predictions) == 3
    assert result.metrics["chance"] == pytest.approx((0.25 + 0.25 + 0.64) / 3)
    record = Recorder(gradients=True)
    step = run.step(given, record)
    with torch.enable_grad():
        step.fused()
    assert word_layers(record, 6, 3) == ["cross.0.text_to_image", "cross.1.text_to_image"]
    with pytest.raises(UsageError):
        word_maps(step, torch.zeros(3), layer="image.*")


def slow_heat(heat: np.ndarray, box: np.ndarray, power: float) -> float:
    """The pixels of a box, one by one, as ALBEF's evaluation slices them."""
    x, y, width, height = box[0], box[1], box[2] - box[0], box[3] - box[1]
    total = 0.0
    for row in range(int(y), min(int(y + height), heat.shape[0])):
        for column in range(int(x), min(int(x + width), heat.shape[1])):
            total += float(heat[row, column])
    return total / (width * height) ** power


def test_heat_in_boxes_beside_a_loop_over_pixels() -> None:
    draw = np.random.default_rng(0)
    heat = draw.normal(size=(23, 31)).astype(np.float32)
    corner = draw.random((40, 2)) * [31, 23]
    boxes = np.concatenate([corner, corner + draw.random((40, 2)) * 12 + 0.5], 1)
    for power in (0.5, 1.0):
        wanted = [slow_heat(heat, box, power) for box in boxes]
        np.testing.assert_allclose(box_heat(heat, boxes, power), wanted, rtol=1e-6, atol=1e-6)


def test_maps_of_grids_and_of_regions() -> None:
    cells = torch.rand(1 + 6)
    wanted = F.interpolate(cells[1:].view(1, 1, 2, 3), size=(20, 30), mode="bicubic")[0, 0]
    np.testing.assert_array_equal(heat_map(cells, Layout.for_grid(2, 3, skip=1), 0, (20, 30)), wanted)
    given = torch.tensor([[[0, 0, 0.5, 1], [0.25, 0, 1, 0.5], [0, 0, 1, 1]]])
    layout = Layout.for_boxes(given, torch.tensor([[True, True, False]]))
    heat = heat_map(torch.tensor([1.0, 2.0, 9.0]), layout, 0, (4, 8))
    assert heat.tolist()[0] == [1, 1, 2, 2, 2, 2, 2, 2]
    assert heat.tolist()[3] == [1, 1, 1, 1, 0, 0, 0, 0]
    assert hottest(torch.tensor([1.0, 2.0, 9.0]), layout, 0, (4, 8)) == (5.0, 1.0)
    assert hottest(torch.tensor([9.0, 1, 1, 1, 1, 2, 1]), Layout.for_grid(2, 3, skip=1), 0, (20, 30)) == (15.0, 15.0)
    assert overlaps(np.array([0, 0, 2, 2]), np.array([[1, 0, 3, 2]]))[0] == pytest.approx(1 / 3)


def test_the_best_box_and_what_chance_would_reach() -> None:
    given = batch(True)
    run = runner(PIXELS, given)
    with evaluating(run.module), torch.no_grad():
        result = Grounding().evaluate(run)
        maps, layout = Grounding().maps(run, given)
    for number, row in enumerate(result.predictions):
        size, name = ((40, 80), "p") if number < 2 else ((60, 50), "q")
        heat, boxes = heat_map(maps[number], layout, number, size), run.data.readers[0].boxes()[name].boxes
        best = max(boxes, key=lambda box: slow_heat(heat, box, 0.5))
        assert row["prediction"] == best.tolist()
        assert row["correct"] == (row["overlap"] >= 0.5)
        cell = divmod(int(maps[number][1:].argmax()), 3)
        assert row["point"] == pytest.approx([(cell[1] + 0.5) / 3 * size[1], (cell[0] + 0.5) / 3 * size[0]])
    assert [row["chance"] for row in result.predictions] == [pytest.approx(1 / 3), pytest.approx(1 / 3), 0.0]
    assert set(result.metrics) >= {"accuracy", "chance", "pointing", "pointing_chance", "accuracy/a", "pointing/b"}
    assert result.predictions[2]["overlap"] == pytest.approx(20 / (48 * 40 + 100 - 20), rel=1e-4)


def test_detections_of_albef_and_of_others(tmp_path: Path) -> None:
    file = tmp_path / "dets.json"
    file.write_text(json.dumps({"7": [[1, 2, 3, 4, 0.9], [5, 6, 7, 8, 0.1]]}))
    assert read_detections(file)["7"].boxes.tolist() == [[1, 2, 4, 6], [5, 6, 12, 14]]
    file.write_text(json.dumps([{"image_id": 7, "bbox": [1, 2, 3, 4], "score": 0.9, "category_id": 1}]))
    assert read_detections(file)["7"].boxes.tolist() == [[1, 2, 4, 6]]
    for rows in ([[1, 2]], [[1, 2], [3, 4]]):
        file.write_text(json.dumps({"7": rows}))
        with pytest.raises(DataError, match="not understood"):
            read_detections(file)
    nothing = SimpleNamespace(data=SimpleNamespace(readers=[SimpleNamespace(boxes=dict)]))
    with pytest.raises(ComponentError, match="no boxes"):
        Grounding().evaluate(nothing)
