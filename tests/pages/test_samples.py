"""Samples of pages: labels on pictures, references of rankings; and numbers at axes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from vlcli.data.sample import Example
from vlcli.pages.charts import line_chart, short
from vlcli.pages.samples import Box, Sample, Shown, _illustrate
from vlcli.pages.sources import Source


def test_labels_of_one_place_stand_apart_and_regions_have_none():
    boxes = [Box([0.2, 0.2, 0.5, 0.5], f"dog {n}", "said") for n in range(30)] + [Box([0, 0, 1, 1], "r", "region")]
    shown = Shown("a", SimpleNamespace(width=200, height=160), boxes)
    placed = shown.labels(10)
    assert 4 <= len(placed) < 30
    assert len({(x, y) for _, x, y in placed}) == len(placed)
    assert all(0 <= x <= 200 and 0 <= y <= 160 and box.role == "said" for box, x, y in placed)
    assert Shown("a", None, boxes).labels(10) == []


def test_a_picture_for_which_sentences_were_ranked_has_one_of_its_own_as_reference():
    source = Source.__new__(Source)
    examples = [Example("1", "a red star", ["p"]), Example("2", "a star", ["p"]), Example("3", "a cat", ["q"])]
    source.__dict__["examples"] = {one.key: one for one in examples}
    source.__dict__["files"] = {}
    sample = Sample("text/p", "", "", "", [])
    _illustrate(sample, {"key": "text/p", "prediction": "3", "rank": 2.0}, source, SimpleNamespace())
    assert (sample.text, sample.truth) == ("Ranked first: a cat", "a red star")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.000125, "1.25e-4"),
        (0.0001, "1e-4"),
        (0.003, "0.003"),
        (2e-5, "2e-5"),
        (12_000, "12k"),
        (0, "0"),
        (3e7, "3e7"),
    ],
)
def test_numbers_at_axes_have_few_letters(value, text):
    assert short(value) == text
    assert len(text) <= 7


def test_a_single_point_of_a_chart_is_seen():
    chart = line_chart("loss", {"loss": [(8, 1.0)]})
    assert chart is not None
    assert chart.lines[0].path.endswith("h10")
