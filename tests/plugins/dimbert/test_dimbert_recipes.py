"""DiMBERT's recipes: what they say against the paper, published counts, components that take what they set."""

from __future__ import annotations

import re

import packaged
import pytest
import torch
from transformers import BertConfig, BertForPreTraining
from typer.testing import CliRunner

from vlcli import registry
from vlcli.cli import app
from vlcli.nn import DataSpec
from vlcli.recipe.load import about, load
from vlcli.recipe.schema import Average, Evaluate, Finetune, Pretrain, Training
from vlcli.recipe.table import load_table
from vlcli.recipe.validate import uses

NAMES = packaged.recipes("dimbert")
TINY = sorted(name for name in registry.names("recipes") if name.startswith("tiny/dimbert"))
OWN = [name for name in TINY if "photos" not in name]
"""Those that make their data themselves."""
DIM = 21_261_312


@pytest.mark.parametrize("name", [*NAMES, *packaged.recipes("tiny/dimbert")])
def test_every_component_takes_what_the_recipe_sets(name):
    resolved = load(name)
    problems = [p for use in uses(resolved) for p in registry.check(use.kind, use.spec, use.key)]
    assert problems == []
    assert about(name) == resolved.recipe.about
    stages = resolved.stages.values()
    assert all(stage.epochs or stage.steps for stage in stages if isinstance(stage, Training))
    rows = {} if resolved.recipe.table is None else resolved.recipe.table.rows
    judged = [resolved.stages[row] for row in rows.values()]
    assert all(isinstance(one, Evaluate) or (isinstance(one, Training) and one.validation) for one in judged)


def test_the_published_hyperparameters():
    stages = load("dimbert").stages
    for name in ("pretrain", "coco-further", "flickr30k-further"):
        stage = stages[name]
        assert isinstance(stage, Pretrain)
        assert (stage.epochs, stage.batch_size, stage.optimizer.lr) == (30, 512, 3e-4)
        assert stage.objectives == [{"name": "blm-s2slm"}]
    made = registry.build("objectives", "blm-s2slm", *_model())
    assert (made._corruption.bidirectional, made._corruption.probability) == (0.25, 0.15)
    assert stages["pretrain"].source == ["weights/unilm.bin", "weights/fc7.safetensors"]
    for task, rate in (("coco", 1e-4), ("flickr30k", 3e-5)):
        mean, stage = stages[f"{task}-mean"], stages[task]
        assert isinstance(mean, Average)
        assert (mean.last, mean.source, stages[f"{task}-further"].keep) == (20, [f"{task}-further"], 20)
        assert (stage.epochs, stage.batch_size, stage.optimizer.lr) == (30, 512, rate)
        assert stage.source == [f"{task}-mean"]
    assert (stages["scst"].optimizer.lr, stages["scst"].source) == (1e-6, ["coco"])
    assert registry.build("tasks", stages["coco-test"].task or "captioning").settings.beams == 3


def _model():
    data_spec = DataSpec(vocab_size=30, region_dim=8, region_classes=5)
    return registry.build("models", {"name": "dimbert", "hidden": 16, "heads": 2, "layers": 1}, data_spec), data_spec


def parameters(name: str) -> int:
    with torch.device("meta"):
        model = registry.build("models", load(f"dimbert/{name}").recipe.model, DataSpec())
    return sum(parameter.numel() for parameter in model.parameters())


def test_published_counts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, ["count", "dimbert/vlp", "--stage", "coco"])
    assert "115,939,396" in shown.stdout
    assert parameters("parts:xe") - parameters("table4:blm-s2slm") == DIM
    for name, more in (("uniter", DIM), ("vl-bert", DIM), ("vilbert", 0)):
        assert parameters(f"table6:{name}-dim") - parameters(f"table6:{name}") == more


def test_rows_of_the_ablations():
    base, full = load("dimbert/table4:base"), load("dimbert/parts:xe")
    assert [name for name, stage in base.stages.items() if isinstance(stage, Training)] == ["coco"]
    assert base.stages["coco"].source == []
    assert not [stage for stage in full.stages.values() if getattr(stage, "task", None) == "scst"]
    assert "scst" not in full.stages
    asked = {"blm": ["blm"], "s2slm": ["s2slm"], "masked-roi": ["blm-s2slm", "masked-roi"]}
    for name, objectives in asked.items():
        stages = load(f"dimbert/table4:{name}").stages
        for stage in ("pretrain", "coco-further"):
            assert [part["name"] for part in stages[stage].objectives] == objectives
    for number in (10, 30, 40):
        assert load(f"dimbert/table8:{number}").recipe.model["concepts"] == number
    for name in ("table7:base-without", "table7:without", "vlp"):
        resolved = load(f"dimbert/{name}")
        assert resolved.recipe.model["concepts"] == 0
        read = [file for stage in resolved.stages.values() for file in getattr(stage, "features", [])]
        assert read
        assert not [file for file in read if "concepts" in file]


def test_every_row_of_tables_4_7_and_8_has_its_column_of_referring_expressions():
    rows = [n for n in NAMES if re.search(r"/table[478]", n) and not n.endswith(("-refcoco", ":extractor"))]
    there = {n for n in NAMES if n.endswith("-refcoco")}
    assert there == {f"{n}-refcoco" for n in rows}
    assert (
        len(there) == 19
    )  # each table with all of its rows; BLM and S2SLM without DiM is Table 6's ESABERT, see below
    for name in rows:
        column = "dimbert/table6:esabert" if name == "dimbert/table4:blm-s2slm" else f"{name}-refcoco"
        own, other = load(name).recipe, load(column).recipe
        same = ("attention", "concepts")
        assert {k: own.model.get(k) for k in same} == {k: other.model.get(k) for k in same}, name
        assert ("pretrain" in own.stages) == ("pretrain" in other.stages)
        if "pretrain" in own.stages:
            assert own.stages["pretrain"] == other.stages["pretrain"]
            assert other.stages["further"].objectives == own.stages["coco-further"].objectives
        else:
            assert other.stages["refer"].source == own.stages["coco"].source
        assert other.stages["regions"] == load("dimbert/refcoco:detected").recipe.stages["regions"]
        read = [file for stage in other.stages.values() for file in getattr(stage, "features", [])]
        assert any("concepts" in file for file in read) == (other.model.get("concepts") != 0)
        assert other.table.rows == {"val": "val", "testA": "testA", "testB": "testB"}


@pytest.mark.parametrize(
    "name", ["parts:pretrain", "table6:uniter", "table6:uniter-dim", "table6:vl-bert", "table6:vilbert"]
)
def test_language_weights_fill_all_but_what_the_recipe_allows(name):
    resolved = load(f"dimbert/{name}")
    sizes = {"hidden": 16, "heads": 2}
    data_spec = DataSpec(vocab_size=40, region_dim=8, region_classes=5)
    torch.manual_seed(0)
    model = registry.build("models", {**resolved.recipe.model, **sizes}, data_spec)
    shape = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 64}
    theirs = BertForPreTraining(BertConfig(vocab_size=40, num_hidden_layers=12, **shape)).state_dict()
    filled = model.adapt(dict(theirs), [])
    new = {f"model.{name}" for name in set(model.state_dict()) - set(filled)}
    allowed = resolved.stages["pretrain"].allow_unmatched
    assert new
    assert [name for name in new if not any(re.search(pattern, name) for pattern in allowed)] == []
    first, last = ("lower.layers.0", "upper.5") if "vilbert" in name else ("stack.layers.0", "stack.layers.11")
    for ours, number in ((first, 0), (last, 11)):
        wanted = theirs[f"bert.encoder.layer.{number}.attention.self.query.weight"]
        assert torch.equal(filled[f"{ours}.self_attention.attention.query.weight"], wanted)


def test_tiny_recipes_end_in_a_table():
    assert {"tiny/dimbert", "tiny/dimbert-scst", "tiny/dimbert-ablation"} <= set(TINY)
    assert len(load_table("tiny/dimbert-ablation").rows) == 4
    assert [s for s in load("tiny/dimbert-scst").stages.values() if isinstance(s, Finetune)][-1].source == ["caption"]


@pytest.mark.parametrize("name", [n if "scst" in n else pytest.param(n, marks=pytest.mark.slow) for n in OWN])
def test_tiny_recipes_are_deeply_valid(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ended = CliRunner().invoke(app, ["validate", name, "--deep"])
    assert ended.exit_code == 0, ended.output
