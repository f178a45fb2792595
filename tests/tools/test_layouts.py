"""What ``vlcli init`` sees in folders as authors distribute them: task, reader, columns, parts, counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from tests.tools.layouts import LAYOUTS
from vlcli.recipe.load import load
from vlcli.tools.starter.look import look, plan_for
from vlcli.tools.starter.machine import Machine
from vlcli.tools.starter.recipe import recipe_text
from vlcli.tools.starter.times import times_of

HERE = Machine(2, "", 2e10)


def backbone(root: Path) -> None:
    """The names of a ResNet-50's tensors, with nothing in them."""
    blocks = {f"layer3.{i}.conv{c}.weight": np.zeros(1, np.float32) for i in range(6) for c in (1, 2, 3)}
    save_file(blocks, root / "resnet50.safetensors")


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_in_its_official_form_is_recognised(name, tmp_path):
    layout, root = LAYOUTS[name], tmp_path / "data"
    layout.make(root)
    if layout.weights:
        backbone(root)
    plan = plan_for(look(root), None, HERE)
    found = plan.source
    assert (plan.goal, found.entry["name"]) == (layout.goal, layout.reader)
    assert {role: found.columns.get(role) for role in layout.columns} == layout.columns
    counts = {part: one.examples for part, one in plan.parts.items()}
    if layout.counts and "validation" not in layout.counts:  # cut from the training part
        counts = {"train": counts["train"] + counts["validation"], "test": counts["test"]}
    elif layout.counts and "test" not in layout.counts:
        counts = {"train": counts["train"] + counts["validation"], "validation": counts["test"]}
    expected = layout.counts or {"total": layout.total}
    assert (counts if layout.counts else {"total": sum(counts.values())}) == expected
    file = tmp_path / "recipe.yaml"
    file.write_text(recipe_text(plan, str(root), "recipe.yaml", times_of(plan)))
    assert load(str(file)).recipe.stages
