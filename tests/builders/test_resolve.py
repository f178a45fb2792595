"""Preflight and run build the same model, whatever a stage starts from."""

from __future__ import annotations

from pathlib import Path

import packaged
import pytest

from vlcli.builders import resolve as resolving
from vlcli.builders.context import StageContext
from vlcli.builders.resolve import resolve_stage
from vlcli.engine.bundle import Bundle
from vlcli.nn.model import DataSpec
from vlcli.recipe.load import load
from vlcli.recipe.resolve import ResolvedStage, resolve_model
from vlcli.recipe.schema import Average, Reading, TextOptions, Training
from vlcli.recipe.validate import shallow

LXMERT, VLMO = {"name": "lxmert", "hidden": 64}, {"name": "vlmo", "layers": 2}
RECIPES = packaged.recipes()


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
        (LXMERT, {"images": 2}, VLMO, True, {**VLMO, "images": 2}),
        (None, {"images": 2}, VLMO, False, {**VLMO, "images": 2}),
    ],
)
def test_the_rule(recipe, own, source, inside, wanted):
    assert resolve_model(recipe, own, source, inside) == wanted


class Tokens:
    """Stands for the tokenizer of a bundle whose model reads text."""


class Disk:
    """Bundles that need not be written: what each keeps, by folder."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bundles: dict[Path, Bundle] = {}
        monkeypatch.setattr(resolving, "find_bundle", lambda path: Path(path) if Path(path) in self.bundles else None)
        monkeypatch.setattr(resolving, "read_bundle", lambda path: self.bundles[Path(path)])

    def put(self, folder: Path, model: dict, text: TextOptions | None = None, **kept: dict | None) -> None:
        """A bundle as a training stage saves it: without a vocabulary, for which the tokenizer stands."""
        options = {} if text is None else text.model_dump(exclude={"vocabulary"})
        made = object.__new__(Bundle)
        made.__dict__.update(
            model_spec=model, task_spec=kept.get("task"), transform_spec=kept.get("transform"), data_spec=DataSpec(),
            folder=folder, text_options=options, tokenizer=None if text is None else Tokens(),
        )  # fmt: skip
        self.bundles[folder] = made


def specs(resolved: ResolvedStage) -> dict:
    """Everything that preflight and run must agree on."""
    text = resolved.text.model_dump(exclude={"vocabulary"})
    names = ("model", "task", "objectives", "data", "transform", "sources")
    return {**{name: getattr(resolved, name) for name in names}, "text": text}


def context(resolved, name, inputs, root=Path()) -> StageContext:
    recipe = resolved.recipe
    kinds = {other: stage.kind for other, stage in recipe.stages.items()}
    return StageContext(recipe, name, recipe.stages[name], Path("runs") / name, inputs, root, kinds=kinds)


def test_a_source_of_another_model_lends_no_keys(monkeypatch, tmp_path):
    outside, disk = tmp_path / "other", Disk(monkeypatch)
    outside.mkdir()
    disk.put(outside, {"name": "vlmo", "layers": 2, "fused_layers": 1})
    file = tmp_path / "r.yaml"
    file.write_text(
        f"schema: 1\nroot: {tmp_path}\nmodel: {{name: lxmert, hidden: 64}}\nstages:\n  one:\n    kind: pretrain\n"
        f"    from: {outside}\n    data: {{name: captions, file: a.jsonl}}\n    objectives: matching\n    steps: 1\n"
    )
    resolved = load(str(file))
    made = context(resolved, "one", {}, tmp_path)
    assert resolve_stage(made).model == LXMERT  # `fused_layers` here was refused as an unknown key of lxmert


def test_changes_of_a_stage_apply_to_the_model_of_the_stage_before(tmp_path):
    file = tmp_path / "r.yaml"
    stage = "data: {name: captions, file: a.jsonl}, objectives: matching, steps: 1"
    file.write_text(
        f"schema: 1\nroot: {tmp_path}\nmodel: {{name: lxmert}}\nstages:\n"
        f"  one: {{kind: pretrain, model: {{name: vlmo}}, {stage}}}\n"
        f"  two: {{kind: pretrain, from: one, model: {{images: 2}}, {stage}}}\n"
    )
    assert shallow(load(str(file)), None) == []


@pytest.mark.parametrize("name", RECIPES)
def test_preflight_and_run_agree_on_every_packaged_recipe(monkeypatch, name):
    """Specs that are resolved before any stage was made equal those resolved where each source lies on disk."""
    resolved, disk = load(name), Disk(monkeypatch)
    inputs: dict[str, Path] = {}
    for stage_name, stage in resolved.recipe.stages.items():
        if isinstance(stage, Training | Reading):
            before = specs(resolve_stage(context(resolved, stage_name, {})))
            here = resolve_stage(context(resolved, stage_name, dict(inputs)))
            assert before == specs(here), stage_name
        inputs[stage_name] = Path("runs") / stage_name
        if isinstance(stage, Training):
            disk.put(inputs[stage_name], here.model, here.text, task=here.task, transform=here.transform)
        elif isinstance(stage, Average):
            disk.bundles[inputs[stage_name]] = disk.bundles[inputs[stage.source[0]]]


def test_a_stage_goes_before_its_source_and_the_source_before_the_recipe(tmp_path):
    file = tmp_path / "r.yaml"
    stage = "kind: finetune, data: {name: captions, file: a.jsonl}, objectives: [matching], steps: 1"
    file.write_text(
        f"schema: 1\nroot: {tmp_path}\nmodel: {{name: lxmert}}\ntext: {{length: 5}}\nstages:\n"
        f"  one: {{{stage}, text: {{length: 7}}, task: {{name: vqa, min_count: 2}}, transform: {{name: resize}}}}\n"
        f"  two: {{{stage}, from: one}}\n  three: {{{stage}, from: one, text: {{length: 9}}}}\n"
        f"  same: {{kind: evaluate, from: one, task: vqa}}\n  other: {{kind: evaluate, from: one, task: gqa}}\n"
        f"  four: {{{stage}}}\n"
    )
    resolved = load(str(file))
    found = {name: resolve_stage(context(resolved, name, {})) for name in resolved.stages}
    assert [found[name].text.length for name in ("one", "two", "three", "four")] == [7, 7, 9, 5]
    assert [found[name].transform for name in ("one", "two", "four")] == [{"name": "resize"}] * 2 + [None]
    assert found["two"].task is None  # a training stage takes no task from its source
    assert found["same"].task == {"name": "vqa", "min_count": 2}
    assert found["other"].task == {"name": "gqa"}
