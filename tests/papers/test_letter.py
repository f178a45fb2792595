"""Rows by the letter of the papers: each is built, and has the weights that its equations ask for."""

from __future__ import annotations

from functools import cache

import packaged
import pytest

from vlcli import registry
from vlcli.recipe.load import load
from vlcli.recipe.schema import Training
from vlcli.recipe.table import is_table, load_table
from vlcli.tools.counting import count, first_stage

PAPERS = ("lxmert", "dimbert", "vlmo", "irpe", "ace-rpe")
CROSS = 4 * (768 * 768 + 768) + 2 * 768  # a cross-attention with its output and norm
FC7 = 2048 * 2048 + 2048
TRANSFORM = 768 * 768 + 768 + 2 * 768

PAIRS = [
    # row, the row beside it, weights that it has more
    ("lxmert/variants:as-published", "lxmert/variants:as-released", 5 * CROSS - (400 * 768 + 400)),
    ("dimbert/parts:as-published", "dimbert/parts:coco", -FC7),
    ("dimbert/table6:uniter-as-published", "dimbert/table6:uniter", 768 * 2048 + 2048),
    ("irpe/table6:3-own-heads", "irpe/table6:3", 6 * 7 * 81),
    ("ace-rpe/table1:windows-as-published", "ace-rpe/table1:anchor", 0),
]


@cache
def weights(name: str, stage: str = "") -> int:
    resolved = load(name)
    total: int = count(resolved, stage or first_stage(resolved))["total"]
    return total


@pytest.mark.parametrize(("row", "other", "more"), PAIRS)
def test_a_row_by_the_letter_has_the_weights_of_its_equations(row, other, more):
    assert weights(row) - weights(other) == more


def test_vlmos_heads_are_one_layer_on_the_first_token():
    resolved = load("vlmo/variants:as-published")
    assert (resolved.recipe.model or {})["pooled"] == "token"
    built = count(resolved, "nlvr2")
    assert built["total"] - built["backbone"] == 2 * 768 * 2 + 2
    assert not any("pooler" in part for part in built["parts"])


def letters() -> list[str]:
    tables = [name for name in registry.names("recipes") if name.partition("/")[0] in PAPERS and is_table(name)]
    found = [f"{name}:{label}" for name in tables for label in load_table(name).rows if "as-published" in label]
    return [name for name in found if name not in [row for row, _, _ in PAIRS]]


@pytest.mark.slow
@pytest.mark.parametrize("name", letters())
def test_every_row_by_the_letter_is_built(name):
    assert weights(name) > 1_000_000


def further(name: str) -> list[tuple[str, Training, Training]]:
    """Training stages that go on with the objectives of the stage they start from."""
    stages = load(name).stages
    pairs = [(label, stages.get(word), one) for label, one in stages.items() for word in one.source]
    trained = [(label, first, one) for label, first, one in pairs if isinstance(first, Training)]
    return [(label, first, one) for label, first, one in trained if one.kind == first.kind and alike(first, one)]


def alike(first: Training, second: Training) -> bool:
    return [one["name"] for one in first.objectives or []] == [one["name"] for one in second.objectives or []]


@pytest.mark.parametrize("table", [name for name in packaged.tables() if name.partition("/")[0] in PAPERS])
def test_a_stage_that_goes_on_with_the_same_losses_keeps_what_does_not_decay(table):
    for row in packaged.tables()[table] or ("",):
        name = f"{table}:{row}" if row else table
        for label, first, second in further(name):
            assert second.optimizer.no_decay == first.optimizer.no_decay, (name, label)
            assert (second.repeats, second.clip) == (first.repeats, first.clip), (name, label)


@pytest.mark.parametrize("name", ["vlmo/variants:large-plus-plus", "irpe/base-384", "irpe/supplement7:cub"])
def test_such_stages_are_found(name):
    assert further(name)
