"""Flags of the authors' scripts on the papers' pages: every override beside one is taken by its recipe."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from vlcli import registry
from vlcli.errors import VlcliError
from vlcli.recipe.load import load
from vlcli.recipe.validate import uses

PAGES = Path(__file__).parents[2] / "docs"
HEAD = re.compile(r"\| (?:flag|key) \| override of `([^`]+)` \|\n\| --- \| --- \|\n((?:\|.*\n)+)")
OVERRIDE = re.compile(r"`(\w[\w.-]*=[^`]*)`")


def overrides() -> list[tuple[str, str, str]]:
    return [
        (page.stem, recipe, word)
        for page in sorted(PAGES.glob("*.md"))
        for recipe, rows in HEAD.findall(page.read_text(encoding="utf-8"))
        for row in rows.splitlines()
        for word in OVERRIDE.findall(row.split("|")[2])
    ]


def test_every_paper_has_its_table():
    assert {page for page, _, _ in overrides()} == {"lxmert", "dimbert", "irpe", "vlmo", "ace-rpe"}
    assert len(overrides()) > 150


@pytest.mark.parametrize("recipe", sorted({recipe for _, recipe, _ in overrides()}))
def test_every_override_is_one_of_its_recipe(recipe):
    assert faults(recipe, []) == []
    refused = [
        (page, word, found) for page, one, word in overrides() if one == recipe and (found := faults(one, [word]))
    ]
    assert not refused


def faults(recipe: str, words: list[str]) -> list[str]:
    try:
        resolved = load(recipe, words, plugins=False)
    except VlcliError as error:
        return [str(error)]
    return [str(fault) for use in uses(resolved) for fault in registry.check(use.kind, use.spec, use.key)]
