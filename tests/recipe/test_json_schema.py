"""The JSON Schema of recipes: it admits every packaged recipe, and refuses what the models refuse."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from vlcli.recipe import yaml
from vlcli.recipe.json_schema import recipe_schema
from vlcli.recipe.load import locate
from vlcli.registry import names

TRAIN = {"data": {"name": "jsonl"}, "objectives": ["mlm"]}


@cache
def validator():
    Draft202012Validator.check_schema(recipe_schema())
    return Draft202012Validator(recipe_schema())


def faults(value):
    return [error.message for error in validator().iter_errors(value)]


@pytest.mark.parametrize("name", names("recipes"))
def test_every_packaged_recipe_is_admitted(name):
    assert faults(yaml.read(Path(locate(name).file)).value) == []


GOOD = [
    {"stages": {"pretrain": TRAIN}},
    {"stages": {"tune": {"kind": "finetune", "from": ["pretrain"], "task": {"name": "vqa", "min_count": 1}}}},
    {"extends": "quickstart", "stages": {"scratch": None, "nlvr2": {"epochs": 3}}},
    {
        "datasets": {"mine": {"name": "csv"}, "two": ["mine", "jsonl"]},
        "stages": {"pretrain": {**TRAIN, "data": "b"}},
    },
    {"stages": {"test": {"kind": "eval", "from": "tune"}}},
]
BAD = [
    {},
    {"stages": {"pretrain": {**TRAIN, "epoch": 3}}},
    {"stages": {"pretrain": {**TRAIN, "epochs": 0}}},
    {"stages": {"pretrain": {**TRAIN, "precision": "float8"}}},
    {"stages": {"x": {"kind": "train"}}},
    {"stages": {"x": {"kind": "export", "epochs": 3}}},
    {"stages": {}, "sed": 1},
    {"stages": {"pretrain": {**TRAIN, "optimizer": {"lr": -1}}}},
    {"stages": {"pretrain": {**TRAIN, "data": 7}}},
    {"stages": {"pretrain": TRAIN}, "text": {"length": 0}},
]


@pytest.mark.parametrize("value", GOOD)
def test_recipes_that_are_right(value):
    assert faults(value) == []


@pytest.mark.parametrize("value", BAD)
def test_recipes_that_are_wrong(value):
    assert faults(value) != []
