"""Curves and drawings."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image, ImageFont

from vlcli.report import curves
from vlcli.report.curves import draw_curves, loss_series, mean_score, score_series
from vlcli.report.drawing import attention_bar, draw_attention, draw_boxes, label_places
from vlcli.report.sheet import BAR, INK, Cell, contact_sheet, wrap


def test_losses_become_a_picture(tmp_path):
    pytest.importorskip("matplotlib")
    rows = [{"step": step, "loss": 3.0 / step, "loss/mlm": 2.0 / step, "lr": 0.1} for step in range(1, 5)]
    series = loss_series(rows)
    assert list(series) == ["loss", "mlm"]
    assert series["mlm"][1] == (2, 1.0)
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


def test_a_total_that_is_its_only_part_is_drawn_once():
    rows = [{"step": step, "loss": 2.0 / step, "loss/mlm": 2.0 / step} for step in range(1, 4)]
    assert list(loss_series(rows)) == ["mlm"]
    assert list(loss_series([*rows, {"step": 4, "loss": 1.0, "loss/mlm": 0.5}])) == ["loss", "mlm"]


def test_the_mean_of_a_score_is_that_of_all_validations():
    rows = [{"step": 1, "loss": 2.0}, {"step": 2, "eval/accuracy": 0.25}, {"step": 4, "eval/accuracy": 0.75}]
    assert mean_score(rows, "accuracy") == 0.5
    assert mean_score(rows, "top1") is None


def test_validation_is_drawn_and_losses_stand_on_a_logarithmic_scale(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure")
    kept = []
    monkeypatch.setattr(figure.Figure, "savefig", lambda self, path, **_: (kept.append(self), path.write_bytes(b"")))
    rows = [{"step": step, "loss": 212.0 / step, "loss/a": 200.0 / step, "loss/none": 0.0} for step in range(1, 90)]
    rows += [{"step": 50, "eval/loss": 5.0, "eval/accuracy": 0.5, "eval/accuracy/has": 0.4}]
    draw_curves(loss_series(rows), tmp_path / "loss.png", scores=score_series(rows))
    above, below = kept[0].axes
    assert above.get_yscale() == "log"
    lines = {line.get_label(): line for line in above.get_lines()}
    assert list(lines) == ["loss", "a", "none (0)", f"loss, {curves.VALIDATION}"]
    assert lines[f"loss, {curves.VALIDATION}"].get_linestyle() == "--"
    assert [line.get_label() for line in below.get_lines()] == ["accuracy"]
    draw_curves({"loss": [(1, -2.0), (2, 3.0)]}, tmp_path / "signed.png")
    assert [axes.get_yscale() for axes in kept[1].axes] == ["linear"]
    ticks = kept[1].axes[0].get_xticks()
    assert ticks.tolist() == [round(tick) for tick in ticks]


def test_panels_of_attention_share_a_scale():
    picture = Image.new("RGB", (20, 20), "white")
    half = np.asarray(draw_attention(picture, [[0, 0, 20, 20]], [0.2], top=0.4))
    full = np.asarray(draw_attention(picture, [[0, 0, 20, 20]], [0.4], top=0.4))
    bar = np.asarray(attention_bar(101))[0]
    assert (half[5, 5, 0], full[5, 5, 0]) == (bar[50], 255)
    assert bar[0] == round(255 * 0.25)
    assert (np.diff(bar.astype(int)) >= 0).all()


def test_a_sheets_heading_and_scale_stand_apart_from_its_pictures():
    cells = [Cell(Image.new("RGB", (30, 30), "red"), [("one", INK)]) for _ in range(2)]
    plain = contact_sheet(cells, columns=2, width=100)
    made = contact_sheet(
        cells, columns=2, width=100, heading=("what was asked", "#0000ff"), scale=(attention_bar(), "0", "1", "x")
    )
    room = made.height - plain.height
    assert room > BAR + 20
    pixels = np.asarray(made).astype(int)
    red = np.argwhere((pixels == [255, 0, 0]).all(-1))
    blue = np.argwhere((pixels[..., 2] > 200) & (pixels[..., 0] < 90))
    assert blue[:, 0].max() < red[:, 0].min()
    assert (pixels[-BAR - 12 :] != 255).any()


def test_long_sentences_end_in_an_ellipsis():
    font = ImageFont.load_default(12)
    lines = wrap("a sentence of many words " * 20, 100, font, 3)
    assert len(lines) == 3
    assert lines[-1].endswith("\N{HORIZONTAL ELLIPSIS}")
    assert all(font.getlength(line) <= 100 for line in [*lines, *wrap("w" * 90, 100, font)])
    assert wrap("short", 100, font, 3) == ["short"]


def crossing(places, sizes) -> list[tuple[int, int]]:
    """Pairs of labels that cover one another."""
    rows = [(n, *place, *sizes[n]) for n, place in enumerate(places) if place is not None]
    return [
        (n, m)
        for n, x, y, w, h in rows
        for m, a, b, c, d in rows
        if n < m and x < a + c and a < x + w and y < b + d and b < y + h
    ]


@pytest.mark.parametrize("count", [1, 4, 40, 400])
def test_labels_of_many_boxes_cover_neither_one_another_nor_leave_the_picture(count):
    rng = np.random.default_rng(count)
    corners = rng.uniform(0, 200, (count, 2))
    boxes = np.concatenate([corners, corners + rng.uniform(2, 90, (count, 2))], 1)
    sizes = [(float(rng.uniform(10, 60)), 14.0) for _ in range(count)]
    places = label_places(boxes, sizes, 240, 220)
    assert crossing(places, sizes) == []
    assert all(0 <= x <= 240 - w and 0 <= y <= 220 - h for (x, y), (w, h) in _placed(places, sizes))
    assert sum(place is not None for place in places) >= min(count, 4)


def _placed(places, sizes):
    return [(place, size) for place, size in zip(places, sizes, strict=True) if place is not None]


def test_equal_boxes_have_their_labels_at_several_corners_and_the_rest_has_none():
    places = label_places([[50, 50, 150, 150]] * 12, [(30, 10)] * 12, 200, 200)
    assert places[0] == (50, 50)
    assert len({place for place in places if place is not None}) == 8
    assert places[8:] == [None] * 4
