"""A renamed option is told to who uses its former name."""

from __future__ import annotations

import pytest

from vlcli import registry
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec
from vlcli.registry import renames


def test_a_renamed_option_is_told_to_the_user(monkeypatch):
    assert renames.RENAMED == {}
    monkeypatch.setitem(renames.RENAMED, "models.deit.dim", "hidden")
    (problem,) = registry.check("models", {"name": "deit", "dim": 8}, "model")
    assert (problem.key, problem.got, problem.expected) == ("model.dim", "dim", "hidden")
    with pytest.raises(ComponentError, match="call it 'hidden'"):
        registry.build("models", {"dim": 8, "name": "deit"}, DataSpec())
