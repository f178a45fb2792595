"""Keys of stages: what was finished by earlier versions stays finished, and what differs is named."""

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

# What version 0.1.0 wrote into the folders of its users, without the versions of packages.
KEYS = {
    "world": "81485a821d9aaa49",
    "regions": "90bc2eb4d0d5e217",
    "pretrain": "b671807f167ff944",
    "vqa": "f069241ba2ce6b73",
    "mean": "973bdd1f3bff3af6",
    "test": "4f201a431d00de19",
    "out": "2bc6a05d901aa261",
    "drawn": "2110e76c9b3241f9",
}


@pytest.mark.parametrize("name", KEYS)
def test_stages_of_earlier_versions_stay_finished(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
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
    step = {"until_epoch": 1, "words": 4, "regions": None, "targets": {}}  # as records before `without` have it
    assert keys.plain(recipe(curriculum=[step]).stages["a"])["curriculum"] == [step]
    assert keys.plain(recipe(curriculum=[{**step, "without": ["no"]}]).stages["a"])["curriculum"] != [step]
