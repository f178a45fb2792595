"""The equations that docs/irpe.md shows compute what the plugin computes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from vlcli_irpe import IRPE

from vlcli.nn import AttentionShape, Layout

PAGE = Path(__file__).parents[3] / "docs" / "irpe.md"
BATCH, HEADS, WIDTH = 2, 3, 8


@pytest.fixture(scope="module")
def reference():
    section = PAGE.read_text(encoding="utf-8").split("## As equations")[1]
    names: dict = {}
    exec(re.search(r"```python\n(.*?)```", section, re.DOTALL)[1], names)
    return names


@pytest.mark.parametrize(("rows", "columns"), [(4, 4), (3, 7), (14, 14)])
@pytest.mark.parametrize("ratio", [1.9, 2.0, 3.5])
def test_the_equations_on_the_page_are_those_of_the_plugin(reference, rows, columns, ratio):
    torch.manual_seed(0)
    shape = AttentionShape(dim=HEADS * WIDTH, heads=HEADS)
    irpe = IRPE(shape, ratio=ratio, sides=["query", "key", "value"], init="normal").double()
    layout = Layout.for_grid(rows, columns, skip=1)
    count = 1 + rows * columns
    q, k, v = (torch.randn(BATCH, HEADS, count, WIDTH, dtype=torch.float64, requires_grad=True) for _ in range(3))
    tables = [irpe.tables(0, side)[0] for side in ("key", "query", "value")]

    tokens = torch.zeros(BATCH, count, HEADS * WIDTH, dtype=torch.float64)
    state = irpe.prepare(tokens, tokens, layout, layout)
    weights = torch.softmax(q @ k.mT / WIDTH**0.5 + irpe.logits(q, k, state, 0), -1)
    out = weights @ v + irpe.values(weights, state, 0)

    key, query, value = tables[0][0].T, tables[1][0].T, tables[2][0]  # (K, d)
    ids = reference["bucket_ids"](rows, columns, ratio)
    dense = reference["attention"](q, k, v, ids, key, query, value)
    assert torch.allclose(dense, out, atol=1e-12)
    wanted = torch.randn_like(out)
    inputs = [q, k, v, *tables]
    for left, right in zip(*(torch.autograd.grad(each, inputs, wanted) for each in (dense, out)), strict=True):
        assert torch.allclose(left, right, atol=1e-12)
