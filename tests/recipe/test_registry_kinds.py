"""Heads, formats and worlds are kinds of the registry like all others."""

from __future__ import annotations

import sys

import pytest
from torch import nn

from vlcli import registry
from vlcli.data import World
from vlcli.data.shapes import ShapesConfig
from vlcli.errors import ComponentError
from vlcli.nn import register_head
from vlcli.stages.make import check

KINDS = {"heads": "lxmert-answer", "formats": "obj36", "worlds": "shapes"}


@pytest.fixture
def session(monkeypatch):
    """What a test registers is forgotten behind it."""
    entries = sys.modules["vlcli.registry.entries"]
    monkeypatch.setattr(entries, "_session", dict(entries._session))


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_lists_loads_and_describes_its_components(kind):
    assert KINDS[kind] in registry.names(kind)
    assert registry.status(kind) == []
    for name in registry.names(kind):
        described = registry.describe(kind, name)
        assert described["origin"].count(":") == 1
        assert described["distribution"] == "session" or described["summary"].endswith((".", ":", ";")), name


@pytest.mark.parametrize("kind", KINDS)
def test_an_unknown_name_gets_a_suggestion(kind):
    with pytest.raises(ComponentError, match=f"There is no {kind[:-1]} called") as caught:
        registry.load(kind, KINDS[kind][:-1])
    assert caught.value.hint.startswith("did you mean")
    assert repr(KINDS[kind]) in caught.value.hint
    assert KINDS[kind] in caught.value.expected


def test_a_head_is_registered_once(session):
    def tall(dim, outputs):
        return nn.Linear(dim, outputs, bias=False)

    register_head("tall", tall)
    register_head("tall", tall)
    assert registry.load("heads", "tall") is tall
    for name in ("tall", "vlmo-pair"):
        with pytest.raises(ComponentError, match="Two heads have one name"):
            register_head(name, nn.Linear)


def test_a_world_is_what_its_options_say():
    made = registry.build("worlds", {"name": "shapes", "images": 40, "objects": [2, 5]})
    assert isinstance(made, World)
    assert made.as_dict() == ShapesConfig(images=40, objects=(2, 5)).as_dict()
    (problem,) = check({"name": "shape"}, "stages.world.world")
    assert (problem.key, problem.code) == ("stages.world.world.name", 4)
    assert problem.hint == "did you mean 'shapes'?"
    (problem,) = check({"name": "shapes", "image": 40}, "stages.world.world")
    assert "images" in problem.expected


def test_components_are_found_by_the_name_of_their_kind_too():
    assert registry.datasets.load("csv") is registry.load("datasets", "csv")
    with pytest.raises(AttributeError, match="has no attribute 'modles'"):
        _ = registry.modles
