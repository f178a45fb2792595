"""Renamed options: refused in recipes with the present name, converted in what earlier versions wrote.

The files in fixtures/former were written before the options had their present names: trained models, some with weights,
and a stage record. tests/runner/test_earlier.py has a run folder and the stage keys.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from vlcli import registry
from vlcli.engine.bundle import load_bundle, read_bundle
from vlcli.errors import ComponentError
from vlcli.nn import DataSpec
from vlcli.recipe import keys, stage_record
from vlcli.recipe.load import from_mapping
from vlcli.recipe.validate import shallow
from vlcli.registry import renames

FORMER = Path(__file__).parents[1] / "fixtures" / "former"
BUNDLES = sorted(path.parent.name for path in FORMER.glob("*/config.json"))
DECLARED = [
    (entry.kind, entry.name, former, present)
    for entry in registry.entries()
    for former, present in entry.renames
    if entry.distribution == "vlcli"
]


def test_the_models_of_the_papers_have_renamed_options():
    assert len(DECLARED) > 25
    assert {name for kind, name, *_ in DECLARED if kind == "models"} >= {"deit", "swin", "detr", "lxmert", "vlmo"}


@pytest.mark.parametrize(("kind", "name", "former", "present"), DECLARED)
def test_a_former_name_is_refused_with_the_present_one(kind, name, former, present):
    target = registry.load(kind, name)
    known = registry.parameters(target)
    assert present in known
    (problem, *_) = registry.check(kind, {"name": name, former: known[present].default}, kind)
    assert (problem.key, problem.expected) == (f"{kind}.{former}", present)
    assert repr(present) in problem.hint


def test_a_name_with_a_new_meaning_is_taken_where_its_successor_stands_beside_it():
    assert not registry.check("models", {"name": "detr", "hidden": 16, "intermediate": 32}, "model")
    (problem,) = registry.check("models", {"name": "detr", "hidden": 32}, "model")
    assert "new meaning" in problem.what
    assert "'intermediate'" in problem.hint


def test_shallow_validation_refuses_it_without_importing_the_model():
    recipe = {"model": {"dim": 8, "name": "deit"}, "stages": {"world": {"kind": "make", "world": "shapes"}}}
    (problem,) = shallow(from_mapping("page", recipe))
    assert (problem.key, problem.expected) == ("model.dim", "hidden")


def test_python_refuses_it_too():
    with pytest.raises(ComponentError, match="call it 'hidden'"):
        registry.build("models", {"dim": 8, "name": "deit"}, DataSpec())


@pytest.mark.parametrize("name", BUNDLES)
def test_a_trained_model_of_an_earlier_version_is_read(name):
    bundle = read_bundle(FORMER / name)
    for kind, spec in (
        ("models", bundle.model_spec),
        ("tasks", bundle.task_spec),
        *(("objectives", spec) for spec in bundle.objectives_specs),
    ):
        assert spec is None or registry.check(kind, spec, kind) == []
    before = json.loads((FORMER / name / "config.json").read_text())
    assert sorted(map(str, bundle.model_spec.values())) == sorted(map(str, before["model"].values()))


@pytest.mark.parametrize("name", [name for name in BUNDLES if (FORMER / name / "model.safetensors").is_file()])
def test_its_weights_fill_the_model(name):
    module = load_bundle(FORMER / name).module
    assert sum(parameter.numel() for parameter in module.model.parameters()) > 100


def test_the_width_of_an_earlier_detr_is_not_mistaken_for_its_feed_forward():
    spec = read_bundle(FORMER / "detr").model_spec
    assert (spec["hidden"], spec["intermediate"]) == (16, 32)
    assert "dim" not in spec


def test_a_stage_record_of_an_earlier_version_is_converted_once(tmp_path):
    shutil.copy(FORMER / "stage.json", tmp_path)
    record = stage_record.read(tmp_path)
    assert record.config["model"] == {"name": "detr", "hidden": 16, "intermediate": 32, "position": ["detr-sine"]}
    assert record.config["objectives"] == [{"name": "scst", "max_length": 4, "weight": 2.0}]
    assert record.config["task"] == {"name": "captioning", "decoding": "sample", "max_length": 5}
    stage_record.write(tmp_path, record)
    assert stage_record.read(tmp_path).config == record.config


def test_the_task_of_an_earlier_model_is_known_to_recipes(tmp_path):
    shutil.copytree(FORMER / "story", tmp_path / "model")
    assert keys.task_kept(str(tmp_path)).task["story_per"] == "sequence"


def test_a_stage_that_changes_its_models_options_keeps_its_key():
    stages = {"one": {"kind": "pretrain", "data": "coco-captions", "objectives": ["mlm"], "model": {"images": 2}}}
    recipe = from_mapping("page", {"model": {"name": "vlmo", "hidden": 8}, "stages": stages}).recipe
    stage, model = recipe.stages["one"], keys.named_model(recipe, recipe.stages["one"])
    dump = keys.translated(keys.plain(stage), renames.former, model["name"])
    assert dump["model"] == {"pictures": 2}
    assert renames.present("models", {"name": "vlmo", **dump["model"]}) == {"name": "vlmo", "images": 2}
