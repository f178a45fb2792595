"""Keys of stages: what is finished stays finished, and what differs is named."""

from __future__ import annotations

import pytest

from vlcli.recipe import keys
from vlcli.recipe.load import from_mapping
from vlcli.recipe.schema import Recipe

RATE = {"lr": 1e-4}
RECIPE = {
    "root": "/data",
    "model": {"name": "lxmert", "hidden": 32},
    "text": {"vocabulary": "words.txt", "length": 8},
    "stages": {
        "world": {"kind": "make", "world": {"name": "shapes", "images": 9}},
        "regions": {"kind": "extract", "extractor": "backbone", "data": "coco-instances"},
        "pretrain": {
            "data": {"name": "coco-captions", "split": "train"},
            "objectives": ["mlm"],
            "epochs": 2,
            "optimizer": RATE,
        },
        "vqa": {
            "kind": "finetune",
            "from": "pretrain",
            "task": "vqa",
            "text": {"length": 4},
            "steps": 3,
            "optimizer": RATE,
        },
        "mean": {"kind": "average", "from": "vqa"},
        "test": {"kind": "evaluate", "from": "vqa", "split": "val"},
        "out": {"kind": "export", "from": "vqa"},
        "drawn": {"kind": "draw", "from": "vqa", "drawing": "attention"},
    },
}

# Keys without the versions of packages.
KEYS = {
    "world": "81485a821d9aaa49",
    "regions": "6b9c680ca641fb05",
    "pretrain": "0fdec485ae4b381b",
    "vqa": "88c22d10e4dbe7aa",
    "mean": "973bdd1f3bff3af6",
    "test": "b8dbfd4bcb54089d",
    "out": "2bc6a05d901aa261",
    "drawn": "2110e76c9b3241f9",
}


@pytest.mark.parametrize("name", KEYS)
def test_finished_stages_stay_finished(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "packages", lambda recipe, name: {})
    recipe = from_mapping("mine", RECIPE).recipe
    earlier = list(recipe.stages)[: list(recipe.stages).index(name)]
    implied = ("regions",) if recipe.stages[name].kind in ("pretrain", "finetune", "evaluate") else ()
    assert keys.stage_key(recipe, name, {other: other for other in KEYS}, implied, earlier).startswith(KEYS[name])


def test_a_curriculum_makes_another_key() -> None:
    def recipe(**more: object) -> Recipe:
        stage = {"kind": "pretrain", "data": "coco-captions", "objectives": ["mlm"], **more}
        return from_mapping("mine", {"stages": {"a": stage}}).recipe

    def made(**more: object) -> str:
        return keys.stage_key(recipe(**more), "a", {}, (), [])

    assert made() == made(curriculum=[]) != made(curriculum=[{"until_epoch": 1, "words": 4}])
    step = {"until_epoch": 1, "words": 4}
    assert made(curriculum=[step]) != made(curriculum=[{**step, "without": ["no"]}])
