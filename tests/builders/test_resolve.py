"""Preflight and run build the same model, whatever a stage starts from."""

from __future__ import annotations

from pathlib import Path

import pytest

from vlcli import registry
from vlcli.builders import resolve as model_choice
from vlcli.builders.context import StageContext
from vlcli.builders.resolve import choose_model, planned_model, resolve_model
from vlcli.engine.bundle import Bundle
from vlcli.nn.model import Facts
from vlcli.recipe.load import load
from vlcli.recipe.schema import Average, Training
from vlcli.recipe.validate import shallow

LXMERT, VLMO = {"name": "lxmert", "hidden": 64}, {"name": "vlmo", "layers": 2}
RECIPES = sorted(entry.name for entry in registry.entries("recipes") if entry.distribution == "vlcli")


@pytest.mark.parametrize(
    ("recipe", "own", "source", "inside", "wanted"),
    [
        (LXMERT, None, None, False, LXMERT),
        (None, None, None, False, None),
        (LXMERT, {"heads": 4}, None, False, {**LXMERT, "heads": 4}),
        (LXMERT, VLMO, None, False, VLMO),
        (LXMERT, None, VLMO, False, LXMERT),  # a source of another name lends nothing
        (
            LXMERT,
            None,
            {"name": "lxmert", "hidden": 8, "heads": 2},
            False,
            {"name": "lxmert", "hidden": 64, "heads": 2},
        ),
        (LXMERT, None, VLMO, True, VLMO),
        (LXMERT, {"pictures": 2}, VLMO, True, {**VLMO, "pictures": 2}),
        (None, {"pictures": 2}, VLMO, False, {**VLMO, "pictures": 2}),
    ],
)
def test_the_rule(recipe, own, source, inside, wanted):
    assert resolve_model(recipe, own, source, inside) == wanted


def bundle_of(spec) -> Bundle:
    made = object.__new__(Bundle)
    made.__dict__.update(model_spec=spec, facts=Facts(), folder=Path())
    return made


class Disk:
    """Bundles that need not be written: model specs by folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.specs: dict[Path, dict] = {}
        monkeypatch.setattr(model_choice, "find_bundle", lambda path: Path(path) if Path(path) in self.specs else None)
        monkeypatch.setattr(model_choice, "read_bundle", lambda path: bundle_of(self.specs[Path(path)]))


def context(resolved, name, inputs, root=Path()) -> StageContext:
    recipe = resolved.recipe
    kinds = {other: stage.kind for other, stage in recipe.stages.items()}
    return StageContext(recipe, name, recipe.stages[name], Path("runs") / name, inputs, root, kinds=kinds)


def test_a_source_of_another_model_lends_no_keys(monkeypatch, tmp_path):
    outside, disk = tmp_path / "other", Disk(monkeypatch)
    outside.mkdir()
    disk.specs[outside] = {"name": "vlmo", "layers": 2, "fused_layers": 1}
    file = tmp_path / "r.yaml"
    file.write_text(
        f"schema: 1\nroot: {tmp_path}\nmodel: {{name: lxmert, hidden: 64}}\nstages:\n  one:\n    kind: pretrain\n"
        f"    from: {outside}\n    data: {{name: captions, file: a.jsonl}}\n    objectives: matching\n    steps: 1\n"
    )
    resolved = load(str(file))
    made = context(resolved, "one", {}, tmp_path)
    planned = planned_model(made, made.config)
    assert planned == LXMERT  # `fused_layers` here was refused as an unknown key of lxmert
    assert planned == choose_model(made, made.config, bundle_of(disk.specs[outside]))


def test_changes_of_a_stage_apply_to_the_model_of_the_stage_before(tmp_path):
    file = tmp_path / "r.yaml"
    stage = "data: {name: captions, file: a.jsonl}, objectives: matching, steps: 1"
    file.write_text(
        f"schema: 1\nroot: {tmp_path}\nmodel: {{name: lxmert}}\nstages:\n"
        f"  one: {{kind: pretrain, model: {{name: vlmo}}, {stage}}}\n"
        f"  two: {{kind: pretrain, from: one, model: {{pictures: 2}}, {stage}}}\n"
    )
    assert shallow(load(str(file)), None) == []


@pytest.mark.parametrize("name", RECIPES)
def test_preflight_and_run_agree_on_every_packaged_recipe(monkeypatch, name):
    resolved, disk = load(name), Disk(monkeypatch)
    trained: dict[str, dict | None] = {}
    inputs: dict[str, Path] = {}
    for stage_name, stage in resolved.recipe.stages.items():
        here = context(resolved, stage_name, dict(inputs))
        sources = [trained[source] for source in stage.source if trained.get(source)]
        if isinstance(stage, Training):
            run = choose_model(here, stage, bundle_of(sources[0]) if sources else None)
            assert planned_model(here, stage) == run, stage_name
            trained[stage_name] = run
        elif isinstance(stage, Average):
            trained[stage_name] = sources[0]
        inputs[stage_name] = Path("runs") / stage_name
        disk.specs.update({inputs[stage_name]: trained[stage_name]} if trained.get(stage_name) else {})
