"""What captions claim: every caption of the world of shapes holds for its picture, and seldom for another."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from vlcli.data.reader import Reader
from vlcli.data.shapes.captions import FORMS, sentence
from vlcli.data.shapes.coco import shared_pictures
from vlcli.data.shapes.config import CAPTIONS, ShapesConfig
from vlcli.data.shapes.world import Scene, stream
from vlcli.errors import DataError, UsageError
from vlcli.images.boxes import BoxList
from vlcli.metrics.captions.facts import Claims, Thing, fact_metrics
from vlcli.registry import component
from vlcli.tasks.captioning import check_facts

CONFIG = ShapesConfig(images=60)
SCENES = [picture.scene for picture in shared_pictures(CONFIG)["train"]]
CLAIMS = Claims(CONFIG.kinds, [*CONFIG.colours, "small", "large"])


def things(scene: Scene) -> list[Thing]:
    return [
        Thing(s.look.kind, frozenset((s.look.colour, s.look.size)), s.x / scene.side, s.y / scene.side)
        for s in scene.shapes
    ]


@pytest.mark.parametrize("form", [name for name in CAPTIONS if name != "compare"])
def test_captions_of_a_form_hold_for_their_picture(form: str) -> None:
    config, scenes = CONFIG, SCENES
    if form == "distance":  # of boards alone
        config = replace(CONFIG, board=4)
        scenes = [picture.scene for picture in shared_pictures(config)["train"]]
    rng = stream(config, "facts", form)
    own, other = [], []
    for number, scene in enumerate(scenes):
        text = sentence(FORMS[form][0](scene, rng, config))
        own.append(CLAIMS.check(text, things(scene)))
        other.append(CLAIMS.check(text, things(scenes[number - 7])))
    assert all(value is not False for truth in own for value in (truth.look, truth.number, truth.place))
    shares, wrong = fact_metrics(own), fact_metrics(other)
    if form not in ("absent", "count", "groups"):
        assert shares["right/look"] == 1
        assert wrong["right/look"] < 0.6
    if form in ("place", "relation"):
        assert shares["named/place"] > 0.9
        assert wrong["right/place"] < 0.4


SEEN = [
    Thing("circle", frozenset({"red", "small"}), 0.2, 0.2),
    Thing("circle", frozenset({"blue", "large"}), 0.8, 0.25),
    Thing("star", frozenset({"red", "large"}), 0.5, 0.8),
]


@pytest.mark.parametrize(
    ("text", "look", "number", "place"),
    [
        ("a red circle", True, None, None),
        ("A small red circle.", True, None, None),
        ("a large red circle", False, None, None),
        ("two circles", True, True, None),
        ("two red circles", False, False, None),
        ("there are three red shapes", False, False, None),
        ("two red shapes and a blue circle", True, True, None),
        ("a red circle and a red circle", False, None, None),
        ("a red circle and no green star", True, None, None),
        ("there is no green star", None, None, None),
        ("a red star and no blue circle", False, None, None),
        ("a red circle left of a blue circle", True, None, True),
        ("a red circle is right of a blue circle", True, None, False),
        ("a red circle above a blue circle", True, None, False),  # too near for either
        ("a star is below a circle", True, None, True),
        ("a red circle is at the top left", True, None, True),
        ("a red circle at the bottom left", True, None, False),
        ("a blue circle on the right and a star at the bottom", True, None, True),
        ("a red star in the middle", True, None, False),
        ("nothing at all", None, None, None),
    ],
)
def test_what_a_caption_claims(text: str, look: bool | None, number: bool | None, place: bool | None) -> None:
    found = CLAIMS.check(text, SEEN)
    assert (found.look, found.number, found.place) == (look, number, place)


@component("datasets", "facts-of-a-test")
class Boxed(Reader):
    """One picture with a red circle."""

    def read(self) -> list:
        return []

    def boxes(self) -> dict[str, BoxList]:
        made = BoxList(np.array([[10, 10, 30, 30]], np.float32), classes=np.array([0]), attributes=np.array([0]))
        made.size = (100, 100)
        return {"a": made}

    def class_names(self) -> list[str]:
        return ["circle"]

    def attribute_names(self) -> list[str]:
        return ["red small"]


def test_predictions_are_told_what_holds(tmp_path) -> None:
    runner = SimpleNamespace(data=SimpleNamespace(readers=[SimpleNamespace(root=tmp_path, ids="name")]))
    rows = [{"key": "a", "prediction": "a red circle at the top left"}, {"key": "b", "prediction": "a red circle"}]
    metrics = check_facts("facts-of-a-test", runner, rows)
    assert metrics == {"right/look": 1.0, "right/place": 1.0, "named/place": 1.0}
    assert rows[0]["facts"] == {"look": True, "place": True}
    assert "facts" not in rows[1]
    with pytest.raises(DataError, match="none of the captioned pictures"):
        check_facts("facts-of-a-test", runner, rows[1:])


def test_a_look_that_is_not_known_is_none_of_the_annotated(monkeypatch, tmp_path) -> None:
    unknown = BoxList(np.array([[10, 10, 30, 30]], np.float32), classes=np.array([0]), attributes=np.array([-1]))
    monkeypatch.setattr(Boxed, "boxes", lambda self: {"a": unknown})
    runner = SimpleNamespace(data=SimpleNamespace(readers=[SimpleNamespace(root=tmp_path, ids="name")]))
    rows = [{"key": "a", "prediction": "a red circle"}]
    assert check_facts("facts-of-a-test", runner, rows)["right/look"] == 0


def test_worlds_say_what_they_are_asked_to() -> None:
    with pytest.raises(UsageError, match="caption_forms"):
        ShapesConfig(caption_forms=("single", "joke"))
    from vlcli.data.shapes.captions import captions

    config = ShapesConfig(images=60, caption_forms=("place",))
    for scene in SCENES[:10]:
        texts = captions(scene, stream(config, "x"), config)
        assert all(CLAIMS.check(text, things(scene)).place for text in texts if "and" not in text)
