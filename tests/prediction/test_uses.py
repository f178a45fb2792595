"""What each kind of task answers about one new picture."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from small_run import SENTENCES, make_bundle

import vlcli
from vlcli.builders.extractions import extractions_of
from vlcli.prediction import Use, draw

TASKS = {
    "referring": ({"name": "referring"}, [{"name": "region-selection"}], {}),
    "grounding": ({"name": "grounding"}, [{"name": "matching"}], {}),
    "classification": ({"name": "classification"}, [{"name": "classification"}], {"answers": ("warm", "cold", "wet")}),
    "snli-ve": ({"name": "snli-ve"}, [{"name": "classification", "classes": 3}], {}),
    "gqa": ({"name": "gqa"}, [{"name": "answering", "loss": "ce"}], {"answers": ("red", "two")}),
    "retrieval": ({"name": "retrieval"}, [{"name": "matching"}], {}),
}


@pytest.fixture(scope="module")
def answered(studio, tmp_path_factory):
    """A prediction of each task."""
    folder = tmp_path_factory.mktemp("uses")
    made = [one.as_dict() for one in extractions_of([studio.run / "regions"])]
    found = {}
    for name, (task, objectives, sizes) in TASKS.items():
        make_bundle(folder / name, task, objectives, made, region_dim=128, regions=6, **sizes)
        model = vlcli.load(folder / name)
        assert isinstance(model.use, Use)
        found[name] = model.predict(SENTENCES[0], studio.photo(1))
    return found


def test_kinds(answered):
    kinds = {name: found.use.kind for name, found in answered.items()}
    assert kinds == {
        "referring": "box",
        "grounding": "box",
        "classification": "label",
        "snli-ve": "label",
        "gqa": "answer",
        "retrieval": "match",
    }
    assert all(found.words() for found in answered.values())


def test_probabilities_of_labels_sum_to_one(answered):
    for name, count in (("classification", 3), ("snli-ve", 3), ("gqa", 2)):
        chances = [choice.probability for choice in answered[name].choices]
        assert len(chances) == count
        assert sum(chances) == pytest.approx(1, abs=1e-5)
        assert chances == sorted(chances, reverse=True)
        assert answered[name].prediction == answered[name].choices[0].label


def test_the_box_of_an_expression_is_one_of_the_regions(answered, studio, tmp_path):
    for name in ("referring", "grounding"):
        found = answered[name]
        assert found.boxes[0].label == SENTENCES[0]
        gaps = np.abs(found.regions[0] - np.array(found.boxes[0].box)).max(1)
        assert gaps.min() < 1e-3
        drawn = draw(found, [studio.photo(1)], tmp_path / f"{name}.png")
        with Image.open(tmp_path / f"{name}.png") as image:
            assert image.size == drawn.size


def test_a_match_is_a_probability(answered):
    found = answered["retrieval"]
    assert 0 < found.prediction < 1
    assert found.as_dict()["prediction"] == found.prediction
