"""Every packaged recipe's model can be counted, whatever its data would decide."""

from __future__ import annotations

import json

import packaged
import pytest
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.errors import UsageError
from vlcli.nn import DataSpec, InputSpec
from vlcli.nn.count import count_model, macs_of
from vlcli.nn.fake import fake_images
from vlcli.recipe.load import load
from vlcli.tools.counting import count

RECIPES = sorted(packaged.recipes())
QUICK = [name for name in RECIPES if name.startswith("tiny/") and ":" not in name]
QUICK += ["quickstart", "photos", "lxmert/parts:nlvr2", "tiny/vlmo:staged", "tiny/lxmert-table3:cross-1"]
QUICK += ["dimbert/table6:uniter-dim", "irpe/detr", "ace-rpe/table7:delta-0-01"]


def check(name):
    loaded = load(name)
    if not any(stage.kind in ("pretrain", "finetune") for stage in loaded.recipe.stages.values() if stage is not None):
        with pytest.raises(UsageError, match="trains nothing"):  # look-ups, and the extraction alone
            count(loaded)
        return
    found = count(loaded)
    assert found["total"] >= found["backbone"] >= found["encoder"] > 0
    assert found["macs"]["total"] == sum(n for key, n in found["macs"].items() if key != "total") > 0
    for stage, row in found["stages"].items():
        assert (row["total"] or 0) >= (row["backbone"] or 0) > 0, (stage, row)


@pytest.mark.parametrize("name", [n if n in QUICK[:6] else pytest.param(n, marks=pytest.mark.slow) for n in QUICK])
def test_small_recipes_count(name):
    check(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RECIPES if name not in QUICK])
def test_every_packaged_recipe_counts(name):
    check(name)


def test_a_threshold_of_a_hundredth_has_room_for_its_anchors():
    position = load("ace-rpe/table7:delta-0-01").recipe.model["cross_position"]
    assert position["threshold"] == 0.01
    assert position["farthest"] * position["threshold"] == 5 == 100 * 0.05  # as ace-rpe itself


def test_models_that_choose_rows_by_value_are_counted_in_earnest():
    data_spec, spec = DataSpec(regions=7), {"name": "region-classifier", "arch": "tiny-conv"}
    model = registry.build("models", spec, data_spec)
    pictures = fake_images(model.input_spec(), data_spec)
    counted = count_model(model, data_spec=data_spec)["macs"]["image"]
    assert counted == macs_of(lambda: model.eval().requires_grad_(False).encode_image(pictures))[0] > 0
    assert all(not parameter.is_meta for parameter in model.parameters())


def test_a_grid_model_is_counted_on_its_own_grid():
    pictures = fake_images(InputSpec(regions=True, grid=(2, 4)), DataSpec(), rows=3)
    assert pictures.regions is not None
    assert pictures.regions.features.shape[:2] == (3, 8)
    assert pictures.regions.boxes[0, 5].tolist() == [0.25, 0.5, 0.5, 1.0]


def test_several_recipes_are_counted_at_once():
    words = ["count", "tiny/vlmo", "regions", "no-such-recipe", "tiny/photo-concepts", "--json"]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 4, ended.stderr
    rows = json.loads(ended.stdout)["recipes"]
    names = ["tiny/vlmo:scratch", "tiny/vlmo:staged", "regions", "tiny/photo-concepts", "no-such-recipe"]
    assert [row["recipe"] for row in rows] == names
    assert rows[1]["stage"] == "image"
    assert rows[1]["total"] > 0
    assert "total" not in rows[2]
    assert rows[4]["error"]["code"] == 4
    assert "no-such-recipe cannot be counted" in ended.stderr
    alone = CliRunner().invoke(app, ["count", "regions"])
    assert alone.exit_code == 2
    assert "trains nothing" in alone.stderr
