"""Every figure of the papers' tables, typed from their text, stands in a recipe; no recipe prints another number."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

import pytest
import yaml

from vlcli import registry
from vlcli.recipe.table import RowTable, is_table, load_table

FOLDER = Path(__file__).parent
WHERE = yaml.safe_load((FOLDER / "where.yaml").read_text())
NAMES = ("lxmert", "dimbert", "vlmo", "irpe", "ace-rpe")
PAPERS = {name: yaml.safe_load((FOLDER / f"{name}.yaml").read_text()) for name in NAMES}
PER_CENT = 0.01
Figure = tuple[str, str, str, str]  # paper, table, row, column


@cache
def table_of(recipe: str) -> RowTable:
    return load_table(recipe, plugins=False)


def figures() -> dict[Figure, float]:
    return {
        (paper, table, row, column): value
        for paper, tables in PAPERS.items()
        for table, block in tables.items()
        for row, values in block["rows"].items()
        for column, value in zip(block["columns"], values, strict=True)
        if value is not None
    }


def places(place: dict) -> dict[Figure, tuple[str, str]]:
    """Figures of one entry with the label and the key of a published number."""
    block, found = PAPERS[place["paper"]][place["table"]], {}
    for row in place.get("only", block["rows"]):
        label = place.get("rows", {}).get(row, row)
        for column, key in place["columns"].items():
            other, _, metric = key.format(label).rpartition(":")
            found[place["paper"], place["table"], row, column] = (other or label, metric)
    return found


def read(recipe: str, label: str, key: str) -> float | None:
    table = table_of(recipe)
    row = table.rows.get(label) or table.written.others.get(label)
    number = row.published.get(key.removesuffix(" spread")) if row else None
    return None if number is None else number.spread if key.endswith(" spread") else number.value


def excepted(figure: Figure) -> bool:
    return any(fnmatchcase("/".join(figure), pattern) for pattern in WHERE["exceptions"])


def test_every_figure_stands_in_a_recipe_or_in_the_exceptions():
    printed, wrong, found = figures(), [], set()
    for place in WHERE["places"]:
        for figure, (label, key) in places(place).items():
            value = read(place["recipe"], label, key)
            if value is None or figure not in printed:
                continue
            found.add(figure)
            expected = printed[figure] * place.get("scale", {}).get(figure[3], PER_CENT)
            if value != pytest.approx(expected, rel=1e-9):
                wrong.append(("/".join(figure), expected, place["recipe"], label, value))
    missing = ["/".join(one) for one in printed if one not in found and not excepted(one)]
    assert not wrong
    assert not missing
    assert len(found) > 1000
    assert not [one for one in found if excepted(one)]


def test_every_exception_is_of_a_figure_and_has_a_reason():
    names = ["/".join(one) for one in figures()]
    for pattern, why in WHERE["exceptions"].items():
        assert any(fnmatchcase(name, pattern) for name in names), pattern
        assert len(why) > 20


def test_no_recipe_of_the_papers_prints_a_number_that_its_paper_does_not_have():
    printed = figures()
    known = {(place["recipe"], *at) for place in WHERE["places"] for one, at in places(place).items() if one in printed}
    for name in registry.names("recipes"):
        if name.partition("/")[0] in PAPERS and is_table(name):
            table = table_of(name)
            for label, row in (table.rows | table.written.others).items():
                for key in row.published:
                    assert (name, label, key) in known, f"{name}:{label} prints {key}, which no table of the paper has"
