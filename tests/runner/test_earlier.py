"""What commit 7f74e70 wrote is read, skipped and continued: feature store, bundle, checkpoint, stage records, keys."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from vlcli import registry
from vlcli.engine.bundle import load_bundle, read_bundle
from vlcli.features import FeatureStore, verify
from vlcli.recipe import keys, wiring
from vlcli.recipe.load import load
from vlcli.recipe.plan import RunOptions
from vlcli.runner.run import run_recipe

EARLIER = Path(__file__).parents[1] / "fixtures" / "earlier"
BUNDLES = EARLIER / "bundles"
KEYS = json.loads((EARLIER / "stage_keys.json").read_text())

# What the same commit measured where nothing was killed.
TRAINED = {"train/loss": 1.3809579114119213, "train/matching/accuracy": 0.625}
SCORES = {"image/r@1": 0.5, "image/median_rank": 1.5, "text/r@1": 0.5, "text/median_rank": 2.0, "r_mean": 5 / 6}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run folder that the earlier commit left, in the working directory."""
    shutil.unpack_archive(EARLIER / "earlier.tar.xz", tmp_path)
    monkeypatch.chdir(tmp_path)
    torch.set_num_threads(1)
    return tmp_path / "runs" / "earlier"


def test_a_feature_store_is_read_and_sound(run: Path) -> None:
    assert verify(run / "regions" / "features.h5") == []
    store = FeatureStore(run / "regions" / "features.h5")
    assert len(store) == 18
    assert sum(len(store.read(name).boxes) for name in store.ids) == 65


def test_a_bundle_is_loaded(run: Path) -> None:
    bundle = load_bundle(run / "pretrain", torch.device("cpu"))
    assert bundle.tokenizer is not None
    assert bundle.text_options["length"] == 12
    assert sum(parameter.numel() for parameter in bundle.model.parameters()) > 3000


def test_a_killed_run_is_continued_and_ends_with_the_same_numbers(run: Path) -> None:
    outcomes = {one.name: one for one in run_recipe(load("earlier.yaml"), RunOptions(device="cpu"))}
    assert {name: one.action for name, one in outcomes.items()} == {
        "world": "skip", "regions": "skip", "pretrain": "skip", "tune": "resume", "test": "run",
    }  # fmt: skip
    assert {one.status for one in outcomes.values()} == {"done"}
    tuned, scored = outcomes["tune"].metrics, outcomes["test"].metrics
    assert {name: tuned[name] for name in TRAINED} == pytest.approx(TRAINED, abs=1e-5)
    assert {name: scored[name] for name in SCORES} == pytest.approx(SCORES)
    again = run_recipe(load("earlier.yaml"), RunOptions(device="cpu"))
    assert {one.action for one in again} == {"skip"}


def test_the_copy_of_the_recipe_in_the_run_folder_is_read(run: Path) -> None:
    options = load("runs/earlier/recipe.yaml").recipe.model
    assert (options["text_layers"], options["image_layers"], options["cross_layers"]) == (1, 1, 1)


@pytest.mark.parametrize("name", sorted(path.parent.name for path in BUNDLES.glob("*/config.json")))
def test_a_trained_model_is_read(name: str) -> None:
    bundle = read_bundle(BUNDLES / name)
    for kind, spec in (
        ("models", bundle.model_spec),
        ("tasks", bundle.task_spec),
        *(("objectives", spec) for spec in bundle.objectives_specs),
    ):
        assert spec is None or registry.check(kind, spec, kind) == []


@pytest.mark.parametrize("name", sorted(path.parent.name for path in BUNDLES.glob("*/model.safetensors")))
def test_its_weights_fill_the_model(name: str) -> None:
    module = load_bundle(BUNDLES / name).module
    assert sum(parameter.numel() for parameter in module.model.parameters()) > 100


def test_the_task_of_a_trained_model_is_known_to_recipes(tmp_path: Path) -> None:
    shutil.copytree(BUNDLES / "story", tmp_path / "model")
    assert keys.task_kept(str(tmp_path)).task["story_per"] == "sequence"


@pytest.mark.parametrize("name", sorted(KEYS))
def test_stage_keys_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that changes makes everybody's finished stage be made again."""
    monkeypatch.chdir("/")
    recipe = load(name).recipe
    graph, made = wiring.inputs(recipe), {}
    for one in recipe.stages:
        made[one] = keys.stage_key(recipe, one, made, graph[one].implied, list(graph))
    assert {stage: key[:10] for stage, key in made.items()} == KEYS[name]
