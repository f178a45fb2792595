"""One line on each component: the first sentence of its docstring, found without importing it."""

from __future__ import annotations

import inspect
import sys

import pytest

from vlcli.registry import FILES, KINDS, component, entries, find, load
from vlcli.registry.summaries import first_sentence, summary


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in FILES])
def test_the_line_read_from_the_source_is_that_of_the_component(kind):
    for entry in (one for one in entries(kind) if one.loaded is None):  # other tests register components too
        target = load(kind, f"{entry.distribution}:{entry.name}")
        line = summary(entry)
        assert line == first_sentence(inspect.getdoc(target) or ""), entry
        assert 0 < len(line) <= 130, f"the first sentence of {entry.value} does not fit a line"


def test_components_of_a_session_have_a_line_too(monkeypatch):
    monkeypatch.setattr(sys.modules["vlcli.registry.entries"], "_session", {})

    @component("trackers", "mine")
    class Mine:
        """Counts what passes. And more.

        Args:
            path: where.
        """

    assert summary(find("trackers", "mine")) == "Counts what passes."


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("One.  Two.", "One."),
        ("Over\ntwo lines (Eq. 3) by\none.\n\nMore.", "Over two lines (Eq. 3) by one."),
        ("See :class:`~a.b.Other` and ``code``:\n\n    block", "See a.b.Other and code"),
        ("", ""),
        ("Version 1.5 of it. No more.", "Version 1.5 of it."),
    ],
)
def test_first_sentences(text, line):
    assert first_sentence(text) == line
