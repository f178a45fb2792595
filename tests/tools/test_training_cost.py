"""The arithmetic of a plan: by hand for a small model, and monotone in what it is given."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.engine.schedule import StepPlan
from vlcli.nn.model import DataSpec
from vlcli.nn.slots import build_model
from vlcli.recipe.schema import Pretrain
from vlcli.tools import training_cost
from vlcli.tools.training_cost import Wanted, activations_of

RECIPE = """\
root: world
model: {{name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}}
text: {{vocabulary: {{train: {{name: coco-captions, split: train}}, size: 100}}, length: 16}}
stages:
  pretrain:
    kind: pretrain
    data: {{name: coco-captions, split: train}}
    objectives: [mlm]
    batch_size: 64
    steps: 1000
    {more}
"""
GIVEN = ("--tflops", "10", "--link", "5", "--disk", "100MB")


def planned(folder, *words, more="ema: {decay: 0.9}"):
    (folder / "own.yaml").write_text(RECIPE.format(more=more))
    ended = CliRunner().invoke(app, ["plan", str(folder / "own.yaml"), *GIVEN, *words, "--json"])
    assert ended.exit_code == 0, ended.output
    found = json.loads(ended.stdout)
    return {cost["name"]: cost for cost in [*found["memory"], *found["time"]]}


def counted(folder):
    ended = CliRunner().invoke(app, ["count", str(folder / "own.yaml"), "--json"])
    return json.loads(ended.stdout)


def test_the_numbers_are_those_of_the_count_and_of_the_options(tmp_path):
    found = planned(tmp_path, "--gpus", "4")
    numbers = counted(tmp_path)
    total, macs = numbers["total"], numbers["macs"]["total"]
    assert found["weights"]["value"] == found["gradients"]["value"] == found["averages"]["value"] == 4 * total
    assert found["optimizer"]["value"] == 8 * total
    assert found["computing"]["value"] == pytest.approx(6 * macs * 64 / 4 / 10e12)
    assert found["communication"]["value"] == pytest.approx(2 * 4 * total * 3 / 4 / 5e9)
    assert found["steps"]["value"] == pytest.approx(1 / found["communication"]["value"])
    assert found["checkpoint"]["value"] == 4 * total * 4
    assert found["writing it"]["value"] == pytest.approx(16 * total / 100e6)
    assert found["training"]["value"] == pytest.approx(1000 / found["steps"]["value"])
    assert {found[name]["source"] for name in ("computing", "communication", "writing it")} == {"given"}
    assert found["examples read"]["value"] == pytest.approx(64 * found["steps"]["value"])


def test_sharing_divides_what_is_held_and_sends_half_as_much_again(tmp_path):
    copies, shares = planned(tmp_path, "--gpus", "4"), planned(tmp_path, "--gpus", "4", more="sharding: full")
    for name in ("weights", "gradients", "optimizer"):
        assert shares[name]["value"] == copies[name]["value"] / 4
    assert shares["traffic"]["value"] == pytest.approx(1.5 * copies["traffic"]["value"])
    assert 0 < shares["gathered"]["value"] < 3 * copies["weights"]["value"]
    hybrid = planned(tmp_path, "--gpus", "4", "--per-machine", "2", more="sharding: hybrid")
    assert hybrid["weights"]["value"] == copies["weights"]["value"] / 2


def test_activations_are_what_autograd_keeps():
    """On the CPU, by the same hooks over a real pass, and in proportion to the layers."""
    spec = DataSpec(vocab_size=50, text_length=12)
    sizes = []
    for layers in (1, 2, 3):
        model = {
            "name": "lxmert",
            "hidden": 16,
            "heads": 2,
            "text_layers": layers,
            "image_layers": 1,
            "cross_layers": 1,
        }
        with torch.device("meta"):
            sizes.append(activations_of(build_model(model, spec), spec))
    assert sizes[0] > 0
    assert sizes[2] - sizes[1] == sizes[1] - sizes[0] > 12 * 16 * 4


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--gpus", "65"), "an example for every GPU"),
        (("--memory", "80"), "no size"),
        (("--stage", "x"), "no training"),
    ],
)
def test_what_cannot_be_planned_is_told(tmp_path, words, told):
    (tmp_path / "own.yaml").write_text(RECIPE.format(more=""))
    ended = CliRunner().invoke(app, ["plan", str(tmp_path / "own.yaml"), *GIVEN, *words])
    assert ended.exit_code == 2
    assert told in ended.output


@pytest.mark.parametrize(
    ("objectives", "least", "most"), [("[mlm]", 0.6, 1.2), ("[contrast, contrast-matching]", 2, 7)]
)
def test_a_rehearsal_counts_every_pass_of_a_step(tmp_path, objectives, least, most):
    """One pass for words; each modality alone and three pairs for the others."""
    more = "model: {name: vlmo, image: features, grid: [4, 4], hidden: 64, layers: 3, heads: 4, fused_layers: 1}"
    once = planned(tmp_path, "--gpus", "2", more=more)
    text = (tmp_path / "own.yaml").read_text().replace("[mlm]", objectives)
    (tmp_path / "own.yaml").write_text(text)
    words = ["plan", str(tmp_path / "own.yaml"), *GIVEN, "--gpus", "2", "--rehearse", "--json"]
    found = json.loads(CliRunner().invoke(app, words).stdout)
    step = {cost["name"]: cost for cost in [*found["memory"], *found["time"]]}
    assert least < step["operations"]["value"] / once["operations"]["value"] < most
    assert least < step["activations"]["value"] / once["activations"]["value"] < most
    assert "--rehearse" in once["operations"]["how"]
    assert "--rehearse" not in step["operations"]["how"]


@pytest.mark.parametrize("extra", [{}, {"accumulate": 2}, {"accumulate": 3, "steps": 5}, {"batch_size": 50}])
def test_the_steps_of_a_plan_are_those_of_the_training(extra):
    config = Pretrain(**{"kind": "pretrain", "objectives": [{"name": "mlm"}], "epochs": 3, "batch_size": 8, **extra})
    sizes = training_cost.Sizes(1000, 1000, 0, 1000, 0, 1e6, 0, False, True)
    costs = training_cost.speed_of(sizes, config, Wanted(gpus=2, memory=1e9, examples=48, disk=1e6))
    values = {cost.name: cost.value for cost in costs}
    assert values["all steps"] == StepPlan.of(48, config, 2).steps
    assert values["training"] == pytest.approx(values["all steps"] / values["steps"])
