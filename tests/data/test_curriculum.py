"""Easy examples first, and objectives whose options change from an epoch on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vlcli.cli import app
from vlcli.data import Example
from vlcli.data.sampler import Curriculum
from vlcli.errors import DataError
from vlcli.recipe.schema import CurriculumStep, ObjectiveOptions

EXAMPLES = [
    Example("a", "a red circle", ["i"], targets={"kind": "has"}),
    Example("b", "a red circle above a blue square", ["j"], targets={"kind": "relation"}),
    Example("c", "a dog", ["j"], choices=["one two three four five"], targets={"kind": "has"}),
    Example("d", None, ["i", "j"]),
]
REGIONS = {"i": 2, "j": 5}


def allowed(epoch: int, *steps: dict[str, object]) -> list[str] | None:
    found = Curriculum([CurriculumStep(**step) for step in steps], EXAMPLES, REGIONS.__getitem__).allowed(epoch)
    return None if found is None else [e.key for e, easy in zip(EXAMPLES, found, strict=True) if easy]


def test_bounds_on_words_regions_and_targets():
    assert allowed(0, {"until_epoch": 1, "words": 3}) == ["a", "d"]
    assert allowed(0, {"until_epoch": 1, "words": 5}) == ["a", "c", "d"]
    assert allowed(0, {"until_epoch": 1, "regions": 2}) == ["a"]
    assert allowed(0, {"until_epoch": 1, "targets": {"kind": ["relation"]}}) == ["b"]
    assert allowed(0, {"until_epoch": 1, "without": ["Above", "dog"]}) == ["a", "d"]
    assert allowed(0, {"until_epoch": 1, "without": ["five"], "words": 9}) == ["a", "b", "d"]
    assert allowed(1, {"until_epoch": 1, "words": 3}) is None
    steps = ({"until_epoch": 1, "words": 3}, {"until_epoch": 3, "regions": 5, "words": 6})
    easy, more = ["a", "d"], ["a", "c", "d"]
    assert [allowed(epoch, *steps) for epoch in (0, 1, 2, 3)] == [easy, more, more, None]


def test_a_bound_that_no_example_meets():
    with pytest.raises(DataError, match=r"(?s)easy enough.*words: 1.*shortest sentence has 2"):
        allowed(0, {"until_epoch": 1, "words": 1, "targets": {"kind": ["has"]}})
    with pytest.raises(DataError, match="without: a"):
        allowed(0, {"until_epoch": 1, "without": ["a"], "words": 3, "targets": {"kind": ["has"]}})
    with pytest.raises(DataError, match="have none"):
        Curriculum([CurriculumStep(until_epoch=1, regions=3)], EXAMPLES, None)


def test_stretches_of_epochs():
    options = ObjectiveOptions.model_validate(
        {
            "weight": 2.0,
            "from_epoch": 1,
            "until_epoch": 6,
            "changes": [
                {"from_epoch": 2, "probability": 0.3},
                {"from_epoch": 4, "weight": 0.5},
                {"from_epoch": 5, "phrase": True},
                {"from_epoch": 7, "phrase": False},
            ],
        }
    )
    assert options.phases() == [
        (1, 2, {}),
        (2, 5, {"probability": 0.3}),
        (5, 6, {"probability": 0.3, "phrase": True}),
    ]
    assert [options.weight_in(epoch) for epoch in (0, 3, 4, 9)] == [2.0, 2.0, 0.5, 0.5]
    assert ObjectiveOptions().phases() == [(0, None, {})]


RECIPE = """\
root: world
text: {vocabulary: {train: [{name: coco-captions, split: train}], size: 200}}
stages:
  world: {kind: make, world: {name: shapes, images: 30, parts: [coco]}}
  pretrain:
    kind: pretrain
    model: {name: lxmert, hidden: 16, heads: 2, text_layers: 1, image_layers: 1, cross_layers: 1}
    features: FEATURES
    data: {name: coco-captions, split: train}
    curriculum: [{until_epoch: 1, words: 7}]
    objectives:
      - {name: mlm, probability: 0.15, changes: [{from_epoch: 1, roles: [place]}]}
      - {name: matching, changes: [{from_epoch: 1, weight: 0.5, foils: 1.0}]}
    epochs: 2
    batch_size: 16
    log_every: 1
"""


def run(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str, *words: str):
    monkeypatch.chdir(folder)
    (folder / "recipe.yaml").write_text(text)
    return CliRunner().invoke(app, [*words, "recipe.yaml"])


def test_a_recipe_with_both_runs(tmp_path, monkeypatch):
    text = RECIPE.replace("    features: FEATURES\n", "").replace(
        "  pretrain:\n",
        "  regions: {kind: extract, extractor: {name: backbone, arch: tiny-conv}, "
        "data: [{name: coco-instances, split: train}]}\n  pretrain:\n",
    )
    ended = run(tmp_path, monkeypatch, text, "run")
    assert ended.exit_code == 0, ended.output
    lines = [json.loads(line) for line in (tmp_path / "runs/recipe/pretrain/log.jsonl").read_text().splitlines()]
    steps = max(line["step"] for line in lines)
    assert steps % 2 == 0
    for line in lines:
        weight = 1.0 if line["step"] <= steps // 2 else 0.5
        assert line["loss"] == pytest.approx(line["loss/mlm"] + weight * line["loss/matching"], rel=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("foils: 1.0", "head: x", "cannot change"),
        ("foils: 1.0", "foil: 1.0", "unknown key 'foil'"),
        ("roles: [place]", "roles: [spot]", "no role called 'spot'"),
        ("roles: [place]", "rule: maybe", "does not fit"),
        ("{from_epoch: 1, roles: [place]}", "{from_epoch: 3}, {from_epoch: 2}", "later epoch"),
        ("{from_epoch: 1, roles: [place]}", "{roles: [place]}", "from_epoch"),
        ("words: 7", "word: 7", "unknown key"),
    ],
)
def test_faults_are_told_before_anything_runs(tmp_path, monkeypatch, old, new, said):
    ended = run(tmp_path, monkeypatch, RECIPE.replace(old, new).replace("    features: FEATURES\n", ""), "run")
    assert ended.exit_code in (3, 4), ended.output
    assert said in " ".join(ended.output.split())
    assert not (tmp_path / "runs").exists()
