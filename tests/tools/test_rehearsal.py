"""Rehearsals: what is reduced, that nothing else is, miniatures of each data set, and what cannot be rehearsed."""

from __future__ import annotations

import errno
import json
from pathlib import Path

import packaged
import pytest
from typer.testing import CliRunner

from vlcli import registry
from vlcli.builders.readers import build_reader
from vlcli.cli import app
from vlcli.data import Reader
from vlcli.data.miniature import Miniature
from vlcli.errors import UsageError
from vlcli.progress import Silent
from vlcli.recipe import keys
from vlcli.recipe.load import load
from vlcli.recipe.validate import uses
from vlcli.stages.make import check, world_config
from vlcli.tools import rehearsal
from vlcli.tools.reduction import EXPORT, reduced, side
from vlcli.tools.rehearsal import full_costs, rehearse

MAIN = ("lxmert", "dimbert", "vlmo", "irpe", "ace-rpe")
FULL = [name for name in packaged.tables() if not name.startswith("tiny/")]
SMALLER = {
    *(
        "accumulate",
        "ade20k",
        "albums",
        "batch_size",
        "before_crop",
        "crop_sides",
        "epochs",
        "evaluate_every",
        "from_epoch",
    ),
    *("hidden", "image_size", "imagenet", "images", "intermediate", "keep", "last", "long", "longest", "nlvr2_dev"),
    *(
        "nlvr2_pool",
        "nlvr2_test",
        "nlvr2_train",
        "precision",
        "queue",
        "save_every",
        "short",
        "shorts",
        "steps",
        "stride",
    ),
    *("take", "text_hidden", "until_epoch", "warmup", "workers"),
}
"""Keys that a rehearsal may change."""
RECIPE = """
about: a small classifier
root: pictures
model: {name: deit, size: tiny, classes: ~, image_size: 32, patch: 16, drop_path: 0.0}
stages:
  train:
    kind: finetune
    task: image-classification
    data: {name: imagenet, split: train}
    validation: {name: imagenet, split: val}
    transform: {name: imagenet, augment: ""}
    epochs: 40
    batch_size: 512
    optimizer: {lr: 1e-3}
  test: {kind: evaluate, from: train, split: val}
"""


def run(*words: object):
    return CliRunner().invoke(app, ["rehearse", *map(str, words)])


@pytest.mark.parametrize("name", MAIN)
def test_sizes_alone_are_reduced(name):
    one = reduced(load(name))
    for word in one.words:
        path, _, value = word.partition("=")
        assert path.rpartition(".")[2] in SMALLER or path == f"stages.{EXPORT}", word
        assert json.loads(value) is not None
    full, small = one.full.stages, one.small.stages
    assert [stage for stage in small if stage != EXPORT] == list(full)
    for stage in full:
        assert small[stage].source == full[stage].source
        assert [use.spec["name"] for use in uses(one.small, [stage])] == [
            use.spec["name"] for use in uses(one.full, [stage])
        ]


def test_epochs_of_objectives_shrink_with_those_of_the_stage():
    stage = reduced(load("lxmert")).small.stages["pretrain"]
    assert stage.epochs == 2
    assert {one["name"]: one.get("from_epoch", 0) for one in stage.objectives}["image-qa"] == 1
    mean = reduced(load("dimbert")).small.stages
    assert (mean["coco-mean"].last, mean["coco-further"].keep, mean["coco-further"].epochs) == (2, 2, 2)


@pytest.mark.parametrize("name", ["quickstart", "tiny/dimbert-story", "tiny/segmentation", "tiny/ace-rpe:none"])
def test_worlds_shrink_and_can_still_be_made(name):
    one = reduced(load(name))
    (world,) = [stage.world for stage in one.small.stages.values() if stage.kind == "make"]
    assert check(world, "world") == []
    config = world_config(world, "world")
    assert (config.images, config.nlvr2_pool) == (160, 0)
    assert max(config.albums, config.imagenet, config.nlvr2_train, config.nlvr2_dev, config.nlvr2_test) <= 32
    (full,) = [stage.world for stage in one.full.stages.values() if stage.kind == "make"]
    assert all(world[key] == value for key, value in full.items() if key not in SMALLER)


@pytest.mark.parametrize("name", ["quickstart", "grid/attentions:shared/lxmert", "grid/objectives:contrast/vlmo"])
def test_every_part_that_a_stage_reads_of_a_reduced_world_has_examples(name, tmp_path):
    small = reduced(load(name)).small
    (world,) = [stage.world for stage in small.stages.values() if stage.kind == "make"]
    world_config(world, "world").make(tmp_path, Silent(), 1)
    for stage in small.stages.values():
        for spec in keys.data_specs(small.recipe, stage) if stage.kind != "make" else ():
            assert next(iter(build_reader(spec, tmp_path).examples()), None) is not None, spec


def test_pictures_keep_their_order_of_sizes():
    sizes = [side(pixels) for pixels in (32, 224, 256, 384, 480, 768)]
    assert sizes == sorted(sizes)
    assert sizes[:2] == [32, 64]
    assert sizes[3] > sizes[1]
    assert all(size % 16 == 0 for size in sizes)


def test_every_reader_of_a_packaged_recipe_has_a_miniature():
    read = set()
    for name in packaged.recipes():
        recipe = load(name)
        for stage in recipe.stages.values():
            read |= {spec["name"] for spec in keys.data_specs(recipe.recipe, stage) if stage.kind != "make"}
    lacking = [name for name in read if registry.of(Reader).load(name).write_miniature is Reader.write_miniature]
    assert len(read) > 15
    assert lacking == []


def test_a_rehearsal_leaves_nothing_behind(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(RECIPE)
    ended = run(recipe, "root=/data/imagenet")
    assert ended.exit_code == 0, ended.output
    assert "reduced: " in ended.stdout
    assert "epochs=2 (train)" in ended.stdout
    assert EXPORT in ended.stdout
    assert "a million examples" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_folder_keeps_all_and_json_says_all(tmp_path):
    recipe, folder = tmp_path / "mine.yaml", tmp_path / "kept"
    recipe.write_text(RECIPE)
    ended = run(recipe, "--folder", folder, "--json", "--gpus", 4, "--memory", "40GB")
    assert ended.exit_code == 0, ended.output
    (rehearsal,) = json.loads(ended.stdout)["rehearsals"]
    stages = {row["stage"]: row for row in rehearsal["stages"]}
    assert {row["status"] for row in stages.values()} == {"done"}
    assert stages["train"]["full"]["memory"] > 0
    assert stages["train"]["full"]["disk"] > 0
    assert stages["test"]["full"] is None
    assert list((folder / "pictures/train").iterdir())
    assert list((folder / "runs").glob("mine*/rehearsed-export/*"))
    again = run(recipe, "--folder", folder)
    assert again.exit_code == 2
    assert "A rehearsal needs an empty folder." in again.output


def test_what_cannot_be_rehearsed_is_told_in_one_message(tmp_path):
    plugin, recipe = tmp_path / "mine.py", tmp_path / "mine.yaml"
    plugin.write_text(
        "from vlcli.data import Reader\nfrom vlcli.registry import register\n"
        "class Bare(Reader):\n    def files(self):\n        return []\nregister('datasets', 'bare', Bare)\n"
    )
    recipe.write_text(RECIPE.replace("name: imagenet, split: train", "name: bare, split: train"))
    ended = run(recipe, "--plugin", plugin, "stages.train.transform=~")
    assert ended.exit_code != 0
    assert "write_miniature" in ended.output
    assert "stages.train" in ended.output
    assert "Traceback" not in ended.output
    unknown = RECIPE.replace(
        "data: {name: imagenet, split: train}", "from: my.pth\n    data: {name: imagenet, split: train}"
    )
    recipe.write_text(unknown)
    ended = run(recipe)
    assert ended.exit_code == 2
    assert "Weights whose layout is not known cannot be rehearsed." in ended.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nothing-of-the-kind",), "nothing-of-the-kind"),
        (("irpe", "--rows", "1"), "--rows goes with a table."),
        (("nothing-of-the-kind", "--memory", "80"), "This is no size."),
        (("irpe", "--folder", "FILE/inner"), "The folder cannot be made."),
        (("irpe", "--folder", "FILE"), "A rehearsal needs an empty folder."),
    ],
)
def test_bad_input(words, told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("x")
    ended = run(*words)
    assert ended.exit_code != 0
    assert told in ended.output
    assert "Traceback" not in ended.output
    assert [path.name for path in tmp_path.iterdir()] == ["FILE"]


@pytest.mark.parametrize(
    ("fault", "told"),
    [(OSError(errno.ENOSPC, "No space left on device"), "The disk is full"), (KeyboardInterrupt(), "")],
)
def test_what_ends_a_rehearsal_leaves_nothing(fault, told, tmp_path, monkeypatch):
    recipe, folders = tmp_path / "mine.yaml", []
    recipe.write_text(RECIPE)

    def fail(*_: object) -> None:
        folders.append(Path.cwd())
        raise fault

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rehearsal.Scene, "finish", fail)
    ended = run(recipe)
    assert ended.exit_code != 0
    assert told in ended.output
    assert folders
    assert not any(folder.exists() for folder in folders)
    assert Path.cwd() == tmp_path


def test_nothing_is_written_outside_the_folder(tmp_path):
    miniature = Miniature(tmp_path / "inside")
    for path in (tmp_path / "outside.json", Path("../outside.json")):
        with pytest.raises(UsageError, match="its own folder"):
            miniature.write(path, {})
    assert not (tmp_path / "outside.json").exists()


def test_costs_of_the_full_recipe():
    rows = {row["stage"]: row for row in full_costs(load("vlmo/parts:coco"), 64, 80e9)}
    assert list(rows) == ["text", "pairs", "coco"]
    assert rows["pairs"]["hours"] > 0
    assert rows["pairs"]["disk"] > 1e9
    assert full_costs(load("irpe"), 8, 80e9)[0]["hours_a_million"] > 0


def distinct(name):
    """The rows of a table that differ in more than options: in stages, sources or components."""
    recipes = {}
    for row in packaged.tables()[name] or ("",):
        recipe = load(f"{name}:{row}" if row else name)
        stages = tuple((label, stage.kind, tuple(stage.source)) for label, stage in recipe.stages.items())
        components = frozenset((use.kind, use.spec["name"]) for use in uses(recipe))
        recipes.setdefault((stages, components), recipe)
    return list(recipes.values())


QUICK = ("irpe", "regions")
"""The others take tens of seconds or minutes."""


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow("rehearsals")) for name in FULL]
)
def test_packaged_recipes_can_be_rehearsed(name, tmp_path):
    recipes = [reduced(recipe, device="cpu") for recipe in distinct(name)]
    failed = {
        f"{one.full.reference}: {outcome.name}": str(outcome.error or outcome.why)
        for one, outcomes in rehearse(recipes, tmp_path, "cpu", Silent())
        for outcome in outcomes
        if outcome.status != "done"
    }
    assert failed == {}
