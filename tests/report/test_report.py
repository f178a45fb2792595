"""Curves and drawings."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from vlcli.report.curves import draw_curves, loss_series
from vlcli.report.drawing import draw_attention, draw_boxes


def test_losses_become_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [{"step": step, "loss": 3.0 / step, "loss/mlm": 2.0 / step, "lr": 0.1} for step in range(1, 5)]
    series = loss_series(rows, "small ")
    assert list(series) == ["small loss", "small mlm"]
    assert series["small mlm"][1] == (2, 1.0)
    path = draw_curves(series, tmp_path / "loss.png")
    assert path is not None
    with Image.open(path) as picture:
        assert picture.size[0] > 300
    assert draw_curves({}, tmp_path / "none.png") is None
    assert [file.name for file in tmp_path.iterdir()] == ["loss.png"]


def test_boxes_are_drawn_where_they_are_and_only_there():
    picture = Image.new("RGB", (60, 40), "white")
    made = np.asarray(draw_boxes(picture, [[10, 10, 30, 30], [-5, 35, 90, 60]], ["a", "b"], width=1))
    assert tuple(made[28, 10]) == (230, 25, 75)
    assert tuple(made[20, 45]) == (255, 255, 255)
    assert np.asarray(picture).min() == 255


def test_attention_dims_all_but_the_heavy_box():
    picture = Image.new("RGB", (40, 40), (200, 200, 200))
    made = np.asarray(draw_attention(picture, [[0, 0, 10, 10], [20, 20, 30, 30]], [0.8, 0.2], shade=0.5))
    assert made[5, 5, 0] == 200
    assert made[15, 15, 0] == 100
    assert 100 < made[25, 25, 0] < 200
