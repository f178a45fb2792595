"""In every table of a paper that compares, each measured column has a row with which the others are compared."""

from __future__ import annotations

import packaged
import pytest

from vlcli.recipe.table import load_table
from vlcli.runner.rows import results

PAPERS = ("lxmert/", "dimbert/", "vlmo/", "irpe/", "ace-rpe/")
TABLES = [name for name, rows in packaged.tables().items() if rows and name.startswith(PAPERS)]


@pytest.mark.parametrize("name", [name for name in TABLES if load_table(name, plugins=False).written.references])
def test_rows_that_measure_the_same_have_a_reference(name):
    tables = results(load_table(name, plugins=False), [])
    alone = {label: [row.label for row in one.rows if not row.other] for label, one in tables.items()}
    for label, one in tables.items():
        if len(alone[label]) > 1:
            assert one.reference in alone[label], label
