"""Files that components name lie under the data root, or here; one that is nowhere is told before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from vlcli import registry
from vlcli.builders.context import StageContext
from vlcli.builders.resolve import resolve_stage
from vlcli.recipe import keys
from vlcli.recipe.components import local_files
from vlcli.recipe.load import load
from vlcli.recipe.validate import faults

MODEL = {"name": "deit", "size": "tiny", "image_size": 32, "patch": 16, "classes": 4}
NAMED = {
    "answering": ("objectives", {"source_answers": "lists/answers.json"}),
    "masked-image": ("objectives", {"tokenizer": "lists/codes.safetensors"}),
    "vqa": ("task", {"source_answers": "lists/answers.json"}),
    "gqa": ("task", {"source_answers": "lists/answers.json"}),
    "sugarcrepe": ("task", {"language_model": "lists"}),
    "region-classifier": ("model", {"weights": "lists/eyes.safetensors"}),
    "faster-rcnn": ("model", {"weights": "lists/eyes.safetensors"}),
}


def recipe_of(tmp_path: Path, name: str) -> tuple[StageContext, str, str, str]:
    field, options = NAMED[name]
    spec = {"name": name, **options}
    stage = {"kind": "finetune" if field == "task" else "pretrain", "data": "folder", "steps": 1, "model": MODEL}
    stage |= {"task": "image-classification"} if field == "task" else {"objectives": ["masked-image"]}
    stage[field] = [spec] if field == "objectives" else spec
    file = tmp_path / "mine.yaml"
    file.write_text(json.dumps({"root": str(tmp_path / "data"), "stages": {"learn": stage}}))
    resolved = load(str(file))
    one = resolved.stages["learn"]
    context = StageContext(resolved.recipe, "learn", one, tmp_path, {}, tmp_path / "data")
    (option, word), *_ = options.items()
    return context, field, option, word


def found(context: StageContext, field: str, option: str) -> str:
    resolved = resolve_stage(context)
    value = {"objectives": resolved.objectives, "task": [resolved.task], "model": [resolved.model]}[field]
    return value[0][option]


def put(folder: Path, word: str) -> Path:
    path = folder / word
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch() if path.suffix else path.mkdir()
    return path


def test_every_component_that_names_files_is_tried():
    kinds = ("objectives", "tasks", "models")
    named = {name for kind in kinds for name in registry.names(kind) if local_files(kind, every(kind, name))}
    assert named - set(NAMED) == {"image-qa", "multiple-choice"}  # as answering and vqa


def every(kind: str, name: str) -> dict:
    return {"name": name, **dict.fromkeys(registry.parameters(registry.load(kind, name)), "a.json")}


@pytest.mark.parametrize("name", NAMED)
def test_under_the_root_then_here(name, tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    context, field, option, word = recipe_of(tmp_path, name)
    assert found(context, field, option) == word
    missing = tmp_path / "data" / word
    assert missing in keys.data_files(context.recipe, "learn", context.root, defaults=False)
    here = put(tmp_path, word)
    assert found(context, field, option) == str(here)
    assert missing not in keys.data_files(context.recipe, "learn", context.root, defaults=False)
    if field != "model":  # a model's folders are looked for here first, as those of `from`
        put(tmp_path / "data", word)
        assert found(context, field, option) == str(missing)


def test_a_file_that_is_nowhere_is_told_with_its_place(tmp_path):
    (tmp_path / "data").mkdir()
    recipe_of(tmp_path, "vqa")
    resolved = load(str(tmp_path / "mine.yaml"), ["stages.learn.model=~", "model.name=lxmert", "model.hidden=48"])
    (told,) = [fault for fault in faults(resolved) if "no such file" in fault.what]
    assert told.key == "stages.learn.task.source_answers"
    assert told.got == str(tmp_path / "data/lists/answers.json")
    assert "root" in told.hint


def test_the_published_answer_head_is_looked_for_where_the_data_are(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    root = tmp_path / "elsewhere"
    put(root, "lxmert/all_ans.json")
    resolved = load("lxmert/variants:public", [f"root={root}"])
    context = StageContext(resolved.recipe, "gqa", resolved.stages["gqa"], tmp_path, {}, root)
    assert found(context, "task", "source_answers") == str(root / "lxmert/all_ans.json")
