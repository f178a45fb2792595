"""What a change of the public interface breaks is told by name; the stored signatures are the present ones."""

from __future__ import annotations

import importlib
import sys
from typing import Any

import pytest

from tests.docs.pages import PROJECT

sys.path.insert(0, str(PROJECT / "scripts"))
signatures: Any = importlib.import_module("signatures")

MEANT = """

Each line is something that no longer works for those who use vlcli from outside. If it is meant: write it into
CHANGELOG.md, raise OLDEST and INTERFACE (vlcli/registry/packages.py) where packages are concerned, then run
python scripts/public_api.py --accept"""
MORE = "the interface has grown, and nothing breaks: python scripts/public_api.py --accept"


def test_no_change_breaks_what_strangers_use() -> None:
    before, now = signatures.stored(), signatures.signatures()
    broken = signatures.breaks(before, now)
    assert not broken, "\n".join(broken) + MEANT
    assert now == before, MORE


FUSE = "vlcli.nn.Model.fuse"


@pytest.mark.parametrize(
    ("name", "before", "now", "told"),
    [
        ("vlcli.load", ["folder", "device='cpu'"], ["folder", "device='cpu'"], []),
        ("vlcli.load", ["folder"], ["folder", "device='cpu'"], []),
        ("vlcli.load", ["folder"], ["folder", "*", "device='cpu'"], []),
        ("vlcli.load", ["folder"], ["place"], ["'folder' is called 'place' now"]),
        ("vlcli.load", ["folder", "device='cpu'"], ["folder"], ["'device' is gone"]),
        ("vlcli.load", ["folder", "*", "device='cpu'"], ["folder"], ["'device' is gone"]),
        ("vlcli.load", ["folder", "*", "device='cpu'"], ["folder", "**options"], []),
        ("vlcli.load", ["folder", "device='cpu'"], ["device='cpu'", "folder=None"], ["order was folder, device"]),
        ("vlcli.load", ["a", "b=1"], ["a", "c=2", "b=1"], ["order was a, b and is a, c, b"]),
        ("vlcli.load", ["a", "b=1"], ["a", "b=2"], ["default of 'b' was 1 and is 2"]),
        ("vlcli.load", ["a", "b=1"], ["a", "b"], ["default of 'b' was 1 and is none: it must be given"]),
        ("vlcli.load", ["a", "b"], ["a", "b=1"], []),
        ("vlcli.load", ["a", "b=1"], ["a", "*", "b=1"], ["'b' is taken by keyword only"]),
        ("vlcli.load", ["a"], ["a", "b"], ["'b' must be given now"]),
        ("vlcli.load", ["a"], ["a", "*", "b"], ["'b' must be given now"]),
        ("vlcli.load", ["a"], None, ["can no longer be called"]),
        ("vlcli.nn.Layout.for_text", ["mask"], ["mask", "special=None"], []),
        (FUSE, ["text", "image"], ["text", "image", "record=None"], ["that define this method do not take 'record'"]),
        ("package.models", ["dim"], ["dim", "depth"], ["models: a component must now have 'depth'"]),
        ("package.models", ["passed data_spec"], [], ["'passed data_spec' is no longer so"]),
    ],
)
def test_what_a_change_breaks(name: str, before: Any, now: Any, told: list[str]) -> None:
    lines = signatures.breaks({name: before}, {name: now})
    assert len(lines) == len(told)
    assert all(word in line and name.removeprefix("package.") in line for word, line in zip(told, lines, strict=True))


def test_a_name_that_is_gone_is_told_once_with_what_is_there_instead() -> None:
    before = {"vlcli.nn.Pooler": ["width"], "vlcli.nn.Pooler.dense": None, "vlcli.nn.Stack.grow": ["by"]}
    now = {"vlcli.nn.PoolerOf": ["width"], "vlcli.nn.PoolerOf.dense": None, "vlcli.nn.Stack": []}
    gone, method = signatures.breaks(before, now)
    assert gone.startswith("vlcli.nn.Pooler is gone")
    assert "vlcli.nn.PoolerOf" in gone
    assert method.startswith("vlcli.nn.Stack.grow is gone")


class Invented:
    """A class as packages see it."""

    size: int = 3

    def __init__(self, width: int, *, bias: bool = True, _hidden: int = 0) -> None:
        self.width = width

    def grow(self, by: int = 2) -> int:
        """Return more."""
        return self.width * by

    @classmethod
    def of(cls, text: str) -> Invented:
        """Return one."""
        return cls(len(text))

    @staticmethod
    def count(first: int, *more: int, **options: int) -> int:
        """Return a number."""
        return first + len(more) + len(options)

    @property
    def area(self) -> int:
        """Its area."""
        return self.width**2


def test_signatures_are_read_without_self_types_and_private_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Invented, "__module__", "vlcli.invented")
    assert signatures.of_object("x.Invented", Invented) == {
        "x.Invented": ["width", "*", "bias=True"],
        "x.Invented.area": None,
        "x.Invented.count": ["first", "*more", "**options"],
        "x.Invented.grow": ["by=2"],
        "x.Invented.of": ["text"],
        "x.Invented.size": None,
    }


def test_every_class_that_components_derive_from_is_public_and_stored() -> None:
    assert signatures.plugin_bases() <= signatures.stored().keys()
